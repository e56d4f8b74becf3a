//! A file in memory, read and written through system calls.

use crate::stage::{BLOCK, File};
use std::fs;
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

/// A file without a name.
pub struct MemoryFile(fs::File);

/// Bytes of a number.
const NUMBER: usize = size_of::<u64>();

impl MemoryFile {
    /// With so many blocks of zeros.
    pub fn new(blocks: usize) -> io::Result<Self> {
        let (needed, there) = ((blocks as u64).saturating_mul(BLOCK as u64), available());
        if let Some(there) = there.filter(|there| needed > *there) {
            let mib = |bytes| bytes >> 20;
            return Err(io::Error::other(format!(
                "it takes {} MiB, and {} are free",
                mib(needed),
                mib(there)
            )));
        }
        // SAFETY: the name is a C string.
        let descriptor = unsafe { libc::memfd_create(c"latchwork".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `memfd_create` has just opened the descriptor, and nothing else has it.
        let file = MemoryFile(unsafe { fs::File::from_raw_fd(descriptor) });
        // Written, not only made so long: the first write of a block would allocate its memory within the measured time.
        for block in 0..blocks {
            file.fill(block, 0)?;
        }
        Ok(file)
    }

    fn fill(&self, block: usize, number: u64) -> io::Result<()> {
        let mut bytes = [0; BLOCK];
        bytes.chunks_exact_mut(NUMBER).for_each(|chunk| chunk.copy_from_slice(&number.to_ne_bytes()));
        self.0.write_all_at(&bytes, (block * BLOCK) as u64)
    }
}

/// Bytes of memory that can be had without swapping, if the kernel says so.
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

impl File for MemoryFile {
    fn read(&self, block: usize) -> Result<u64, String> {
        let mut bytes = [0; BLOCK];
        let read = self.0.read_exact_at(&mut bytes, (block * BLOCK) as u64);
        read.map_err(|error| format!("block {block} cannot be read: {error}"))?;
        let (first, rest) = bytes.split_at(NUMBER);
        if rest.chunks_exact(NUMBER).any(|chunk| chunk != first) {
            return Err(format!("block {block} was half written: a writer was inside with a reader"));
        }
        Ok(u64::from_ne_bytes(first.try_into().expect("as long as a number")))
    }

    fn write(&self, block: usize, number: u64) -> Result<(), String> {
        self.fill(block, number).map_err(|error| format!("block {block} cannot be written: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_does_not_fit_is_refused_before_it_is_written() {
        let error = MemoryFile::new(1 << 40).err().unwrap();
        assert!(error.to_string().starts_with("it takes 4294967296 MiB, and "), "{error}");
    }
}
