//! `Condvar`.

use crate::locks::condvar::Api;
use crate::locks::mutex::shfl::RawShfl;
use crate::machine::Native;

pub use lock_api::WaitTimeoutResult;

/// A condition variable for [`Mutex`](crate::Mutex).
pub type Condvar = lock_api::Condvar<Api<RawShfl<Native>>>;
