//! The layer over the families: it watches what they serve, and serves nothing itself.
//!
//! | module | what it watches |
//! |---|---|
//! | [`check`] | lock order and misuse: its functions lie over those in the table, and call them |
//! | [`statistics`] | how many objects and calls there were: it reports what the families have counted |
//!
//! Statistics are counted within the families and not by a layer over the table, because only the family sees whether the
//! first attempt of a call failed. A layer could only make an attempt of its own before the call, and that attempt would
//! barge past waiting threads.

pub(crate) mod check;
pub(crate) mod statistics;
