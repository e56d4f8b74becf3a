//! The lowest layer: the state of the process, and the bytes of its locks.
//!
//! | module | what it has |
//! |---|---|
//! | [`abi`] | the bytes of the pthread objects |
//! | [`table`], [`interface`] | the functions that serve the process, and glibc's own |
//! | [`generation`] | fork generations, and the repair of objects in a forked child |
//! | [`mapping`] | which memory a forked child shares with its parent |
//! | [`alone`] | sections that one thread at a time is in |
//! | [`place`], [`memory`] | memory for raw locks that do not fit into their objects |
//! | [`heap`] | what the reports of checks allocate |
//! | [`wiped`] | words by which a forked child notices that it is one |
//! | [`kernel`] | system calls, past other libraries |
//! | [`stderr`], [`log`] | where reports go: the stream, or a file of lines |
//! | [`identity`] | numbers of threads |
//! | [`executed`] | the name of the executed file |
//! | [`choice`] | which lock serves an object, where locks are chosen one by one |
//! | [`cancel`] | cancellation of a thread that waits |
//! | [`counters`] | how many objects and calls there were, while statistics are on |
//! | [`used`] | whether the program has used an object, for `latchwork compare` |
//! | [`unwind`] | the calling thread's stack, and the modules that its addresses belong to |
//! | [`clock`] | the kernel's clock, past other libraries |
//! | [`index`], [`line`], [`dynamic`], [`program`] | a map, a line of text, and ELF files: all without `malloc` |

pub(crate) mod abi;
pub(crate) mod alone;
pub(crate) mod cancel;
pub(crate) mod choice;
pub(crate) mod clock;
pub(crate) mod counters;
pub(crate) mod dynamic;
pub(crate) mod executed;
pub(crate) mod exit;
pub(crate) mod generation;
mod heap;
pub(crate) mod identity;
pub(crate) mod index;
pub(crate) mod interface;
pub(crate) mod kernel;
pub(crate) mod line;
pub(crate) mod log;
pub(crate) mod mapping;
pub(crate) mod memory;
pub(crate) mod place;
#[cfg_attr(not(versioned), allow(dead_code, reason = "only `near` rebinds the program's calls"))]
pub(crate) mod program;
pub(crate) mod stderr;
pub(crate) mod table;
pub(crate) mod unwind;
pub(crate) mod used;
pub(crate) mod wiped;
