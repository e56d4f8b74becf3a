//! Numbers and text of a record.

use crate::layout::NONE;

/// The value of a field of a record.
macro_rules! get {
    ($record:expr, $of:ty, $field:ident, u64) => {
        $crate::reader::bytes::u64_at($record, std::mem::offset_of!($of, $field))
    };
    ($record:expr, $of:ty, $field:ident, u32) => {
        $crate::reader::bytes::u32_at($record, std::mem::offset_of!($of, $field))
    };
    ($record:expr, $of:ty, $field:ident, u16) => {
        $crate::reader::bytes::u32_at($record, std::mem::offset_of!($of, $field)) as u16
    };
}
pub(crate) use get;

/// A stack's number, if there is such a stack.
pub(super) fn index(number: u32, stacks: &[Vec<u64>]) -> Option<usize> {
    ((number as usize) < stacks.len() && number != NONE).then_some(number as usize)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
