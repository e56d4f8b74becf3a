//! Clients of the reclamation strategies.
//!
//! An object stands in loom's `UnsafeCell`. loom reports a race if the object is reclaimed while a reader is in its
//! section, or if the reader's loads are not ordered before the reclamation.

use crate::machine::{Loom, Mistake, Model, deep, exit_thread};
use latchwork::machine::{Machine, Records, Word};
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::{HazardDomain, HazardPointer};
use latchwork::reclaim::interval::IntervalDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::RcuDomain;
use latchwork::reclaim::{GracePeriod, Guard, Header, Reader, Reclaim, Retire};
use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::*;
use std::cell::RefCell;
use std::ptr::null_mut;

mod cells;
mod pairs;

/// What is shared: `true` until it is reclaimed.
#[repr(C)]
struct Object {
    header: Header,
    alive: UnsafeCell<bool>,
}

// SAFETY: `repr(C)`, the header first; loom looks at how the cell is used.
unsafe impl Retire for Object {
    unsafe fn reclaim(this: *mut Self) {
        // SAFETY: if a thread still uses the object, loom reports that.
        unsafe { (*this).alive.with_mut(|alive| *alive = false) };
        // Kept, so that a use after this is one that loom reports, and not undefined.
        GRAVES.with_borrow_mut(|graves| graves.push(this));
    }
}
// SAFETY: loom checks how the cell is used.
unsafe impl Sync for Object {}
// SAFETY: an object has nothing of its thread's.
unsafe impl Send for Object {}

std::thread_local! {
    /// The reclaimed objects of an execution.
    static GRAVES: RefCell<Vec<*mut Object>> = const { RefCell::new(Vec::new()) };
}

/// An object, which is written to after it is made: loom takes a cell's creation for a part of the thread's previous step.
fn object<D: Reclaim>() -> *mut Object {
    let mut object = Box::new(Object { header: Header::new(), alive: UnsafeCell::new(false) });
    // SAFETY: no other thread has it.
    object.alive.with_mut(|alive| unsafe { *alive = true });
    D::note_new(&mut *object);
    Box::into_raw(object)
}

struct Shared<D> {
    domain: D,
    root: <Loom as Machine>::Ptr<Object>,
}

fn start<D: Reclaim<Machine = Loom>>() -> Shared<D> {
    for object in GRAVES.take() {
        // SAFETY: made by `object`, and of an execution that is over.
        drop(unsafe { Box::from_raw(object) });
    }
    Shared { domain: D::new_in(), root: Word::new(object::<D>()) }
}

fn look(object: *mut Object) {
    // SAFETY: the caller protects it; if that fails, loom reports it.
    if let Some(object) = unsafe { object.as_ref() } {
        // SAFETY: only read.
        let alive = object.alive.with(|alive| unsafe { *alive });
        assert!(alive, "a reader saw a reclaimed object");
    }
}

fn reads<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    let reader = shared.domain.reader();
    let guard = reader.enter();
    look(guard.protect(0, &shared.root));
}

/// Two sections, and between them a quiescent state.
fn reads_twice<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    let mut reader = shared.domain.reader();
    look(reader.enter().protect(0, &shared.root));
    reader.quiescent();
    let guard = reader.enter();
    look(guard.protect(0, &shared.root));
}

/// A quiescent state, and no section.
fn announces<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    shared.domain.reader().quiescent();
}

/// Offline in between.
fn reads_and_rests<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    let mut reader = shared.domain.reader();
    look(reader.enter().protect(0, &shared.root));
    reader.offline(loom::thread::yield_now);
    look(reader.enter().protect(0, &shared.root));
}

/// A section in a section is over when the outer one is.
fn reads_nested<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    let reader = shared.domain.reader();
    let guard = reader.enter();
    let object = guard.protect(0, &shared.root);
    drop(reader.enter());
    look(object);
}

/// Two pointers in one section.
fn reads_on<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    let reader = shared.domain.reader();
    let guard = reader.enter();
    let first = guard.protect(0, &shared.root);
    look(guard.protect(1, &shared.root));
    look(first);
}

fn reads_and_exits<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    reads(shared);
    exit_thread();
    reads(shared);
}

/// Uses an object after another load, so that a grace period may open in between; then leaves its record to the next owner.
fn reads_on_and_exits<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    reads_on(shared);
    exit_thread();
    reads(shared);
}

