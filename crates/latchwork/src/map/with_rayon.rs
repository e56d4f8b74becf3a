//! Maps and sets with the crate `rayon`: the feature `rayon`.

use super::set::SetReading;
use super::{RcuMap, RcuSet, RcuTreeMap, RcuTreeSet, Reading, TreeRange, TreeReading, TreeSetReading};
use alloc::vec::Vec;
use core::hash::{BuildHasher, Hash};
use rayon::iter::{FromParallelIterator, IntoParallelIterator, ParallelExtend, ParallelIterator};

/// Lines that a thread walks at a time: some 250 elements, which take about a microsecond.
const PART: usize = 32;

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S: Sync> Reading<'_, K, V, S> {
    /// Every key with its value, by several threads, as [`iter`](Reading::iter). The section is that of the calling thread,
    /// and protects what the other threads meet.
    ///
    /// ```
    /// use rayon::iter::ParallelIterator;
    /// let map: latchwork::map::RcuMap<u64, u64> = (0..1000).map(|i| (i, 2 * i)).collect();
    /// assert_eq!(map.read().par_iter().map(|(_, value)| value).sum::<u64>(), 999_000);
    /// ```
    pub fn par_iter(&self) -> impl ParallelIterator<Item = (&K, &V)> {
        let table = &self.map.table;
        let parts = table.parts(&self.section, PART).into_par_iter();
        parts.flat_map_iter(move |(lines, range)| {
            table.part(lines, range).map(|node| (&node.key, &node.value))
        })
    }
}

/// The elements of a map that has ended, by several threads.
///
/// ```
/// use rayon::iter::{IntoParallelIterator, ParallelIterator};
/// let map: latchwork::map::RcuMap<u64, u64> = (0..1000).map(|i| (i, 2 * i)).collect();
/// assert_eq!(map.into_par_iter().map(|(_, value)| value).sum::<u64>(), 999_000);
/// ```
impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> IntoParallelIterator for RcuMap<K, V, S> {
    type Item = (K, V);
    type Iter = rayon::vec::IntoIter<(K, V)>;
    fn into_par_iter(self) -> Self::Iter {
        self.into_iter().collect::<Vec<_>>().into_par_iter()
    }
}

/// Each element is inserted by itself.
impl<K, V, S> ParallelExtend<(K, V)> for RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Sync,
{
    fn par_extend<I: IntoParallelIterator<Item = (K, V)>>(&mut self, elements: I) {
        let map = &*self;
        elements.into_par_iter().for_each(|(key, value)| _ = map.insert(key, value));
    }
}

impl<K, V, S> FromParallelIterator<(K, V)> for RcuMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Default + Sync,
{
    fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(elements: I) -> Self {
        let mut map = Self::default();
        map.par_extend(elements);
        map
    }
}

/// Each element is inserted by itself.
impl<T, S> ParallelExtend<T> for RcuSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Sync,
{
    fn par_extend<I: IntoParallelIterator<Item = T>>(&mut self, elements: I) {
        let set = &*self;
        elements.into_par_iter().for_each(|element| _ = set.insert(element));
    }
}

impl<T, S> FromParallelIterator<T> for RcuSet<T, S>
where
    T: Hash + Eq + Send + Sync + 'static,
    S: BuildHasher + Default + Sync,
{
    fn from_par_iter<I: IntoParallelIterator<Item = T>>(elements: I) -> Self {
        let mut set = Self::default();
        set.par_extend(elements);
        set
    }
}

impl<T: Send + Sync + 'static, S: Sync> SetReading<'_, T, S> {
    /// Every element, by several threads, as [`Reading::par_iter`].
    ///
    /// ```
    /// use rayon::iter::ParallelIterator;
    /// let set: latchwork::map::RcuSet<u64> = (0..1000).collect();
    /// assert_eq!(set.read().par_iter().sum::<u64>(), 499_500);
    /// ```
    pub fn par_iter(&self) -> impl ParallelIterator<Item = &T> {
        self.0.par_iter().map(|(element, ())| element)
    }
}

/// The elements of a set that has ended, by several threads.
impl<T: Send + Sync + 'static, S> IntoParallelIterator for RcuSet<T, S> {
    type Item = T;
    type Iter = rayon::vec::IntoIter<T>;
    fn into_par_iter(self) -> Self::Iter {
        self.into_iter().collect::<Vec<_>>().into_par_iter()
    }
}

