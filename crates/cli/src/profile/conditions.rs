//! What the verdict says of waits for condition variables and semaphores. Neither is a lock, and an idle thread waits like this. But
//! languages build their locks from them: HotSpot's monitors wait for conditions, and CPython's `threading.Lock` is a semaphore.

use super::findings::{NOTABLE, ratio};
use super::model::{Class, Condition, Kind, Profile};
use super::units::{count, percent};
use latchwork_console::names::GLIBC;

/// Says for how long threads waited for semaphores that serve as locks, if that is a noticeable part of their time.
pub fn locks(profile: &Profile) -> Option<String> {
    let locks = || profile.condvars.iter().filter(|condition| condition.is_lock());
    let share = share(profile, locks());
    let top = locks().next()?;
    (share >= NOTABLE).then(|| {
        format!(
            "Threads spent {} of their time waiting for semaphores that serve as locks: the thread that waits for one posts it \
             afterwards. Most of that is for {}.",
            percent(share),
            top.name
        )
    })
}

/// Says for how long threads waited for the others.
pub fn others(profile: &Profile) -> Option<String> {
    let others = || profile.condvars.iter().filter(|condition| !condition.is_lock());
    let share = share(profile, others());
    let any = |is_semaphore| others().any(|one| one.is_semaphore == is_semaphore && one.idle_ns() > 0);
    let (what, such_as) = match (any(false), any(true)) {
        (true, true) => (
            "conditions and semaphores",
            "Java's monitors are built from conditions, and Python's threading.Lock is a semaphore",
        ),
        (true, false) => ("conditions", "Java's monitors are"),
        (false, _) => ("semaphores", "Python's threading.Lock is one"),
    };
    // glibc acquires the mutex within its own function.
    let is_glibc =
        |class: &Class| class.kind == Kind::Mutex && class.served_by.iter().any(|lock| lock == GLIBC);
    let again = if any(false) && share >= NOTABLE && profile.locks.iter().any(is_glibc) {
        " The time for acquiring the mutex again is in that; --mutex shfl tells it apart."
    } else {
        ""
    };
    (share > 0.0).then(|| {
        format!(
            "Threads spent {} of their time waiting for {what}: for work, or for locks that are built from them ({such_as}). \
             The recording does not tell which.{again}",
            percent(share)
        )
    })
}

/// Says which condition wakes many threads for each notification. One that finds no work waits again.
pub fn herd(profile: &Profile) -> Option<String> {
    let woken = |condition: &Condition| condition.waits.saturating_sub(condition.timeouts);
    // A thousand: fewer say nothing about the program. Three for one: a thread may wait several times for its turn.
    let is_herd = |condition: &&Condition| {
        let (woken, notified) = (woken(condition), condition.notifications);
        !condition.is_semaphore && woken >= 1_000 && notified > 0 && woken / 3 >= notified
    };
    let most = profile.condvars.iter().filter(is_herd).max_by_key(|condition| woken(condition))?;
    Some(format!(
        "{} wakes {} threads for each notification ({} for {}): signal one thread in place of all, if one can do the work.",
        most.name,
        woken(most) / most.notifications,
        count(woken(most)),
        count(most.notifications)
    ))
}

/// The part of the threads' time for which they waited for these.
fn share<'a>(profile: &Profile, conditions: impl Iterator<Item = &'a Condition>) -> f64 {
    let waited = conditions.fold(0, |sum: u64, condition| sum.saturating_add(condition.idle_ns()));
    ratio(waited, profile.lifetime_ns())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sample;

    #[test]
    fn a_semaphore_that_its_waiters_post_is_a_lock() {
        let mut profile = sample::profile();
        assert_eq!(locks(&profile), None);
        let condition = &mut profile.condvars[0];
        (condition.is_semaphore, condition.waits, condition.returned) = (true, 500, 449);
        assert_eq!(locks(&profile), None);
        assert!(others(&profile).is_some_and(|text| text.contains("Python's threading.Lock is one")));
        profile.condvars[0].returned = 450;
        let text = locks(&profile).unwrap();
        assert!(text.starts_with("Threads spent 10%") && text.ends_with("for pool.ready."), "{text}");
        assert_eq!(others(&profile), None);
    }
}