/// A hazard pointer of its own.
fn reads_with_a_pointer(shared: &Shared<HazardDomain<Loom>>) {
    let mut hazard = HazardPointer::<Loom>::new_in();
    look(hazard.protect_raw(&shared.root));
}

/// What a hazard pointer protects stays when its thread exits and another thread has it.
struct Parcel {
    shared: Shared<HazardDomain<Loom>>,
    parcel: <Loom as Machine>::Ptr<HazardPointer<Loom>>,
}

fn start_parcel() -> Parcel {
    Parcel { shared: start(), parcel: Word::new(null_mut()) }
}

fn sends_a_pointer(this: &Parcel) {
    let mut hazard = HazardPointer::<Loom>::new_in();
    look(hazard.protect_raw(&this.shared.root));
    exit_thread();
    this.parcel.store(Box::into_raw(Box::new(hazard)), Release);
}

fn receives_a_pointer(this: &Parcel) {
    let hazard = this.parcel.swap(null_mut(), Acquire);
    if !hazard.is_null() {
        // SAFETY: the other thread has made it by a box, and left it.
        let hazard = unsafe { Box::from_raw(hazard) };
        look(hazard.protected().cast());
    }
}

fn retires_parcel(this: &Parcel) {
    retires(&this.shared);
}

fn clean_parcel(this: &Parcel) {
    receives_a_pointer(this);
    clean(&this.shared);
}

/// A thread that exits with a reader, which a late destructor uses.
fn keeps_its_reader<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    let mut reader = shared.domain.reader();
    exit_thread();
    reader.offline(loom::thread::yield_now);
    look(reader.enter().protect(0, &shared.root));
}

/// Removes the object, unless another thread has.
fn remove<D>(shared: &Shared<D>, new: *mut Object) -> *mut Object {
    shared.root.swap(new, AcqRel)
}

fn retires_only<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    let object = remove(shared, null_mut());
    if !object.is_null() {
        // SAFETY: this thread's exchange has removed it.
        unsafe { shared.domain.retire(object) };
    }
}

fn retires<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    retires_only(shared);
    shared.domain.collect();
}

fn replaces<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    // SAFETY: this thread's exchange removes it.
    unsafe { shared.domain.retire(remove(shared, object::<D>())) };
    shared.domain.barrier();
}

/// Replaces twice, and has reclaimed what can be in between.
fn replaces_on<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    for _ in 0..2 {
        // SAFETY: this thread's exchange removes it.
        unsafe { shared.domain.retire(remove(shared, object::<D>())) };
        shared.domain.collect();
    }
}

/// Retires one, then says so (by removing the root), and retires that.
fn retires_two<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    // SAFETY: no other thread has it.
    unsafe { shared.domain.retire(object::<D>()) };
    let root = remove(shared, null_mut());
    // SAFETY: this thread's exchange has removed it.
    unsafe { shared.domain.retire(root) };
}

/// Leaves a list behind that no thread has.
fn retires_and_exits<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    retires_two(shared);
    exit_thread();
}

/// Waits for what others have retired.
fn waits<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    let one = shared.root.load(Acquire).is_null();
    shared.domain.barrier();
    let reclaimed = GRAVES.with_borrow(Vec::len);
    assert!(!one || reclaimed > 0, "what was retired before the barrier is not reclaimed");
}

/// Everything that `retires_two` has retired is reclaimed.
fn clean_of_two<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    shared.domain.barrier();
    assert_eq!(shared.domain.garbage().objects, 0);
    assert_eq!(GRAVES.with_borrow(Vec::len), 2, "objects were lost");
}

/// As the default, for [`RcuDomain::retire_ordered`].
unsafe extern "C-unwind" fn reclaim_by_header(header: *mut Header) {
    // SAFETY: the header is an object's, which is reclaimed once: so the domain promises.
    unsafe { Object::reclaim(header.cast()) };
}

/// Retires an object, and waits for its reclamation in a section that begins later. Then it reclaims nothing that the
/// section has found.
fn waits_inside(shared: &Shared<RcuDomain<Loom>>) {
    let removed = remove(shared, object::<RcuDomain<Loom>>());
    // SAFETY: this thread's exchange has removed it. It begins with its header.
    unsafe { shared.domain.retire_ordered(removed.cast(), 32, reclaim_by_header) };
    let reader = shared.domain.reader();
    let guard = reader.enter();
    let found = guard.protect(0, &shared.root);
    shared.domain.barrier_anywhere();
    assert_eq!(GRAVES.with_borrow(Vec::len), 1, "what was retired before the section is not reclaimed");
    look(found);
}

