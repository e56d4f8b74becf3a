//! A text for stderr or a file, built on the stack.

use core::fmt::Write;

/// A text of up to 4096 bytes, the most that `write` appends to a pipe in one piece.
///
/// `exit` may be called anywhere, also within `malloc`, so nothing here allocates.
pub(crate) struct Line {
    bytes: [u8; 4096],
    length: usize,
}

impl Line {
    pub(crate) fn new() -> Self {
        Line { bytes: [0; 4096], length: 0 }
    }

    /// Appends what fits.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let room = self.bytes.len() - self.length;
        let taken = bytes.len().min(room);
        self.bytes[self.length..self.length + taken].copy_from_slice(&bytes[..taken]);
        self.length += taken;
    }

    /// The text.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}
