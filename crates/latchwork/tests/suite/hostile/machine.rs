//! The machine: what locks and reclamation are written over.

use super::*;

pub fn native() {
    Native::init();
    let light = Native::has_light_fences();
    // This call comes too late: fences that threads rely on stay as they are.
    Native::avoid_membarrier();
    assert_eq!(light, Native::has_light_fences());
    Native::set_exit(|| ());
    std::thread::spawn(Native::notice_exit).join().unwrap();
    #[cfg(target_arch = "x86_64")]
    assert_ne!(latchwork::machine::native::tls::reader_row_offset(), 0);
    // Addresses without memory: a wake uses only the number.
    let (word, nowhere) = (AtomicU32::new(7), without_provenance(NOWHERE));
    let (queue, empty) = (AtomicPtr::new(without_provenance_mut(NOWHERE)), AtomicPtr::default());
    // Memcheck reports an error where the kernel refuses the address.
    if std::env::var(SUBJECT).as_deref() == Ok(NATIVELY) {
        Native::wake(nowhere, u32::MAX);
        Native::wake(null(), 0);
        Native::requeue(nowhere, 0, &word);
    }
    Native::requeue(&raw const word, 8, &word);
    for deadline in deadlines() {
        Native::wait(&word, 7, Some(deadline));
        assert!(deadline.left::<Native>() <= 1000 || !deadline.passed::<Native>());
    }
    Native::wait(&word, 8, None);
    assert_eq!(Native::spin_until(&word, Relaxed, |_| true), 7);
    assert_eq!(Native::spin_for(&word, Relaxed, 0, |_| false), None);
    Native::pause(0);
    Native::has_one_processor();
    Native::prefetch(|| without_provenance::<u64>(NOWHERE));
    Native::yield_now();
    Native::doze(0);
    Native::doze_at(&word, 0, u64::MAX); // the word does not hold 0
    assert!(Native::hints(0) > 0 && Native::hints(u32::MAX) > 0);
    assert_eq!(Native::patience(u32::MAX), u32::MAX);
    Native::light_fence();
    Native::lightest_fence();
    Native::full_fence();
    assert!(Native::prepare_fences() || !Native::heavy_fence());
    assert_eq!(Native::acquire_swap(&word, 0), 7);
    word.store(u32::MAX, Relaxed);
    assert!(!Native::acquire_zero(&word, 1) && Native::release_if(&queue, &word, u32::MAX));
    assert!(!Native::release_if(&queue, &word, 1) && Native::acquire_zero(&word, 2));
    assert!(Native::release_if(&empty, &word, 1) && Native::acquire_zero(&word, 0));
    assert!(Native::now(Clock::Realtime) > 0 && Native::thread_id() != 0);
    assert_eq!(Native::identity(usize::MAX), usize::MAX);
    assert!(Native::numa_node() < Native::numa_nodes() && Native::cpu() < Native::cpus());
    for (from, to) in [(0, u32::MAX), (u32::MAX, 0), (u32::MAX, u32::MAX), (63, 64)] {
        Native::numa_hops(from, to);
    }
    Native::note_node();
    assert!(!Native::is_real_time(), "the tests run under a real-time policy");
    assert!(Native::safety_timeout(u64::MAX).is_none_or(|end| end.nanos == u64::MAX));
    assert!(Native::torn_timeout(u64::MAX).is_none_or(|end| end.nanos == u64::MAX));
    let nodes: Vec<_> = (0..100).map(|_| Native::acquire_node()).collect();
    // The nodes belong to the caller, which may write anything there. They are leaked.
    nodes.iter().for_each(|node| node.links[0].store(without_provenance_mut(NOWHERE), Relaxed));
    let all: Vec<AtomicUsize> = (0..67).map(AtomicUsize::new).collect();
    for length in 0..all.len() {
        assert_eq!(Native::find(&all[..length], length), None);
        assert_eq!(Native::find(&all[length..], 66), Some(66 - length));
    }
    assert!(Deadline::after::<Native>(u64::MAX).nanos == u64::MAX);
    words::<u32, AtomicU32>(u32::MAX, 0);
    words::<u64, AtomicU64>(u64::MAX, 0);
}

fn words<T: Copy + PartialEq + std::fmt::Debug, W: Arith<T>>(most: T, zero: T) {
    let word = W::new(most);
    word.fetch_add(most, Relaxed);
    word.fetch_sub(most, Relaxed);
    assert_eq!(word.fetch_or(zero, Relaxed), most);
    assert_eq!(word.fetch_and(zero, Relaxed), most);
    assert_eq!(word.compare_exchange(most, zero, Relaxed, Relaxed), Err(zero));
    word.store(most, Relaxed);
    assert_eq!((word.swap(zero, Relaxed), word.load(Relaxed)), (most, zero));
    assert!(refused(|| _ = word.load(Release)) && refused(|| word.store(zero, Acquire)));
}

pub fn records() {
    let leak = || -> &'static [Record<Native>] { Vec::leak((0..3).map(|_| Record::new()).collect()) };
    type Records = Group<Native, Record<Native>>;
    assert!(refused(|| _ = Records::new(&[], 0, None)), "no entries");
    let older: &'static Records = Box::leak(Box::new(Group::new(leak(), u32::MAX, None)));
    let group: &'static Records = Box::leak(Box::new(Group::new(leak(), 0, Some(older))));
    assert_eq!((group.groups().count(), older.owned().count(), group.owned().count()), (2, 3, 3));
    assert_eq!((group.owners(), older.take().map(Record::as_ptr)), (0, None));
    assert!(group.take().is_some() && !group.claim(0));
    assert!(refused(|| _ = group.claim(usize::MAX)) || cfg!(not(debug_assertions)));
    assert_eq!(group.index_of(without_provenance(NOWHERE)), None);
    assert!(refused(|| group.give_back(&older.entries()[0])), "another's");
    group.give_back(&group.entries()[0]);
    group.give_back(&group.entries()[0]);
    group.forget(null());
    group.forget(without_provenance(NOWHERE));
    assert_eq!(group.taken().count(), 0);
    group.link(None);
    assert_eq!(group.groups().count(), 1);
    assert!(!group.as_ptr().is_null());
    // A record without an owner may hold any number.
    let record = &group.entries()[1];
    record.section.store(u64::MAX, Relaxed);
    assert!(!record.is_idle() && Native::place(record).is_none());
    record.reset();
    assert!(record.is_idle() && record.hazards.all().count() == record.hazards.blocks().count() * 2);
    assert_eq!(Hazards::<Native>::new().groups.len(), 2);
    Native::report_stall(Stall { thread: u32::MAX, nanos: u64::MAX, origin: None });
    assert!(Native::generation() < 1 << 30);
    let clocks = Clocks::<Native>::new();
    clocks.grace.store(u64::MAX, Relaxed);
    let rows: &'static [ReaderRow<Native>] = Vec::leak((0..3).map(|_| ReaderRow::new()).collect());
    let group: &'static Group<Native, ReaderRow<Native>> = Box::leak(Box::new(Group::new(rows, 0, None)));
    rows[0].slots[0].store(NOWHERE, Relaxed);
    assert!(!rows[0].is_empty() && !rows[0].as_ptr().is_null());
    assert!(group.take_idle().is_some());
    group.leave(&rows[2]);
    group.leave(&rows[0]);
    assert_eq!(group.taken().count(), 1);
    let left = group::Entry::<Native>::left(&rows[0]).load(Relaxed) == 1;
    assert!(left && !group::Entry::<Native>::is_idle(&rows[0]));
    assert!(!QNode::<Native>::new().as_ptr().is_null());
}