fn synchronizes<D: GracePeriod<Machine = Loom>>(shared: &Shared<D>) {
    let object = remove(shared, object::<D>());
    shared.domain.synchronize();
    // SAFETY: no reader has it any more.
    unsafe { Object::reclaim(object) };
}

/// Waits in a thread that has a record already: then a reader whose record is newer sees, by the full fences, what was
/// removed before.
fn synchronizes_later<D: GracePeriod<Machine = Loom>>(shared: &Shared<D>) {
    // SAFETY: the record is not written to.
    unsafe { Loom::record() };
    synchronizes(shared);
}

/// Waits in a domain of its own: grace periods of all domains share what they find.
fn synchronizes_apart<D: GracePeriod<Machine = Loom>>(shared: &Shared<D>) {
    let domain = D::new_in();
    let object = remove(shared, object::<D>());
    domain.synchronize();
    // SAFETY: no reader has it any more.
    unsafe { Object::reclaim(object) };
}

/// A thread that gives its record back while it is in a section, if its machine makes that mistake.
fn exits_inside<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    let reader = shared.domain.reader();
    let guard = reader.enter();
    let object = guard.protect(0, &shared.root);
    exit_thread();
    look(object);
}

fn expedites(shared: &Shared<RcuDomain<Loom>>) {
    let object = remove(shared, object::<RcuDomain<Loom>>());
    shared.domain.synchronize_expedited();
    // SAFETY: no reader has it any more.
    unsafe { Object::reclaim(object) };
}

fn polls(shared: &Shared<RcuDomain<Loom>>) {
    let object = remove(shared, object::<RcuDomain<Loom>>());
    let cookie = shared.domain.start_poll();
    if !shared.domain.poll(cookie) {
        shared.domain.synchronize();
        assert!(shared.domain.poll(cookie), "a grace period has passed");
    }
    // SAFETY: no reader has it any more.
    unsafe { Object::reclaim(object) };
}

/// Afterwards everything can be reclaimed.
fn clean<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    let last = remove(shared, null_mut());
    if !last.is_null() {
        // SAFETY: the threads are gone.
        unsafe { Object::reclaim(last) };
    }
    shared.domain.barrier();
    assert_eq!(shared.domain.garbage().objects, 0);
}

type Rcu = Shared<RcuDomain<Loom>>;
type Counted = Shared<CountedDomain<Loom>>;
type Epoch = Shared<EpochDomain<Loom>>;
type Hazard = Shared<HazardDomain<Loom>>;
type HazardFence = Shared<HazardDomain<Loom, true>>;
type Qsbr = Shared<QsbrDomain<Loom>>;
/// Each era has a number of birth of its own.
type Interval = Shared<IntervalDomain<Loom, 0>>;

/// A model with records, up to so many preemptions.
fn bounded(preemptions: usize) -> Model {
    Model::new(preemptions).with_records()
}

fn check<T: Send + Sync + 'static>(
    name: &str,
    model: Model,
    start: fn() -> T,
    threads: &[fn(&T)],
    after: fn(&T),
) {
    crate::report(name, || model.check(start, threads, after));
}

#[test]
fn rcu() {
    check("rcu", bounded(2), start, &[synchronizes, reads as fn(&Rcu)], clean);
    check("rcu", bounded(2), start, &[retires, reads_nested as fn(&Rcu)], clean);
    check("rcu", bounded(2), start, &[replaces, reads_and_exits as fn(&Rcu)], clean);
    check("rcu", bounded(2), start, &[replaces, keeps_its_reader as fn(&Rcu)], clean);
    check("rcu", bounded(1), start, &[synchronizes, expedites, reads as fn(&Rcu)], clean);
    check("rcu", bounded(1), start, &[polls, synchronizes, reads as fn(&Rcu)], clean);
    check("rcu", bounded(1), start, &[synchronizes, synchronizes_apart, reads as fn(&Rcu)], clean);
    // Without a preemption this shows little: it finds neither a period that ends for later tickets (the line of `expedites` does),
    // nor objects that are reclaimed with those of an earlier ticket.
    check("rcu", bounded(usize::from(deep())), start, &[replaces, replaces, reads as fn(&Rcu)], clean);
    check("rcu", bounded(2), start, &[synchronizes, reads_on_and_exits as fn(&Rcu)], clean);
}