/// Elements of an ordered map that a thread walks at a time.
const RUN: usize = 256;

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> TreeReading<'_, K, V> {
    /// Every key with its value, by several threads: the map as it was at one moment, as [`iter`](TreeReading::iter). The
    /// section is that of the calling thread, and protects what the other threads meet.
    ///
    /// ```
    /// use rayon::iter::ParallelIterator;
    /// let map: latchwork::map::RcuTreeMap<u64, u64> = (0..1000).map(|i| (i, 2 * i)).collect();
    /// let reading = map.read();
    /// map.clear();
    /// assert_eq!(reading.par_iter().map(|(_, value)| value).sum::<u64>(), 999_000);
    /// ```
    pub fn par_iter(&self) -> impl ParallelIterator<Item = (&K, &V)> {
        let snapshot = self.snapshot();
        let runs = (0..snapshot.count().div_ceil(RUN)).into_par_iter();
        runs.flat_map_iter(move |run| TreeRange::new(snapshot.walk(run * RUN, (run + 1) * RUN)))
    }
}

/// The elements of an ordered map that has ended, by several threads, in no order.
impl<K: Send + Sync + 'static, V: Send + Sync + 'static> IntoParallelIterator for RcuTreeMap<K, V> {
    type Item = (K, V);
    type Iter = rayon::vec::IntoIter<(K, V)>;
    fn into_par_iter(self) -> Self::Iter {
        self.into_iter().collect::<Vec<_>>().into_par_iter()
    }
}

/// The elements are made by several threads. The calling thread sorts them, and makes the map.
impl<K, V> FromParallelIterator<(K, V)> for RcuTreeMap<K, V>
where
    K: Ord + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn from_par_iter<I: IntoParallelIterator<Item = (K, V)>>(elements: I) -> Self {
        elements.into_par_iter().collect::<Vec<_>>().into_iter().collect()
    }
}

impl<T: Send + Sync + 'static> TreeSetReading<'_, T> {
    /// Every element, by several threads, as [`TreeReading::par_iter`].
    ///
    /// ```
    /// use rayon::iter::ParallelIterator;
    /// let set: latchwork::map::RcuTreeSet<u64> = (0..1000).collect();
    /// assert_eq!(set.read().par_iter().sum::<u64>(), 499_500);
    /// ```
    pub fn par_iter(&self) -> impl ParallelIterator<Item = &T> {
        self.0.par_iter().map(|(element, ())| element)
    }
}

/// The elements of an ordered set that has ended, by several threads, in no order.
impl<T: Send + Sync + 'static> IntoParallelIterator for RcuTreeSet<T> {
    type Item = T;
    type Iter = rayon::vec::IntoIter<T>;
    fn into_par_iter(self) -> Self::Iter {
        self.into_iter().collect::<Vec<_>>().into_par_iter()
    }
}

/// As an ordered map is made.
impl<T: Ord + Send + Sync + 'static> FromParallelIterator<T> for RcuTreeSet<T> {
    fn from_par_iter<I: IntoParallelIterator<Item = T>>(elements: I) -> Self {
        elements.into_par_iter().collect::<Vec<_>>().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_threads_make_and_read_a_map() {
        let map: RcuMap<u64, u64> = (0..20_000u64).into_par_iter().map(|i| (i, i)).collect();
        assert_eq!(map.len(), 20_000);
        assert_eq!(map.read().par_iter().map(|(key, _)| *key).sum::<u64>(), 19_999 * 10_000);
        assert_eq!(map.into_par_iter().map(|(_, value)| value).sum::<u64>(), 19_999 * 10_000);
        let set: RcuSet<u64> = (0..1000u64).into_par_iter().collect();
        assert_eq!(set.len(), 1000);
        assert_eq!(set.read().par_iter().sum::<u64>(), 999 * 500);
        assert_eq!(set.into_par_iter().sum::<u64>(), 999 * 500);
    }

    /// Each part of a walk begins where the one before ended.
    #[test]
    fn several_threads_read_an_ordered_map_and_set() {
        for count in [0, 1, RUN, RUN + 1, 10_000] {
            let map: RcuTreeMap<usize, usize> = (0..count).into_par_iter().map(|i| (i, i)).collect();
            let seen: Vec<usize> = map.read().par_iter().map(|(key, _)| *key).collect();
            assert!(seen.into_iter().eq(0..count));
            assert_eq!(map.into_par_iter().count(), count);
            let set: RcuTreeSet<usize> = (0..count).into_par_iter().map(|i| count - 1 - i).collect();
            let seen: Vec<usize> = set.read().par_iter().copied().collect();
            assert!(seen.into_iter().eq(0..count));
            let mut elements: Vec<usize> = set.into_par_iter().collect();
            elements.sort_unstable();
            assert!(elements.into_iter().eq(0..count));
        }
    }
}
