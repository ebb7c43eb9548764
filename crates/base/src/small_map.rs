//! A map that mostly has one entry, for data that a home agent has once for each binding.
//!
//! `BTreeMap` allocates room for eleven entries when it gets its first one. With 100,000 bindings this room
//! would be most of their memory. In this map a single entry takes only its own size, without an allocation.
//! Code that has few such maps uses `BTreeMap`.

use std::borrow::Borrow;

use crate::SmallList;

/// Values by key, in the order of the keys. Every operation is O(n).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmallMap<K, V>(SmallList<(K, V)>);

impl<K: Ord, V> SmallMap<K, V> {
    /// Creates an empty map, without an allocation.
    pub const fn new() -> Self {
        SmallMap(SmallList::new())
    }

    fn position_of<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.as_slice().binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    /// Returns the value of the key; `None` if the map has no such key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.position_of(key).ok().and_then(|at| self.0.as_slice().get(at)).map(|(_, value)| value)
    }

    /// Returns the value of the key for modification; `None` if the map has no such key.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let at = self.position_of(key).ok()?;
        self.0.as_mut_slice().get_mut(at).map(|(_, value)| value)
    }

    /// Returns whether the map has the key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.position_of(key).is_ok()
    }

    /// Sets the value of a key and returns the previous value; `None` if the map did not have the key.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.position_of::<K>(&key) {
            Ok(at) => self.0.as_mut_slice().get_mut(at).map(|(_, known)| std::mem::replace(known, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    /// Returns the value of a key; inserts `value()` if the map has no such key.
    pub fn get_or_insert_with(&mut self, key: K, value: impl FnOnce() -> V) -> &mut V {
        let at = self.position_of::<K>(&key).unwrap_or_else(|at| {
            self.0.insert(at, (key, value()));
            at
        });
        &mut self.0.as_mut_slice()[at].1
    }

    /// Removes a key and returns its value; `None` if the map has no such key.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = self.position_of(key).ok()?;
        self.0.remove(at).map(|(_, value)| value)
    }

    /// Removes the entries for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain(|(key, value)| keep(key, value));
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.0 = SmallList::new();
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.0.as_slice().len()
    }

    /// Returns whether the map has no entries.
    pub fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    /// Returns keys and values.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.0.as_slice().iter().map(|(key, value)| (key, value))
    }

    /// Returns keys, and values for modification.
    pub fn iter_mut(&mut self) -> impl DoubleEndedIterator<Item = (&K, &mut V)> {
        self.0.as_mut_slice().iter_mut().map(|(key, value)| (&*key, value))
    }

    /// Returns the keys.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.0.as_slice().iter().map(|(key, _)| key)
    }

    /// Returns the values.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.0.as_slice().iter().map(|(_, value)| value)
    }

    /// Returns the values for modification.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> {
        self.0.as_mut_slice().iter_mut().map(|(_, value)| value)
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SmallMap<K, V> {
    /// If a key occurs several times, its last value stays.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::new();
        entries.into_iter().for_each(|(key, value)| drop(map.insert(key, value)));
        map
    }
}

impl<K, V> IntoIterator for SmallMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<K: Ord, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Rng;

    #[test]
    fn small_map_behaves_like_a_btree_map() {
        let (mut map, mut tree, mut rng) = (SmallMap::new(), BTreeMap::new(), Rng::new(7));
        for step in 0..2000_u32 {
            let key = rng.random_u64() % 8;
            if rng.random_u64() % 2 == 0 {
                assert_eq!(map.insert(key, step), tree.insert(key, step));
            } else {
                assert_eq!(map.remove(&key), tree.remove(&key));
            }
            assert_eq!(map.get_or_insert_with(key ^ 1, || step), tree.entry(key ^ 1).or_insert_with(|| step));
            if rng.random_u64() % 64 == 0 {
                map.retain(|key, value| (key + u64::from(*value)).is_multiple_of(2));
                tree.retain(|key, value| (key + u64::from(*value)).is_multiple_of(2));
                assert!(map.iter().eq(&tree));
                map = tree.clone().into_iter().rev().collect();
            }
            assert!(map.iter().eq(&tree) && map.clone().into_iter().eq(tree.clone()));
            assert!(map.iter_mut().eq(tree.iter_mut()));
            assert_eq!((map.get(&key), map.contains_key(&key)), (tree.get(&key), tree.contains_key(&key)));
            assert_eq!((map.len(), map.is_empty()), (tree.len(), tree.is_empty()));
        }
    }
}
