//! Sorts slices and builds trees without a copy of the standard library's sort for each type.
//!
//! The standard library's sort adds several kilobytes for each pair of type and order. The program sorts a
//! few dozen types, with few items each, and sorts none for a packet. In this module only the comparison and
//! the moves depend on the type; one routine sorts the indices. (`collect` into a B-tree sorts as well, so
//! this module inserts items one by one.)

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Sorts by `compare`, and keeps the order of equal items.
pub fn sort_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    if items.len() < 2 {
        return;
    }
    let mut sources = order(items.len(), &|a, b| match (items.get(a), items.get(b)) {
        (Some(a), Some(b)) => compare(a, b),
        _ => Ordering::Equal,
    });
    // For each cycle of the permutation, swap the right item into each place until the cycle is complete.
    for first in 0..sources.len() {
        let mut place = first;
        loop {
            let source = std::mem::replace(&mut sources[place], place);
            if source == first {
                break;
            }
            items.swap(place, source);
            place = source;
        }
    }
}

/// Returns the indices below `count`, sorted by `compare`.
fn order(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..count).collect();
    numbers.sort_by(|a, b| compare(*a, *b));
    numbers
}

/// Sorts by a key, and keeps the order of equal items.
pub fn sort_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(items, |a, b| key(a).cmp(&key(b)));
}

/// Sorts items, and keeps the order of equal items.
pub fn sort<T: Ord>(items: &mut [T]) {
    sort_by(items, T::cmp);
}

/// Returns the set of the items.
pub fn set_of<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeSet<T> {
    let mut set = BTreeSet::new();
    set.extend(items);
    set
}

/// Returns the map of the entries; if a key occurs several times, its last value stays.
pub fn map_of<K: Ord, V>(entries: impl IntoIterator<Item = (K, V)>) -> BTreeMap<K, V> {
    let mut map = BTreeMap::new();
    map.extend(entries);
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn it_sorts_as_the_standard_library_does() {
        let mut rng = Rng::new(3);
        for count in (0..40).chain([1000]) {
            let mut items: Vec<(u64, usize)> = (0..count).map(|place| (rng.u64() % 16, place)).collect();
            let (mut expected, mut whole) = (items.clone(), items.clone());
            expected.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
            sort_by_key(&mut items, |(key, _)| std::cmp::Reverse(*key));
            assert_eq!(items, expected);
            expected.sort();
            sort(&mut whole);
            assert_eq!(whole, expected);
        }
    }

    #[test]
    fn trees_are_those_that_are_collected() {
        let entries = [(3, 'a'), (1, 'b'), (3, 'c'), (2, 'd')];
        assert_eq!(map_of(entries), entries.into_iter().collect());
        assert_eq!(set_of(entries), entries.into_iter().collect());
    }
}
