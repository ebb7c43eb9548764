//! Queues that are occasionally long.

use std::collections::VecDeque;

/// Largest capacity, in elements, that an empty queue keeps.
const MAX_CAPACITY_OF_EMPTY_QUEUE: usize = 256;

/// Removes and returns the first element; `None` if the queue is empty. An empty queue releases the memory
/// that a burst allocated. After the start of a home agent with very many bindings, this saves much memory
/// for each binding.
pub fn pop_and_shrink<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let first = queue.pop_front();
    if first.is_none() && queue.capacity() > MAX_CAPACITY_OF_EMPTY_QUEUE {
        queue.shrink_to(MAX_CAPACITY_OF_EMPTY_QUEUE);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_queue_frees_its_memory() {
        let mut queue: VecDeque<u32> = (0..10_000).collect();
        assert_eq!(pop_and_shrink(&mut queue), Some(0));
        assert!(queue.capacity() >= 9_999);
        while pop_and_shrink(&mut queue).is_some() {}
        assert!(queue.capacity() <= MAX_CAPACITY_OF_EMPTY_QUEUE, "{}", queue.capacity());
    }
}
