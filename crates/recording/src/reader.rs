//! The reader of a recording.
//!
//! [`Recording::read`] copies a file into plain structs. A file may be damaged, of another version, or written to at this
//! moment: the reader trusts no length and no index of it. A record with an index that points nowhere is left out.
//!
//! What threads have counted for themselves is added to the objects and classes here, so that users of the structs need not
//! know of it.
//!
//! | module | what it has |
//! |---|---|
//! | this one | errors |
//! | [`model`] | the structs |
//! | `file` | the file with its sections |
//! | `sums` | what belongs to one class or pair, added up |
//! | `holders` | which threads hold the locks that others wait for |
//! | `estimates` | the pairs of a class, made to agree with its exact sums |
//! | `bytes` | numbers and text of a record |

use crate::layout;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(crate) mod bytes;
mod estimates;
mod file;
mod holders;
pub mod model;
pub(crate) mod places;
mod sums;
#[cfg(test)]
mod tests;

pub use model::*;

/// Why a file cannot be read.
#[derive(Debug)]
pub enum Error {
    /// The file cannot be opened or read.
    Io(std::io::Error),
    /// The file is no recording, or the program was killed before the recording began.
    NotARecording,
    /// The file was written by another version of the preload library.
    Version(u32),
    /// A section lies outside the file, or has records of a wrong size.
    Damaged(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(out),
            Self::NotARecording => out.write_str("is no recording of latchwork's"),
            Self::Version(found) => write!(
                out,
                "is a recording of version {found}, and this is for version {}; read it with the latchwork that made it",
                layout::VERSION
            ),
            Self::Damaged(section) => {
                write!(out, "is damaged: its section of {section} lies outside the file")
            }
        }
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl Recording {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Self::read_from(&File::open(path)?)
    }

    /// Reads a file that is open.
    pub fn read_from(file: &File) -> Result<Self, Error> {
        file::Reader::open(file)?.read()
    }
}

/// Writes into a recording, which is open to write, when the command saw that its process was gone. The reader looks at that if the process did
/// not write its end itself.
pub fn note_gone(file: &File, gone: u64) -> std::io::Result<()> {
    file.write_all_at(&gone.to_ne_bytes(), std::mem::offset_of!(layout::Header, gone) as u64)
}
