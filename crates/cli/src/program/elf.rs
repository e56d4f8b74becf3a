//! What the headers of an ELF file say about how a program or library is linked.

use object::elf::FileHeader64;
use object::endian::NativeEndian;
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{FileKind, ReadCache};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

type Header = FileHeader64<NativeEndian>;

/// How a program comes to its C library.
#[derive(Debug, PartialEq)]
pub enum Linkage {
    /// The program is for another processor than this process, or for that processor's 32-bit mode.
    OtherProcessor,
    /// The program contains its C library.
    Static,
    /// This dynamic linker loads the program's C library.
    Dynamic(PathBuf),
}

/// Reads a program's headers. `None`: the file is no ELF file, or is damaged.
pub fn linkage(file: &File) -> Option<Linkage> {
    let data = ReadCache::new(file);
    match FileKind::parse(&data).ok()? {
        FileKind::Elf64 => {}
        FileKind::Elf32 => return Some(Linkage::OtherProcessor),
        _ => return None,
    }
    let header = Header::parse(&data).ok()?;
    let Some(endian) = header.endian().ok().filter(|endian| header.e_machine(*endian) == OWN_MACHINE) else {
        return Some(Linkage::OtherProcessor);
    };
    for segment in header.program_headers(endian, &data).ok()? {
        if let Some(linker) = segment.interpreter(endian, &data).ok()? {
            return Some(Linkage::Dynamic(OsStr::from_bytes(linker).into()));
        }
    }
    Some(Linkage::Static)
}

/// The sanitizer's runtime among the libraries that a program is linked with, by its name.
pub fn sanitizer(file: &File) -> Option<String> {
    const RUNTIMES: [&str; 6] =
        ["libasan.so", "libtsan.so", "libhwasan.so", "liblsan.so", "libclang_rt.asan", "libclang_rt.tsan"];
    let data = ReadCache::new(file);
    let header = Header::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    let (entries, strings) = sections.dynamic(endian, &data).ok()??;
    let strings = sections.strings(endian, &data, strings).ok()?;
    let needed = entries.iter().filter(|entry| entry.tag(endian) == object::elf::DT_NEEDED);
    let names = needed.filter_map(|entry| str::from_utf8(entry.string(endian, strings).ok()?).ok());
    let mut runtimes = names.filter(|name| RUNTIMES.iter().any(|runtime| name.starts_with(runtime)));
    runtimes.next().map(str::to_owned)
}

/// The processor that this command, and the library that it carries, are built for.
const OWN_MACHINE: object::elf::Machine = if cfg!(target_arch = "x86_64") {
    object::elf::EM_X86_64
} else if cfg!(target_arch = "aarch64") {
    object::elf::EM_AARCH64
} else if cfg!(target_arch = "riscv64") {
    object::elf::EM_RISCV
} else if cfg!(target_arch = "powerpc64") {
    object::elf::EM_PPC64
} else if cfg!(target_arch = "s390x") {
    object::elf::EM_S390
} else {
    object::elf::EM_LOONGARCH
};

/// The oldest glibc that has every symbol version that the library asks for, as `2.34`.
pub fn needed_glibc(library: &[u8]) -> Option<String> {
    let header = Header::parse(library).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, library).ok()?;
    let (mut files, strings) = sections.gnu_verneed(endian, library).ok()??;
    let strings = sections.strings(endian, library, strings).ok()?;
    let mut newest = None;
    while let Some((_, mut versions)) = files.next().ok()? {
        while let Some(version) = versions.next().ok()? {
            let name = str::from_utf8(version.name(endian, strings).ok()?).ok()?;
            let number = |text: &str| text.parse::<u32>().ok();
            let numbers = name.strip_prefix("GLIBC_").and_then(|version| {
                let (major, minor) = version.split_once('.')?;
                // The versions of glibc 2.2 and 2.3 have a third number.
                Some((number(major)?, number(minor.split('.').next()?)?))
            });
            newest = newest.max(numbers);
        }
    }
    newest.map(|(major, minor)| format!("{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{env, fs};

    #[test]
    fn linkage_is_read_from_the_headers() {
        // The processor is known without this file: there may be no /proc where the command runs.
        let own = linkage(&File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(matches!(own, Linkage::Dynamic(linker) if linker.is_absolute()));
        // This program's header alone, with its table of segments emptied.
        let mut header = fs::read("/proc/self/exe").unwrap()[..64].to_vec();
        header[56..58].copy_from_slice(&[0, 0]);
        let path = env::temp_dir().join(format!("latchwork-elf-{}", std::process::id()));
        let read = |header: &[u8]| {
            fs::write(&path, header).unwrap();
            linkage(&File::open(&path).unwrap())
        };
        assert_eq!(read(&header), Some(Linkage::Static));
        assert_eq!(read(&header[..20]), None);
        header[18] ^= 1;
        assert_eq!(read(&header), Some(Linkage::OtherProcessor));
        header[4] = 1;
        assert_eq!(read(&header), Some(Linkage::OtherProcessor));
        assert_eq!(read(b"#!/bin/sh\n"), None);
        fs::remove_file(path).unwrap();
    }
}
