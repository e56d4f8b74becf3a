//! What must hold of the workloads, of the locks that only they are compared with, and of their page.

mod docs;
mod native;
mod yardsticks;
