//! The tables under loom: all interleavings of small clients, up to a number of preemptions, under the C11 memory
//! model.
//!
//! The machine is the one that the library's own loom tests run on. Its files stand there, and are named here by their
//! path: they are test code, which a crate of their own would have to publish.

#[path = "../../../latchwork/tests/loom/machine.rs"]
#[expect(dead_code, unused_imports, reason = "the tables use a part of the machine")]
mod machine;
#[path = "../../../latchwork/tests/loom/records.rs"]
mod records;
#[path = "../../../latchwork/tests/loom/report.rs"]
mod report;
#[path = "../../../latchwork/tests/loom/stacks.rs"]
mod stacks;
#[path = "../../../latchwork/tests/loom/words.rs"]
mod words;

mod tables;

use report::report;