/// Threads that rest, and get their records meanwhile: full fences make up for an asymmetric pair that does nothing, and are needed.
#[test]
fn rcu_at_rest() {
    let model = Model::new(2).with_fresh_records();
    check("rcu at rest", model, start, &[synchronizes, reads_nested as fn(&Rcu)], clean);
    check("rcu at rest", model, start, &[synchronizes, reads_and_exits as fn(&Rcu)], clean);
    check("rcu at rest", model, start, &[retires, reads_twice as fn(&Rcu)], clean);
    use Mistake::*;
    for mistake in [NoHeavyFence, NoLightFence] {
        check("rcu at rest", model.with_mistake(mistake), start, &[synchronizes, reads as fn(&Rcu)], clean);
    }
    for mistake in [NoFullFence, RelaxedRelease, RelaxedAcquire] {
        crate::report("rcu at rest", || {
            let failure =
                model.with_mistake(mistake).check_fails(start, &[synchronizes, reads as fn(&Rcu)], |_| ());
            format!("{mistake:?}: {failure}")
        });
    }
    crate::report("rcu at rest", || {
        let model = model.with_mistake(NoHeavyFence);
        model.check_fails(start, &[synchronizes, reads_twice as fn(&Rcu)], |_| ())
    });
}

/// A barrier in a section, beside a reader.
#[test]
fn rcu_ordered() {
    check("rcu ordered", bounded(2), start, &[waits_inside, reads as fn(&Rcu)], clean);
    use Mistake::*;
    for mistake in [NoHeavyFence, NoLightFence, RelaxedRelease, RelaxedAcquire] {
        crate::report("rcu ordered", || {
            let model = bounded(2).with_mistake(mistake);
            let failure = model.check_fails(start, &[waits_inside, reads as fn(&Rcu)], |_| ());
            format!("{mistake:?}: {failure}")
        });
    }
}

#[test]
fn qsbr() {
    check("qsbr", bounded(2), start, &[synchronizes, reads_twice as fn(&Qsbr)], clean);
    check("qsbr", bounded(2), start, &[synchronizes, reads_and_rests as fn(&Qsbr)], clean);
    check("qsbr", bounded(2), start, &[replaces, reads_and_exits as fn(&Qsbr)], clean);
    check("qsbr", bounded(1), start, &[replaces, keeps_its_reader as fn(&Qsbr)], clean);
    check("qsbr", bounded(1), start, &[replaces, reads_twice, reads as fn(&Qsbr)], clean);
}

/// Threads that vouch for each other: the first to come, when the other has reached the time, or is offline. 1 preemption; with
/// `LATCHWORK_LOOM_DEEP` 2, and the last mistake, which takes 13 s to find. (`latchwork-sim` finds it every day.)
#[test]
fn qsbr_tree() {
    let model = Model::new(2).grouped();
    let sound = if deep() { model } else { Model::new(1).grouped() };
    check("qsbr tree", sound, start, &[synchronizes, announces, reads as fn(&Qsbr)], clean);
    use Mistake::*;
    let mistakes = [NoFullFence, RelaxedRelease, RelaxedAcquire, BlindVoucher];
    for &mistake in &mistakes[..if deep() { 4 } else { 3 }] {
        crate::report("qsbr tree", || {
            let model = model.with_mistake(mistake);
            let failure = model.check_fails(start, &[synchronizes, announces, reads as fn(&Qsbr)], |_| ());
            format!("{mistake:?}: {failure}")
        });
    }
}

#[test]
fn epoch() {
    check("epoch", bounded(2), start, &[synchronizes, reads as fn(&Epoch)], clean);
    check("epoch", bounded(2), start, &[retires, reads_nested as fn(&Epoch)], clean);
    check("epoch", bounded(2), start, &[replaces, reads_and_exits as fn(&Epoch)], clean);
    check("epoch", bounded(1), start, &[synchronizes, reads, reads as fn(&Epoch)], clean);
    check("epoch", bounded(1), start, &[synchronizes, synchronizes, reads as fn(&Epoch)], clean);
}

