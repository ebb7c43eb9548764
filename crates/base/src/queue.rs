//! Queues that are long now and then.

use std::collections::VecDeque;

/// Room that a queue keeps, in things.
const KEPT: usize = 256;

/// Takes the first of a queue. One that is empty gives back what a burst has taken: after the start of a home agent with
/// very many bindings these are many octets for each of them.
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
    fn an_empty_queue_keeps_little_room() {
        let mut queue: VecDeque<u32> = (0..10_000).collect();
        assert_eq!(next_of(&mut queue), Some(0));
        assert!(queue.capacity() >= 9_999);
        while next_of(&mut queue).is_some() {}
        assert!(queue.capacity() <= KEPT, "{}", queue.capacity());
    }
}
