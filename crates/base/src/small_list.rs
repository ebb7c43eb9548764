//! A list for objects of which a home agent has one for each binding, and which mostly have one entry.
//!
//! The list stores one entry without an allocation. A vector with one entry needs memory for its header, an
//! allocation, and the allocator's own data. With 100,000 bindings this memory exceeds the content. Code that
//! has few such lists uses `Vec`.

/// A list of zero, one or several elements, in order.
#[derive(Debug, Clone)]
pub struct SmallList<T>(SmallListEntries<T>);

#[derive(Debug, Clone)]
enum SmallListEntries<T> {
    One(T),
    /// Several elements, or none.
    Several(Vec<T>),
}

use SmallListEntries::{One, Several};

impl<T> SmallList<T> {
    /// Creates an empty list.
    pub const fn new() -> Self {
        SmallList(Several(Vec::new()))
    }

    /// Returns the elements as a slice.
    pub fn as_slice(&self) -> &[T] {
        match &self.0 {
            One(entry) => std::slice::from_ref(entry),
            Several(entries) => entries,
        }
    }

    /// Returns the elements as a mutable slice.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        match &mut self.0 {
            One(entry) => std::slice::from_mut(entry),
            Several(entries) => entries,
        }
    }

    /// Returns whether the list has one element, stored without an allocation.
    pub fn is_stored_inline(&self) -> bool {
        matches!(self.0, One(_))
    }

    /// Appends an element.
    pub fn push(&mut self, entry: T) {
        self.insert(self.as_slice().len(), entry);
    }

    /// Inserts an element before the element at index `at`, or at the end if the list has no such element.
    pub fn insert(&mut self, at: usize, entry: T) {
        let mut entries = match std::mem::replace(&mut self.0, Several(Vec::new())) {
            Several(none) if none.is_empty() => {
                self.0 = One(entry);
                return;
            }
            One(first) => vec![first],
            Several(entries) => entries,
        };
        // Grow by half: few lists have more than one element, and lists with two elements rarely get many.
        if entries.len() == entries.capacity() {
            entries.reserve_exact(1 + entries.len() / 2);
        }
        entries.insert(at.min(entries.len()), entry);
        self.0 = Several(entries);
    }

    /// Removes and returns the element at `at`, if it exists.
    pub fn remove(&mut self, at: usize) -> Option<T> {
        if at >= self.as_slice().len() {
            return None;
        }
        let mut entries = std::mem::take(self).into_vec();
        let removed = entries.remove(at);
        *self = entries.into();
        Some(removed)
    }

    /// Removes the elements for which `keep` returns false.
    pub fn retain(&mut self, keep: impl FnMut(&mut T) -> bool) {
        let mut entries = std::mem::take(self).into_vec();
        entries.retain_mut(keep);
        *self = entries.into();
    }

    fn into_vec(self) -> Vec<T> {
        match self.0 {
            One(entry) => vec![entry],
            Several(entries) => entries,
        }
    }
}

impl<T> From<Vec<T>> for SmallList<T> {
    fn from(mut entries: Vec<T>) -> Self {
        if entries.len() == 1
            && let Some(entry) = entries.pop()
        {
            return SmallList(One(entry));
        }
        if entries.capacity() > 2 * entries.len() {
            entries.shrink_to_fit();
        }
        SmallList(Several(entries))
    }
}

impl<T> Default for SmallList<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Two lists are equal if their elements are, however the lists store them.
impl<T: PartialEq> PartialEq for SmallList<T> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<T: Eq> Eq for SmallList<T> {}

impl<T> IntoIterator for SmallList<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.into_vec().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn few_behaves_like_a_vector_and_one_element_needs_no_heap() {
        let (mut few, mut vector, mut rng) = (SmallList::new(), Vec::new(), Rng::new(7));
        for step in 0..3000_u64 {
            let at = (rng.random_u64() % 5) as usize;
            match rng.random_u64() % 5 {
                0 => {
                    few.push(step);
                    vector.push(step);
                }
                1 => {
                    few.insert(at, step);
                    vector.insert(at.min(vector.len()), step);
                }
                2 => {
                    few.retain(|entry| *entry % 3 != step % 3);
                    vector.retain(|entry| *entry % 3 != step % 3);
                }
                _ => assert_eq!(few.remove(at), (at < vector.len()).then(|| vector.remove(at))),
            }
            assert_eq!(few.as_slice(), vector);
            assert_eq!(few.as_mut_slice(), vector);
            assert_eq!(few, SmallList::from(vector.clone()));
            assert!(few.clone().into_iter().eq(vector.clone()));
            match &few.0 {
                One(_) => assert_eq!(vector.len(), 1),
                Several(entries) => {
                    assert!(entries.len() != 1 && entries.capacity() <= 2 * entries.len().max(1))
                }
            }
        }
        assert_eq!(size_of::<SmallList<Box<u8>>>(), size_of::<Vec<u8>>());
    }
}
