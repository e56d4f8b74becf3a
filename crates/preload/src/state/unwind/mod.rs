//! Unwinding the calling thread's stack, without allocating and without the dynamic linker's locks.
//!
//! The description of the code at an address (`.eh_frame`) says where the caller's frame is; the crate `gimli` reads it.
//! Code without a description, such as what a just-in-time compiler makes, is unwound by its frame pointer, if that looks
//! like one. Anything unexpected ends the stack.
//!
//! On AArch64 all code is unwound by its frame pointers, which compilers keep there unless they are told not to. The numbers of
//! registers below are x86-64's there, too: only the frame pointer, the stack pointer and the return address count.
//!
//! Before a word of the stack is read, its page is known to be readable ([`Window`]): the stack may be of the program's own
//! making, and its words anything.

pub(crate) mod modules;
mod readable;
pub(crate) mod recent;
mod rules;

use super::memory::quietly;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, Encoding, EndianSlice, Evaluation, EvaluationResult,
    EvaluationStorage, NativeEndian, Pointer, Register, RegisterRule, UnwindContext, UnwindContextStorage,
    UnwindSection, UnwindTableRow, Value,
};
pub(crate) use readable::is_readable;
use rules::Rule;
pub(crate) use rules::mix;

/// The most frames that are unwound, the recorder's own among them.
pub(crate) const MOST: usize = 40;

/// The number of the first registers in DWARF's order that a description can name; the return address is the last.
const REGISTERS: usize = 17;
const RBP: u16 = 6;
const RSP: u16 = 7;
const RETURN_ADDRESS: u16 = 16;

/// The registers of a frame.
#[derive(Clone)]
pub(crate) struct Registers {
    words: [u64; REGISTERS],
}

impl Registers {
    /// Those of the calling function. `None`: not on this architecture.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn here() -> Option<Self> {
        let mut words = [0; REGISTERS];
        // SAFETY: stores registers into the array. Those that a callee may change are not needed to unwind.
        unsafe {
            core::arch::asm!(
                "lea {scratch}, [rip]",
                "mov [{words} + 128], {scratch}",
                "mov [{words} + 24], rbx",
                "mov [{words} + 48], rbp",
                "mov [{words} + 56], rsp",
                "mov [{words} + 96], r12",
                "mov [{words} + 104], r13",
                "mov [{words} + 112], r14",
                "mov [{words} + 120], r15",
                words = in(reg) words.as_mut_ptr(),
                scratch = out(reg) _,
                options(nostack, preserves_flags),
            );
        }
        Some(Registers { words })
    }

    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(crate) fn here() -> Option<Self> {
        let mut words = [0; REGISTERS];
        // SAFETY: reads registers.
        unsafe {
            core::arch::asm!(
                "mov {frame}, x29",
                "mov {stack}, sp",
                "adr {address}, .",
                frame = out(reg) words[RBP as usize],
                stack = out(reg) words[RSP as usize],
                address = out(reg) words[RETURN_ADDRESS as usize],
                options(nomem, nostack, preserves_flags),
            );
        }
        Some(Registers { words })
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub(crate) fn here() -> Option<Self> {
        None
    }

    /// What [`sp`](Self::sp) of [`here`](Self::here) is: for a caller that seldom needs more.
    #[inline(always)]
    pub(crate) fn sp_here() -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        {
            let sp: usize;
            // SAFETY: reads a register.
            unsafe {
                core::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags));
            }
            Some(sp)
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self::here().map(|registers| registers.sp())
    }

    pub(crate) fn sp(&self) -> usize {
        self.words[RSP as usize] as usize
    }

    fn get(&self, register: Register) -> Option<u64> {
        self.words.get(register.0 as usize).copied()
    }
}

const PAGE: usize = 4096;
/// The longest distance from the stack pointer at which a frame is looked for, in bytes.
pub(crate) const REACH: usize = 8 << 20;

/// A part of the address space that is known to be readable.
pub(crate) struct Window {
    start: usize,
    end: usize,
    /// The window does not grow beyond this address.
    most: usize,
}

impl Window {
    /// For a stack of which nothing is known. It holds for one capture: the program may unmap the stack later, and make another
    /// one at the same place.
    pub(crate) const EMPTY: Self = Window { start: 0, end: 0, most: usize::MAX };

