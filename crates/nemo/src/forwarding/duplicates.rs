//! Finds the first copy of a duplicated packet by its number.
//!
//! If the flow takes several tunnels at once, the sender numbers its packets; all copies of a packet have the
//! same number ([`carnet_wire::extension::SEQUENCE_OPTION`]). The receiver remembers the numbers of the last
//! [`RECEIVE_WINDOW_SIZE`] packets of a binding and accepts the first copy of each. Two packets with the same
//! content have different numbers, so a host may send the same content twice.
//!
//! The sender does not authenticate the number. An attacker who sees the packets of one tunnel could send own
//! packets with the next numbers. The receiver would then drop the real packets as copies. So the receiver
//! stores a mark beside each number: a keyed hash of the packet, sixteen bits long. Only a packet with the
//! same number and the same mark is a copy.
//!
//! The receiver accepts a packet in case of doubt. A packet whose number is older than the window may be a
//! late copy or the first copy to arrive. A restarted sender begins with a random number. In half of the
//! cases this number is ahead of the window, and the window moves to it. In the other half the receiver
//! accepts the packets as late packets. After `LATE_PACKETS_BEFORE_RESTART` late packets in a row the window
//! begins at their numbers.

/// Size of the window in packets. A tunnel with 10,000 packets a second sends this number in 1.6 seconds.
pub const RECEIVE_WINDOW_SIZE: u32 = 16_384;
/// Number of late packets in a row after which the receiver considers the sender restarted.
const LATE_PACKETS_BEFORE_RESTART: u32 = 64;

/// Mark of an empty place in the window; no packet has this mark.
const EMPTY_MARK: u16 = 0;

/// Returns the mark of a packet from a keyed hash of its content.
pub fn packet_mark(hash: u64) -> u16 {
    // Add 1, because 0 means `EMPTY_MARK`. The other marks are almost equally likely.
    (hash % u64::from(u16::MAX)) as u16 + 1
}

/// Result of [`ReceiveWindow::record_packet`] for a numbered packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuplicateCheck {
    /// This copy is the first one with its number.
    First,
    /// The packet is a further copy of a packet that has arrived before.
    Further,
    /// The number is older than the window, so this copy may be the first or a further one.
    Late,
}

/// Received numbers of one binding in one direction.
#[derive(Debug, Clone)]
pub struct ReceiveWindow {
    /// The highest number, in the sense of serial number arithmetic (RFC 1982).
    highest_sequence: u32,
    /// Mark of each received number, at the index of the number modulo [`RECEIVE_WINDOW_SIZE`].
    received_marks: Box<[u16]>,
    /// Number of consecutive late packets.
    consecutive_late_packets: u32,
}

impl ReceiveWindow {
    /// Returns a window that has received only this number, with this mark.
    pub fn new_with_first(sequence: u32, mark: u16) -> ReceiveWindow {
        let seen = vec![EMPTY_MARK; RECEIVE_WINDOW_SIZE as usize].into_boxed_slice();
        let mut window =
            ReceiveWindow { highest_sequence: sequence, received_marks: seen, consecutive_late_packets: 0 };
        window.replace_mark(sequence, mark);
        window
    }

    /// Checks and stores the number and mark of an arrived packet. Says whether it is the first copy of the
    /// packet.
    pub fn record_packet(&mut self, sequence: u32, mark: u16) -> DuplicateCheck {
        let ahead = sequence.wrapping_sub(self.highest_sequence);
        let behind = self.highest_sequence.wrapping_sub(sequence);
        if ahead != 0 && ahead < 1 << 31 {
            if ahead >= RECEIVE_WINDOW_SIZE {
                self.received_marks.fill(EMPTY_MARK);
            } else {
                for skipped in 1..=ahead {
                    self.replace_mark(self.highest_sequence.wrapping_add(skipped), EMPTY_MARK);
                }
            }
            self.highest_sequence = sequence;
        } else if behind >= RECEIVE_WINDOW_SIZE {
            self.consecutive_late_packets += 1;
            if self.consecutive_late_packets >= LATE_PACKETS_BEFORE_RESTART {
                *self = ReceiveWindow::new_with_first(sequence, mark);
            }
            return DuplicateCheck::Late;
        }
        self.consecutive_late_packets = 0;
        if self.replace_mark(sequence, mark) == mark {
            DuplicateCheck::Further
        } else {
            DuplicateCheck::First
        }
    }

