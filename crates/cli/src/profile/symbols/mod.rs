//! From addresses to functions, files, lines and variables, after the program has ended.
//!
//! A recording holds plain addresses and the list of modules that they lie in. [`Symbols`] opens each module's file when
//! the first address of it is asked for. It looks into the file itself, and into the separate file with debug information
//! that the build id names. Where neither knows an address, the frame is `module+0x1234`.

mod binary;
mod debug;
mod demangle;
mod members;
pub mod wrappers;

use binary::Binary;
pub use latchwork_recording::reader::Module;
use std::collections::HashMap;
use std::path::PathBuf;

/// One function of a stack. A return address in inlined code stands for several of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Demangled, without parameters.
    pub function: String,
    /// As the debug information names it. Empty: not known.
    pub file: String,
    /// 0: not known.
    pub line: u32,
    /// The file name of the module.
    pub module: String,
    /// Whether the compiler put this function's code into its caller, the next frame.
    pub inlined: bool,
}

/// A variable, and the part of it at the address that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its symbol, demangled, with the member where it is known: `cache.mutex_`, `cache+0x28`, `table[].lock`.
    pub name: String,
    /// The file name of its module.
    pub module: String,
    /// The path of its module.
    pub path: PathBuf,
    /// Where its symbol begins, as the module counts addresses.
    pub start: u64,
    /// The source file of a symbol that other files do not see (`static`). Empty: not known, or all see it.
    pub file: String,
}

/// The files of all modules that were asked for until now.
#[derive(Default)]
pub struct Symbols {
    binaries: HashMap<(PathBuf, Vec<u8>), Binary>,
    /// Files that are not what the program ran: they have changed since.
    pub changed: Vec<PathBuf>,
}

impl Symbols {
    /// The functions at the return address `address`, from the innermost one outwards; at least one.
    pub fn frames(&mut self, modules: &[Module], address: u64) -> Vec<Frame> {
        let Some(module) = module_of(modules, address) else {
            let function = if address == 0 { "[unknown]".into() } else { format!("[{address:#x}]") };
            return vec![Frame { function, ..Frame::default() }];
        };
        let name = module.name();
        // The instruction before the return address is the call.
        let probe = address.wrapping_sub(module.bias).wrapping_sub(1);
        let mut frames = self.binary(module).frames(probe);
        if frames.is_empty() {
            frames
                .push(Frame { function: format!("{name}+{:#x}", probe.wrapping_add(1)), ..Frame::default() });
        }
        for frame in &mut frames {
            frame.module.clone_from(&name);
        }
        frames
    }

    /// The variable that lies at `address`, if it is one of a module.
    pub fn variable(&mut self, modules: &[Module], address: u64) -> Option<Variable> {
        let module = module_of(modules, address)?;
        let at = address.wrapping_sub(module.bias);
        let (name, start, file) = self.binary(module).variable(at).unwrap_or_else(|| {
            let name = format!("{}+{at:#x}", module.name());
            (name, at, String::new())
        });
        Some(Variable { name, module: module.name(), path: module.path.clone(), start, file })
    }

    fn binary(&mut self, module: &Module) -> &mut Binary {
        let key = (module.path.clone(), module.build_id.clone());
        self.binaries.entry(key).or_insert_with(|| {
            let binary = Binary::open(&module.path, &module.build_id);
            if binary.changed {
                self.changed.push(module.path.clone());
            }
            binary
        })
    }
}

/// The module that holds `address`.
pub fn module_of(modules: &[Module], address: u64) -> Option<&Module> {
    modules.iter().find(|module| (module.start..module.end).contains(&address))
}