    /// The word at an address at or above the stack pointer. `None`: it cannot be read.
    pub(crate) fn read(&mut self, sp: usize, address: usize) -> Option<u64> {
        if !address.is_multiple_of(8) || address < sp || address - sp > REACH {
            return None;
        }
        if sp < self.start || sp >= self.end {
            // The thread runs on this page.
            self.start = sp & !(PAGE - 1);
            self.end = self.start + PAGE;
        }
        if address + 8 > self.most {
            return None;
        }
        while address + 8 > self.end {
            if !is_readable(self.end) {
                return None;
            }
            self.end += PAGE;
        }
        // SAFETY: the word lies between the stack pointer and the end of the window, whose pages the kernel could read. They
        // belong to the stack on which this thread runs, which nothing unmaps meanwhile.
        Some(unsafe { core::ptr::with_exposed_provenance::<u64>(address).read_volatile() })
    }
}

/// The stack that a thread began with, as far as it is known: from the deepest page that the thread was seen on up to the end.
/// It stays readable for as long as the thread runs, so what is known of it can be kept. Any other stack (a coroutine's, a
/// signal handler's) may be unmapped when the thread has left it.
///
/// The C library says where a stack begins, but allocates for the answer. So a page counts as part of the stack if it and all
/// pages above it, up to the end of the stack, can be read. Below a stack lies a page that cannot be read, unless the program
/// has asked for none (`pthread_attr_setguardsize`, `pthread_attr_setstack`). Zero bytes are a stack with no page.
pub(crate) struct OwnStack {
    start: usize,
    end: usize,
    /// The stack does not reach below this address.
    floor: usize,
}

impl OwnStack {
    /// The calling thread's. On the thread that the process began with, the kernel's random bytes lie above all frames. On any
    /// other thread, glibc's descriptor of the thread does.
    pub(crate) fn new() -> Self {
        // SAFETY: system calls and functions that take nothing; the last one reads the auxiliary vector.
        let end = unsafe {
            if libc::syscall(libc::SYS_gettid) == i64::from(libc::getpid()) {
                libc::getauxval(libc::AT_RANDOM) as usize
            } else {
                libc::pthread_self() as usize
            }
        };
        let end = end & !7;
        OwnStack { start: end & !(PAGE - 1), end, floor: end.saturating_sub(REACH) }
    }

    /// Whether the calling thread, whose stack pointer is `sp`, runs on this stack.
    #[inline(always)]
    pub(crate) fn is_here(&mut self, sp: usize) -> bool {
        sp < self.end && (sp >= self.start || sp >= self.floor && self.reaches(sp))
    }

    /// Whether the stack reaches down to a stack pointer that is deeper than any before.
    #[cold]
    #[inline(never)]
    fn reaches(&mut self, sp: usize) -> bool {
        let deepest = sp & !(PAGE - 1);
        while self.start > deepest {
            if !is_readable(self.start - PAGE) {
                self.floor = self.start;
                return false;
            }
            self.start -= PAGE;
        }
        true
    }

    /// Whether `top`, which is at or above the stack pointer, is the address of a word of the stack on which the thread runs.
    #[inline(always)]
    pub(crate) fn has(&self, top: usize) -> bool {
        top + 8 <= self.end
    }

    /// What is known to be readable.
    pub(crate) fn window(&self) -> Window {
        Window { start: self.start, end: self.end, most: self.end }
    }
}

/// Room for the rules of one function, on the stack.
struct Small;
impl UnwindContextStorage<usize> for Small {
    type Rules = [(Register, RegisterRule<usize>); REGISTERS];
    type Stack = [UnwindTableRow<usize, Self>; 3];
}
type Slice = EndianSlice<'static, NativeEndian>;
impl EvaluationStorage<Slice> for Small {
    type Stack = [Value; 8];
    type ExpressionStack = [(Slice, Slice); 1];
    type Result = [gimli::Piece<Slice>; 1];
}

/// Bytes of stack that unwinding may take, with what calls it here.
const ROOM: usize = 8 << 10;

/// Whether there is room for unwinding below the stack pointer. A stack for signal handlers may be small (`SIGSTKSZ` is 8192 bytes,
/// half of which the kernel may need for the registers), and memory of the program may lie below it.
fn has_room(sp: usize) -> bool {
    // SAFETY: zeroes are a value of the structure, which the kernel fills.
    let stack = quietly(|| unsafe {
        let mut stack = core::mem::zeroed::<libc::stack_t>();
        libc::sigaltstack(core::ptr::null(), &mut stack);
        stack
    });
    stack.ss_flags & libc::SS_ONSTACK == 0 || sp.saturating_sub(stack.ss_sp.addr()) >= ROOM
}