    /// Sets the mark of a number and returns the previous one.
    fn replace_mark(&mut self, sequence: u32, mark: u16) -> u16 {
        let place = self.received_marks.get_mut((sequence % RECEIVE_WINDOW_SIZE) as usize);
        place.map_or(EMPTY_MARK, |place| std::mem::replace(place, mark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Two tunnels carry copies with the same numbers. Each loses some and delays others by less than the
        /// window. The receiver accepts each number that arrives exactly once.
        #[test]
        fn receiver_accepts_each_number_once_with_loss_and_delay(
            start in any::<u32>(),
            fates in prop::collection::vec(
                (prop::option::weighted(0.8, 0u32..4000), prop::option::weighted(0.8, 0u32..4000)),
                1..3000,
            ),
        ) {
            let mut arrivals: Vec<(u32, u32)> = Vec::new();
            for (index, (one, other)) in fates.iter().enumerate() {
                let index = index as u32;
                arrivals.extend([one, other].into_iter().flatten().map(|delay| (index + delay, index)));
            }
            arrivals.sort();
            let mut window: Option<ReceiveWindow> = None;
            let mut passed = BTreeSet::new();
            for (_, index) in arrivals {
                let sequence = start.wrapping_add(index);
                let copy = match &mut window {
                    None => {
                        window = Some(ReceiveWindow::new_with_first(sequence, packet_mark(index.into())));
                        DuplicateCheck::First
                    }
                    Some(window) => window.record_packet(sequence, packet_mark(index.into())),
                };
                match copy {
                    DuplicateCheck::First => prop_assert!(passed.insert(index), "{index} passed twice"),
                    DuplicateCheck::Further => prop_assert!(passed.contains(&index), "{index} never passed"),
                    DuplicateCheck::Late => prop_assert!(false, "{index} is within the window"),
                }
            }
            let came = fates.iter().filter(|(one, other)| one.is_some() || other.is_some()).count();
            prop_assert_eq!(passed.len(), came);
        }

        /// For any sequence of numbers: the window never calls a number a copy if it has not received this
        /// number.
        #[test]
        fn receive_window_never_takes_a_new_number_for_a_duplicate(
            numbers in prop::collection::vec((prop_oneof![any::<u32>(), 0u32..40_000], 1u16..4), 1..400),
        ) {
            let mut window = ReceiveWindow::new_with_first(0, 1);
            let mut came = BTreeSet::from([(0, 1)]);
            for (number, mark) in numbers {
                let copy = window.record_packet(number, mark);
                if copy == DuplicateCheck::Further {
                    prop_assert!(came.contains(&(number, mark)));
                }
                came.insert((number, mark));
            }
        }
    }

    #[test]
    fn receiver_follows_restarted_sender_without_loss() {
        for start in [RECEIVE_WINDOW_SIZE + 7, 1 << 30, 3 << 30] {
            let mut window = ReceiveWindow::new_with_first(start, 1);
            let mut late = 0;
            for number in 0..1000 {
                match window.record_packet(number, 1) {
                    DuplicateCheck::First => {}
                    DuplicateCheck::Late => late += 1,
                    DuplicateCheck::Further => panic!("the number {number} was not received before"),
                }
            }
            assert!(late <= LATE_PACKETS_BEFORE_RESTART, "{late}");
            assert_eq!(window.record_packet(999, 1), DuplicateCheck::Further);
        }
    }

    #[test]
    fn very_late_packet_does_not_move_the_receive_window() {
        let mut window = ReceiveWindow::new_with_first(100_000, 1);
        for number in 100_001..100_500 {
            assert_eq!(window.record_packet(number, 1), DuplicateCheck::First);
            assert_eq!(window.record_packet(number - 50_000, 1), DuplicateCheck::Late);
            assert_eq!(window.record_packet(number, 1), DuplicateCheck::Further);
        }
    }

    /// An attacker sends packets with the next numbers. The receiver still accepts each genuine packet once.
    #[test]
    fn forged_numbers_cause_no_loss_of_real_packets() {
        let mut window = ReceiveWindow::new_with_first(0, 1);
        for number in 1..2000 {
            window.record_packet(number, 7);
        }
        for number in 1..2000 {
            assert_eq!(window.record_packet(number, 8), DuplicateCheck::First);
            assert_eq!(window.record_packet(number, 8), DuplicateCheck::Further);
        }
    }

    #[test]
    fn packet_mark_never_equals_the_mark_of_an_empty_slot() {
        assert!((0..1000).chain(u64::MAX - 1000..=u64::MAX).all(|hash| packet_mark(hash) != EMPTY_MARK));
    }
}