#[test]
fn interval() {
    check("interval", bounded(2), start, &[retires, reads as fn(&Interval)], clean);
    check("interval", bounded(2), start, &[replaces_on, reads_on as fn(&Interval)], clean);
    check("interval", bounded(2), start, &[replaces, reads_nested as fn(&Interval)], clean);
    check("interval", bounded(2), start, &[replaces, reads_and_exits as fn(&Interval)], clean);
    check("interval", bounded(1), start, &[replaces, keeps_its_reader as fn(&Interval)], clean);
    check("interval", bounded(1), start, &[replaces_on, reads, reads_on as fn(&Interval)], clean);
}

#[test]
fn hazard() {
    check("hazard", bounded(2), start, &[retires, reads as fn(&Hazard)], clean);
    check("hazard", bounded(2), start, &[replaces, reads_nested as fn(&Hazard)], clean);
    check("hazard", bounded(2), start, &[replaces, reads_and_exits as fn(&Hazard)], clean);
    check("hazard", bounded(2), start, &[replaces, keeps_its_reader as fn(&Hazard)], clean);
    check("hazard", bounded(1), start, &[retires, retires, reads as fn(&Hazard)], clean);
}

/// Hazard pointers that belong to no thread.
#[test]
fn hazard_pointers() {
    check("hazard pointer", bounded(2), start, &[retires, reads_with_a_pointer as fn(&Hazard)], clean);
    let both = &[reads_with_a_pointer, reads_with_a_pointer as fn(&Hazard)];
    check("hazard pointer", bounded(1), start, &[replaces, both[0], both[1]], clean);
    let parcel = &[retires_parcel, sends_a_pointer, receives_a_pointer];
    check("hazard pointer", bounded(1), start_parcel, parcel, clean_parcel);
    use Mistake::*;
    for mistake in [NoHeavyFence, NoLightFence, RelaxedRelease, RelaxedAcquire] {
        crate::report("hazard pointer", || {
            let model = bounded(2).with_mistake(mistake);
            let failure = model.check_fails(start, &[retires, reads_with_a_pointer as fn(&Hazard)], |_| ());
            format!("{mistake:?}: {failure}")
        });
    }
}

/// With full fences, which make up for an asymmetric pair that does nothing, and are needed.
#[test]
fn hazard_fence() {
    check("hazard-fence", bounded(2), start, &[retires, reads as fn(&HazardFence)], clean);
    check("hazard-fence", bounded(2), start, &[replaces, reads_and_exits as fn(&HazardFence)], clean);
    for mistake in [Mistake::NoHeavyFence, Mistake::NoLightFence] {
        let model = bounded(2).with_mistake(mistake);
        check("hazard-fence", model, start, &[retires, reads as fn(&HazardFence)], clean);
    }
    for mistake in [Mistake::NoFullFence, Mistake::RelaxedRelease, Mistake::RelaxedAcquire] {
        crate::report("hazard-fence", || {
            let model = bounded(2).with_mistake(mistake);
            model.check_fails(start, &[retires, reads as fn(&HazardFence)], |_| ())
        });
    }
}

#[test]
fn counted() {
    check("counted", bounded(2), start, &[retires, reads as fn(&Counted)], clean);
    check("counted", bounded(2), start, &[replaces, reads_nested as fn(&Counted)], clean);
    check("counted", bounded(1), start, &[retires, retires, reads as fn(&Counted)], clean);
    for mistake in [Mistake::RelaxedRelease, Mistake::RelaxedAcquire] {
        crate::report("counted", || {
            let model = bounded(2).with_mistake(mistake);
            model.check_fails(start, &[retires, reads as fn(&Counted)], |_| ())
        });
    }
}