/// Calls `frame` for each frame of the calling thread from `registers` on, with the place of its return address, that address,
/// and whether it lies in this library. `frame` says whether to go on. There are no frames if the stack has no room for unwinding.
pub(crate) fn each(
    registers: &Registers,
    window: &mut Window,
    mut frame: impl FnMut(usize, usize, bool) -> bool,
) {
    if window.end == 0 && !has_room(registers.sp()) {
        return;
    }
    // Without an answer here there is none for any address, and the frames of this library have no frame pointers.
    let Some(mut module) = modules::of(registers.words[RETURN_ADDRESS as usize] as usize) else { return };
    let own = module.start..module.end;
    let bottom = registers.sp();
    let mut here = Lazy { registers: registers.clone(), unread: 0 };
    // A return address may be the first behind its function; the address before it is in the function.
    let mut behind_call = 0;
    loop {
        let address = here.registers.words[RETURN_ADDRESS as usize].wrapping_sub(behind_call);
        let sp = here.registers.sp();
        let mut read = |address: u64| window.read(bottom, address as usize);
        let in_module = (module.start..module.end).contains(&(address as usize))
            || modules::of(address as usize).map(|found| module = found).is_some();
        let has_description =
            !cfg!(target_arch = "aarch64") && in_module && !module.eh_frame_header.is_null();
        let slot = if has_description && let Some(rule) = rules::find(&module, address) {
            behind_call = 1;
            here.apply(rule, &mut read)
        } else {
            let step = here.read_all(&mut read).and_then(|()| {
                if !has_description {
                    return Some(Step::Unknown);
                }
                described(&module, &here.registers, address, &mut read)
            });
            let caller = match step {
                Some(Step::To(caller)) => Some(caller),
                Some(Step::Unknown) => by_frame_pointer(&here.registers, &mut read),
                Some(Step::End) | None => None,
            };
            caller.map(|caller| {
                here.registers = caller.registers;
                behind_call = u64::from(!caller.interrupted);
                caller.slot
            })
        };
        let Some(slot) = slot else { return };
        let address = here.registers.words[RETURN_ADDRESS as usize] as usize;
        // The stack grows downwards, and the first page is never mapped.
        if here.registers.sp() <= sp || address < PAGE || !frame(slot, address, own.contains(&address)) {
            return;
        }
    }
}

/// The registers of a frame, of which some have not been read yet: most are never needed.
struct Lazy {
    registers: Registers,
    /// A bit for each register whose word is the place where its value lies.
    unread: u32,
}

