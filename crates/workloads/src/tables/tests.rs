//! Every table against a plain map, alone and with others.

use super::*;
use latchwork::machine::Native;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::HashMap;

/// Runs `check` with each kind of table.
fn for_each_table(check: impl Each) {
    struct All<E>(E);
    impl<E: Each> Visitor<Native> for All<E> {
        fn table<T: Table<Machine = Native>>(&mut self) {
            self.0.check::<T>();
        }
    }
    visit(&mut All(check));
}

trait Each {
    fn check<T: Table<Machine = Native>>(&self);
}

fn random(seed: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(seed)
}

fn below(random: &mut Xoshiro256PlusPlus, limit: u64) -> u64 {
    random.next_u64() % limit
}

#[test]
fn a_table_is_a_map() {
    struct Alone;
    impl Each for Alone {
        fn check<T: Table<Machine = Native>>(&self) {
            let mut table = T::new(&Shape { buckets: 8, elements: 64, threads: 1, waiting: 8 });
            let mut model = HashMap::new();
            let mut random = random(1);
            let mut handle = table.join(0);
            for step in 0..4000 {
                let (key, name) = (below(&mut random, 40), T::INFO.name);
                match below(&mut random, 3) {
                    0 => {
                        let new = !model.contains_key(&key);
                        assert_eq!(table.insert(&mut handle, key, step), Ok(new), "{name}");
                        model.entry(key).or_insert(step);
                    }
                    1 => {
                        assert_eq!(table.remove(&mut handle, key), Ok(model.remove(&key).is_some()), "{name}")
                    }
                    _ => {
                        // SAFETY: the handle is of this table.
                        let found = unsafe { table.get(&mut handle, key) };
                        assert_eq!(found, Ok(model.get(&key).copied()), "{name}");
                    }
                }
                if step % 5 == 0 {
                    table.quiescent(&mut handle);
                }
            }
            drop(handle);
            let mut found = HashMap::new();
            table.each(|key, value| assert!(found.insert(key, value).is_none()));
            assert_eq!(found, model, "{}", T::INFO.name);
        }
    }
    for_each_table(Alone);
}

/// What only other libraries' domains pay for is not in a measured lookup.
#[test]
fn a_lookup_does_not_check_whose_handle_it_has() {
    struct Lookups;
    impl Visitor<Native> for Lookups {
        fn table<T: Table<Machine = Native>>(&mut self) {
            let table = T::new(&Shape { buckets: 8, elements: 64, threads: 1, waiting: 8 });
            let mut handle = table.join(0);
            assert_eq!(table.insert(&mut handle, 1, 10), Ok(true));
            store::CHECKS.set(0);
            for key in 0..8 {
                // SAFETY: the handle is of this table.
                let found = unsafe { table.get(&mut handle, key) };
                assert_eq!(found, Ok((key == 1).then_some(10)), "{}", T::INFO.name);
            }
            assert_eq!(store::CHECKS.get(), 0, "{}", T::INFO.name);
        }
    }
    visit(&mut Lookups);
    crate::peers::visit_tables(&mut Lookups);
}

#[test]
fn threads_that_change_keys_of_their_own_find_them_as_they_left_them() {
    struct Together;
    impl Each for Together {
        fn check<T: Table<Machine = Native>>(&self) {
            if !T::INFO.concurrent {
                return;
            }
            const THREADS: u64 = 3;
            const KEYS: u64 = 48;
            let shape = Shape { buckets: 4, elements: KEYS as usize, threads: THREADS as usize, waiting: 4 };
            let table = Box::new(T::new(&shape));
            let finals: Vec<_> = std::thread::scope(|scope| {
                let one = |thread: u64| {
                    let (table, mut random) = (&table, random(thread));
                    let mut handle = table.join(thread as usize);
                    let mut mine = HashMap::new();
                    for step in 0..2000 {
                        // Neighbours in the chains belong to others.
                        let key = below(&mut random, KEYS);
                        let own = key / 4 % THREADS == thread;
                        // SAFETY: the handle is of this table.
                        let found = unsafe { table.get(&mut handle, key) }.unwrap();
                        if own {
                            assert_eq!(found, mine.get(&key).copied(), "{}", T::INFO.name);
                            if mine.remove(&key).is_some() {
                                assert_eq!(table.remove(&mut handle, key), Ok(true), "{}", T::INFO.name);
                            } else {
                                let value = key << 32 | step;
                                mine.insert(key, value);
                                assert_eq!(table.insert(&mut handle, key, value), Ok(true));
                            }
                        } else if let Some(value) = found {
                            assert_eq!(value >> 32, key, "{}", T::INFO.name);
                        }
                        table.quiescent(&mut handle);
                    }
                    mine
                };
                let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || one(thread))).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            let expected: HashMap<_, _> = finals.into_iter().collect();
            let (mut table, mut found) = (*table, HashMap::new());
            table.each(|key, value| assert!(found.insert(key, value).is_none()));
            assert_eq!(found, expected, "{}", T::INFO.name);
        }
    }
    for_each_table(Together);
}
