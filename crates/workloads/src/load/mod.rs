//! The workloads, one file each.

mod address_space;
mod map_reduce;

pub mod alternator;
pub mod barrier;
pub mod condvar;
pub mod counter;
pub mod file_sections;
pub mod hash_table;
pub mod hash_table_bench;
pub mod hashtable_strategies;
pub mod interference;
pub mod interpreter;
pub mod lock_per_node;
pub mod locktorture;
pub mod mmap;
pub mod oversubscribe;
pub mod page_fault;
pub mod queue;
pub mod readrandom;
pub mod readwhilewriting;
pub mod rwbench;
pub mod snapshot;
pub mod test_rwlock;
pub mod thread_pool;
pub mod wc;
pub mod working_set;
pub mod wrmem;
pub mod yield_inside;