impl Lazy {
    /// Goes to the caller's frame. Returns where the return address lies. `None`: this is the outermost frame, or the stack
    /// cannot be read there.
    fn apply(&mut self, rule: Rule, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<usize> {
        if rule.is_end() {
            return None;
        }
        if rule.is_by_frame_pointer() {
            self.read(RBP, read)?;
        }
        let frame = rule.frame(&self.registers.words);
        let mut slot = 0;
        for (number, place) in rule.saved(frame) {
            self.registers.words[number] = place;
            self.unread |= 1 << number;
            slot = place as usize;
        }
        self.registers.words[RSP as usize] = frame;
        self.read(RETURN_ADDRESS, read)?;
        Some(slot)
    }

    fn read(&mut self, register: u16, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<()> {
        let bit = 1 << register;
        if self.unread & bit != 0 {
            let word = &mut self.registers.words[register as usize];
            *word = read(*word)?;
            self.unread &= !bit;
        }
        Some(())
    }

    fn read_all(&mut self, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<()> {
        (0..REGISTERS as u16).try_for_each(|register| self.read(register, read))
    }
}

/// A frame's caller.
struct Caller {
    registers: Registers,
    /// Where its return address lies.
    slot: usize,
    /// A signal interrupted it; it did not call.
    interrupted: bool,
}

enum Step {
    To(Caller),
    /// There is no description of the code.
    Unknown,
    /// This is the outermost frame, or the description is not understood.
    End,
}

/// `None`: the stack cannot be read there.
fn by_rule(rule: Rule, registers: &Registers, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Step> {
    if rule.is_end() {
        return Some(Step::End);
    }
    let frame = rule.frame(&registers.words);
    let mut caller = registers.clone();
    caller.words[RSP as usize] = frame;
    let mut slot = 0;
    for (number, place) in rule.saved(frame) {
        caller.words[number] = read(place)?;
        slot = place as usize;
    }
    Some(Step::To(Caller { registers: caller, slot, interrupted: false }))
}

/// Reads the description. `None`: it cannot be read.
#[cold]
#[inline(never)]
fn described(
    module: &modules::Object,
    registers: &Registers,
    address: u64,
    read: &mut impl FnMut(u64) -> Option<u64>,
) -> Option<Step> {
    let slice = |start: usize| {
        // Behind the end of this segment may be a gap.
        let end = modules::find(start)?.end;
        let bytes = core::ptr::with_exposed_provenance::<u8>(start);
        // SAFETY: the address lies in a module that has code on this thread's stack, so it stays loaded. What the
        // description refers to lies in its mapping.
        Some(unsafe { core::slice::from_raw_parts(bytes, end - start) })
    };
    let header_at = module.eh_frame_header.addr();
    let bases = BaseAddresses::default().set_eh_frame_hdr(header_at as u64);
    let header = EhFrameHdr::new(slice(header_at)?, NativeEndian).parse(&bases, 8).ok()?;
    let Pointer::Direct(frames_at) = header.eh_frame_ptr() else { return None };
    let frames: EhFrame<Slice> = EhFrame::new(slice(frames_at as usize)?, NativeEndian);
    let bases = bases.set_eh_frame(frames_at);
    let table = header.table()?;
    let Ok(function) = table.fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset) else {
        return Some(Step::Unknown);
    };
    let encoding = function.cie().encoding();
    let mut context = UnwindContext::<usize, Small>::new_in();
    let row = function.unwind_info_for_address(&frames, &bases, &mut context, address).ok()?;
    let is_outermost = matches!(row.register(Register(RETURN_ADDRESS)), Some(RegisterRule::Undefined));
    let rule = if is_outermost { Some(Rule::END) } else { Rule::new(row) };
    if !function.is_signal_trampoline()
        && let Some(rule) = rule
    {
        rules::remember(module, address, rule);
        return by_rule(rule, registers, read);
    }
    let frame = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            registers.get(*register)?.wrapping_add_signed(*offset)
        }
        CfaRule::Expression(expression) => {
            evaluate(expression.get(&frames).ok()?.0, encoding, None, registers, read)?
        }
    };
    let mut caller = registers.clone();
    caller.words[RSP as usize] = frame;
    let mut slot = None;
    for number in 0..REGISTERS as u16 {
        // Where the value lies, or the value itself.
        let place = match row.register(Register(number)) {
            None | Some(RegisterRule::SameValue) => continue,
            Some(RegisterRule::Undefined) if number == RETURN_ADDRESS => return Some(Step::End),
            Some(RegisterRule::Undefined) => continue,
            Some(RegisterRule::Offset(offset)) => frame.wrapping_add_signed(offset),
            Some(RegisterRule::Expression(expression)) => {
                evaluate(expression.get(&frames).ok()?.0, encoding, Some(frame), registers, read)?
            }
            Some(RegisterRule::ValOffset(offset)) => {
                caller.words[number as usize] = frame.wrapping_add_signed(offset);
                continue;
            }
            _ => return None,
        };
        caller.words[number as usize] = read(place)?;
        if number == RETURN_ADDRESS {
            slot = Some(place as usize);
        }
    }
    Some(Step::To(Caller { registers: caller, slot: slot?, interrupted: function.is_signal_trampoline() }))
}

/// The value of an expression, which begins with `first` on its stack.
fn evaluate(
    expression: Slice,
    encoding: Encoding,
    first: Option<u64>,
    registers: &Registers,
    read: &mut impl FnMut(u64) -> Option<u64>,
) -> Option<u64> {
    let mut evaluation = Evaluation::<Slice, Small>::new_in(expression, encoding);
    if let Some(first) = first {
        evaluation.set_initial_value(first);
    }
    let mut state = evaluation.evaluate().ok()?;
    loop {
        state = match state {
            EvaluationResult::Complete => return evaluation.value_result()?.to_u64(u64::MAX).ok(),
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                evaluation.resume_with_memory(Value::Generic(read(address)?)).ok()?
            }
            EvaluationResult::RequiresRegister { register, .. } => {
                evaluation.resume_with_register(Value::Generic(registers.get(register)?)).ok()?
            }
            _ => return None,
        };
    }
}

/// The caller's registers, if the register for frame pointers has one: it points above the stack pointer, to the caller's
/// frame pointer, behind which the return address lies.
fn by_frame_pointer(registers: &Registers, read: &mut impl FnMut(u64) -> Option<u64>) -> Option<Caller> {
    let pointer = registers.words[RBP as usize];
    if pointer < registers.words[RSP as usize] {
        return None;
    }
    let mut caller = registers.clone();
    caller.words[RBP as usize] = read(pointer)?;
    caller.words[RETURN_ADDRESS as usize] = unsigned(read(pointer + 8)?);
    caller.words[RSP as usize] = pointer + 16;
    Some(Caller { registers: caller, slot: pointer as usize + 8, interrupted: false })
}

/// A return address without the signature that AArch64's processors put into its highest bits (pointer authentication).
fn unsigned(address: u64) -> u64 {
    if cfg!(target_arch = "aarch64") { address & ((1 << 48) - 1) } else { address }
}