/// After a pause, the call that retires an object also reclaims what can be reclaimed.
#[test]
fn after_a_pause() {
    let [twice, once] = [2, 1].map(|preemptions| bounded(preemptions).after_a_pause());
    check("rcu, late", twice, start, &[retires_only, reads as fn(&Rcu)], clean);
    check("rcu, late", once, start, &[retires_only, retires_only, reads as fn(&Rcu)], clean);
    check("epoch, late", twice, start, &[retires_only, reads as fn(&Epoch)], clean);
    check("qsbr, late", twice, start, &[retires_only, reads as fn(&Qsbr)], clean);
    check("interval, late", twice, start, &[retires_only, reads as fn(&Interval)], clean);
    check("hazard, late", twice, start, &[retires_only, reads as fn(&Hazard)], clean);
    check("counted, late", twice, start, &[retires_only, reads as fn(&Counted)], clean);
    for mistake in [Mistake::NoHeavyFence, Mistake::RelaxedAcquire] {
        crate::report("rcu, late", || {
            twice.with_mistake(mistake).check_fails(start, &[retires_only, reads as fn(&Rcu)], |_| ())
        });
    }
}

/// A thread that retires, in a list of its own, beside one that takes from it.
#[test]
fn lists() {
    check("lists", bounded(2), start, &[retires_two, waits as fn(&Qsbr)], clean_of_two);
    check("lists", bounded(2), start, &[retires_and_exits, waits as fn(&Counted)], clean_of_two);
    check("lists", bounded(1), start, &[retires_two, waits as fn(&Hazard)], clean_of_two);
    use Mistake::*;
    for mistake in [NoHeavyFence, NoLightFence, NoSecondLook, RelaxedRelease, RelaxedAcquire] {
        crate::report("lists", || {
            let model = bounded(2).with_mistake(mistake);
            let failure = model.check_fails(start, &[retires_two, waits as fn(&Counted)], clean_of_two);
            format!("{mistake:?}: {failure}")
        });
    }
}

/// A thread waits for what another one has retired while the operating system refuses heavy fences.
#[test]
fn refused_fences() {
    fn check_all<D: Reclaim<Machine = Loom> + Send + Sync + 'static>() {
        for refusals in 1..4 {
            let threads: &[fn(&Shared<D>)] = &[retires_two, waits];
            check("refused fences", bounded(1).refusing(refusals), start, threads, clean_of_two);
        }
    }
    check_all::<CountedDomain<Loom>>();
    check_all::<HazardDomain<Loom>>();
    check_all::<HazardDomain<Loom, true>>();
    check_all::<IntervalDomain<Loom, 0>>();
    check_all::<RcuDomain<Loom>>();
    check_all::<QsbrDomain<Loom>>();
    check_all::<EpochDomain<Loom>>();
}

/// Every strategy relies on each promise of its machine.
#[test]
fn mistakes() {
    use Mistake::*;
    fn fails<T: Send + Sync + 'static>(name: &str, mistake: Mistake, start: fn() -> T, threads: &[fn(&T)]) {
        crate::report(name, || {
            let failure = bounded(2).with_mistake(mistake).check_fails(start, threads, |_| ());
            format!("{mistake:?}: {failure}")
        });
    }
    fails("qsbr", SkipsReader, start, &[synchronizes_later, reads_twice as fn(&Qsbr)]);
    for mistake in [UntakenRecord, NoFullFence, RelaxedRelease, RelaxedAcquire] {
        fails("qsbr", mistake, start, &[synchronizes, reads_twice as fn(&Qsbr)]);
    }
    for mistake in [SkipsReader, UntakenRecord, NoHeavyFence, NoLightFence, RelaxedRelease, RelaxedAcquire] {
        fails("rcu", mistake, start, &[synchronizes, reads as fn(&Rcu)]);
        fails("epoch", mistake, start, &[synchronizes, reads as fn(&Epoch)]);
        fails("hazard", mistake, start, &[retires, reads as fn(&Hazard)]);
        fails("interval", mistake, start, &[replaces_on, reads_on as fn(&Interval)]);
        fails("cell", mistake, cells::start_cell, &[cells::cell_replaces, cells::cell_reads]);
    }
    fails("rcu", EarlyReturn, start, &[synchronizes, exits_inside as fn(&Rcu)]);
    fails("hazard", EarlyReturn, start, &[retires, exits_inside as fn(&Hazard)]);
    fails("interval", EarlyReturn, start, &[retires, exits_inside as fn(&Interval)]);
    fails("rcu", EarlyReturn, start, &[synchronizes, keeps_its_reader as fn(&Rcu)]);
    fails("qsbr", EarlyReturn, start, &[synchronizes, keeps_its_reader as fn(&Qsbr)]);
    fails("hazard", EarlyReturn, start, &[retires, keeps_its_reader as fn(&Hazard)]);
}
