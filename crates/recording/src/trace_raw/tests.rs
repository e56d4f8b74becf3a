use super::*;

/// A file of one thread and one mutex, whose ticks are nanoseconds, with these events: operation, gap and wait. `ended`: when the
/// process ended; 0: it was killed.
fn with_events(name: &str, ended: u64, events: &[(u32, u32, u32)]) -> Raw {
    with_chunk(name, ended, events, 16, 0)
}

/// The same, with room for so many units. `next`: the chunk behind the first one, plus one.
fn with_chunk(name: &str, ended: u64, events: &[(u32, u32, u32)], capacity: u32, next: u32) -> Raw {
    let path = std::env::temp_dir().join(format!("latchwork-{name}-{}.trace", std::process::id()));
    let file = File::create(&path).expect("the directory is there");
    let word = |at: usize, value: u32| file.write_all_at(&value.to_ne_bytes(), at as u64).expect("room");
    let long = |at: usize, value: u64| file.write_all_at(&value.to_ne_bytes(), at as u64).expect("room");
    file.set_len(trace::length(16) as u64).expect("room");
    long(offset_of!(Header, magic), MAGIC);
    for (ticks, nanos, moment) in [
        (offset_of!(Header, started_ticks), offset_of!(Header, started), 1000),
        (offset_of!(Header, ended_ticks), offset_of!(Header, ended), ended),
    ] {
        long(ticks, moment);
        long(nanos, moment);
    }
    long(offset_of!(Header, long), 100_000);
    for count in [offset_of!(Header, threads), offset_of!(Header, objects), offset_of!(Header, units)] {
        word(count, 1);
    }
    word(offset_of!(Header, unit_capacity), capacity);
    word(UNITS_AT + offset_of!(Chunk, next), next);
    word(THREADS_AT + offset_of!(Thread, state), 1);
    word(THREADS_AT + offset_of!(Thread, first), 1);
    long(THREADS_AT + offset_of!(Thread, started), 3000);
    word(OBJECTS_AT + offset_of!(Object, state), 1);
    word(OBJECTS_AT + offset_of!(Object, kind), crate::layout::kind::MUTEX);
    word(UNITS_AT + offset_of!(Chunk, thread), 1);
    word(UNITS_AT + offset_of!(Chunk, units), MOST_UNITS);
    word(UNITS_AT + offset_of!(Chunk, used), events.len() as u32);
    for (index, (op, gap, wait)) in events.iter().enumerate() {
        let object = if *op == op::COST { NO_OBJECT } else { 0 };
        let at = UNITS_AT + size_of::<Chunk>() + 16 * index;
        word(at, op << OBJECT_BITS | object);
        word(at + 4, *gap);
        word(at + 8, *wait);
    }
    let raw = Raw::read(&path);
    std::fs::remove_file(&path).expect("it was made above");
    raw.expect("a trace")
}

/// What the recorder does for itself is no computation of the program, but the run lasts as long as it does.
#[test]
fn the_cost_of_recording_is_in_the_length_of_the_run() {
    let raw = with_events(
        "cost",
        1_001_000,
        &[(op::ACQUIRE, 0, 0), (op::RELEASE, 10, 5), (op::COST, 0, 700), (op::ACQUIRE, 750, 0)],
    );
    let thread = &raw.threads[0];
    let cpu: u64 = thread.steps.iter().map(|step| step.cpu).sum();
    assert_eq!((thread.start_ns, cpu), (2000, 60));
    assert_eq!(thread.end_ns, 2000 + 10 + 5 + 750);
}

/// The clock of a recorder without a counter says nanoseconds, also if the process was killed.
#[test]
fn a_killed_process_without_a_counter() {
    let raw = with_events("killed", 0, &[(op::ACQUIRE, 0, 0), (op::RELEASE, 1_000_000, 0)]);
    let thread = &raw.threads[0];
    assert_eq!((thread.start_ns, thread.end_ns), (2000, 1_002_000));
}

/// A damaged file: the events of a chunk that leads to itself are read once, however many chunks the file says that it has room for.
#[test]
fn chunks_in_a_circle_are_read_once() {
    let raw = with_chunk("circle", 0, &[(op::ACQUIRE, 0, 0), (op::RELEASE, 10, 0)], 32_768, 1);
    assert_eq!(raw.threads[0].steps.len(), 2);
}
