//! Queues that are occasionally long.

use std::collections::VecDeque;

/// Number of elements for which an empty queue keeps memory.
const KEPT: usize = 256;

/// Removes and returns the first element. An empty queue releases the memory that a burst allocated. After
/// the start of a home agent with very many bindings, this saves much memory for each binding.
pub fn next_of<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let first = queue.pop_front();
    if first.is_none() && queue.capacity() > KEPT {
        queue.shrink_to(KEPT);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_queue_frees_its_memory() {
        let mut queue: VecDeque<u32> = (0..10_000).collect();
        assert_eq!(next_of(&mut queue), Some(0));
        assert!(queue.capacity() >= 9_999);
        while next_of(&mut queue).is_some() {}
        assert!(queue.capacity() <= KEPT, "{}", queue.capacity());
    }
}
