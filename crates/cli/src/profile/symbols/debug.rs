//! Where a file's debug information lies, and its sections.

use crate::config::elf::hex;
use addr2line::gimli::{self, EndianSlice, RunTimeEndian};
use object::{CompressionFormat, Object, ObjectSection};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// What debug information is read from: memory that stays as long as the command runs.
pub(super) type Slice = EndianSlice<'static, RunTimeEndian>;

/// The file's content stays in memory until the command ends, which is soon.
pub(super) fn parse(path: &Path) -> Option<object::File<'static>> {
    object::File::parse(&*fs::read(path).ok()?.leak()).ok()
}

/// The file with the debug information that was split off.
pub(super) fn separate(
    main: Option<&object::File>,
    path: &Path,
    build_id: &[u8],
) -> Option<object::File<'static>> {
    let own_id = main.and_then(|file| file.build_id().ok().flatten()).unwrap_or_default();
    let build_id = if build_id.is_empty() { own_id } else { build_id };
    let by_id = debug_files(build_id).into_iter().filter(|_| !build_id.is_empty());
    let mut candidates: Vec<PathBuf> = by_id.collect();
    if let Some(Ok(Some((name, _)))) = main.map(|file| file.gnu_debuglink())
        && let Ok(name) = std::str::from_utf8(name)
    {
        let directory = path.parent().unwrap_or(Path::new("/"));
        let mirrored = Path::new("/usr/lib/debug").join(directory.strip_prefix("/").unwrap_or(directory));
        candidates.extend([directory.join(name), directory.join(".debug").join(name), mirrored.join(name)]);
    }
    let fits = |file: &object::File| {
        build_id.is_empty() || matches!(file.build_id(), Ok(Some(found)) if found == build_id)
    };
    candidates.iter().filter(|candidate| *candidate != path).filter_map(|path| parse(path)).find(fits)
}

/// Where distributions and `debuginfod` put files with debug information, by build id.
fn debug_files(build_id: &[u8]) -> Vec<PathBuf> {
    let [first, rest @ ..] = build_id else { return Vec::new() };
    let mut found =
        vec![Path::new("/usr/lib/debug/.build-id").join(hex(&[*first])).join(hex(rest) + ".debug")];
    let cache = std::env::var_os("DEBUGINFOD_CACHE_PATH").map(PathBuf::from).or_else(|| {
        let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let base = base.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")));
        base.map(|base| base.join("debuginfod_client"))
    });
    found.extend(cache.map(|cache| cache.join(hex(build_id)).join("debuginfo")));
    found
}

/// The debug information of a file, together with the file that several of them share (dwz).
pub(super) fn dwarf(file: &object::File<'static>, path: &Path) -> Option<gimli::Dwarf<Slice>> {
    let mut dwarf = sections(file)?;
    if let Ok(Some((name, _))) = file.gnu_debugaltlink()
        && let Ok(name) = std::str::from_utf8(name)
    {
        let name = Path::new(name);
        let beside = path.parent().unwrap_or(Path::new("/")).join(name);
        // Debian names the file relative to the one in `/usr/lib/debug/.build-id/xx`.
        let shared = Path::new("/usr/lib/debug/.build-id/xx").join(name);
        let shared = shared.components().fold(PathBuf::new(), |mut path, part| {
            match part {
                std::path::Component::ParentDir => _ = path.pop(),
                part => path.push(part),
            }
            path
        });
        let found = [shared, beside].iter().find_map(|path| parse(path));
        if let Some(common) = found.and_then(|file| sections(&file)) {
            dwarf.set_sup(common);
        }
    }
    Some(dwarf)
}

fn sections(file: &object::File<'static>) -> Option<gimli::Dwarf<Slice>> {
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let load = |id: gimli::SectionId| -> Result<Slice, gimli::Error> {
        let bytes = file.section_by_name(id.name()).and_then(|section| content(&section)).unwrap_or_default();
        Ok(EndianSlice::new(bytes, endian))
    };
    gimli::Dwarf::load(load).ok()
}

/// A section's bytes. Compressed ones are unpacked (zlib; not zstd, which no distribution's default uses yet).
fn content(section: &object::Section<'static, '_>) -> Option<&'static [u8]> {
    let found = section.compressed_data().ok()?;
    match found.format {
        CompressionFormat::None => Some(found.data),
        CompressionFormat::Zlib => {
            let mut bytes = Vec::new();
            flate2::read::ZlibDecoder::new(found.data).read_to_end(&mut bytes).ok()?;
            Some(bytes.leak())
        }
        _ => None,
    }
}
