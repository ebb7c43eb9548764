//! Sequence numbers of Binding Updates (RFC 6275 9.5.1), and the order of timestamps (RFC 4285 6).
//!
//! A sequence number has 16 bits. A node that has sent 32,768 further Binding Updates makes a recorded one
//! "newer" than its last one again. So sequence numbers detect replays "up to a maximum of 2**15 Binding
//! Updates" under one key (RFC 6275 15.3). The home agent therefore counts how many numbers each key has used
//! ([`count_used_numbers`]). Above [`MAX_USED_NUMBERS`] it accepts a Binding Update under that key only with
//! a timestamp that is later than all earlier ones.
//!
//! Why this suffices: each message that was accepted under a key has one of the first [`MAX_USED_NUMBERS`]
//! numbers of that key, or a timestamp. As long as the last number is one of these first numbers, the message
//! is less than 2^15 numbers old. Then [`is_newer`] refuses a replay. Later a replay needs a timestamp that
//! is later than all accepted ones, and no recorded message has one.

/// Returns whether `sequence` is greater than `last`, modulo 2^16.
///
/// The last value itself and the 32768 values before it are "less than or equal". If 15 is the last value,
/// 0-15 and 32783-65535 are old. Some test suites treat 32783 as new, but the RFC gives it as an example of
/// an old value.
pub fn is_newer(sequence: u16, last: u16) -> bool {
    (1..=32_767).contains(&sequence.wrapping_sub(last))
}

/// Number of sequence numbers that a key may use before its Binding Updates need a timestamp.
pub(crate) const MAX_USED_NUMBERS: u32 = 1 << 15;
/// Number of used sequence numbers at which the home agent warns the operator: three quarters. At one Binding
/// Update in 45 s the remaining quarter lasts four days.
pub(crate) const USED_NUMBERS_WARNING: u32 = MAX_USED_NUMBERS / 4 * 3;

/// Returns how many sequence numbers a key has used when `sequence` is accepted: all from its first one to
/// `sequence`, both included. `numbers` is the count before, 0 for a key that has signed nothing yet. `last`
/// is the node's last number under any key.
pub(crate) fn count_used_numbers(numbers: u32, last: Option<u16>, sequence: u16) -> u32 {
    match last {
        Some(last) if numbers > 0 => numbers.saturating_add(sequence.wrapping_sub(last).into()),
        _ => numbers.max(1),
    }
}

/// Returns whether a 64-bit NTP timestamp is later than another. Both must be less than 68 years apart; they
/// may be in two eras (RFC 5905).
pub(crate) fn is_later(timestamp: u64, than: u64) -> bool {
    timestamp.wrapping_sub(than).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_comparison_follows_example_of_rfc_6275_9_5_1() {
        assert!(is_newer(16, 15));
        assert!(is_newer(32_782, 15));
        for old in [0, 14, 15, 32_783, 65_535] {
            assert!(!is_newer(old, 15), "{old}");
        }
        assert!(is_newer(0, 65_535));
    }

    #[test]
    fn sequence_numbers_are_counted_from_the_first_update_under_a_key() {
        assert_eq!(count_used_numbers(0, None, 7), 1);
        assert_eq!(count_used_numbers(0, Some(6), 40_000), 1);
        assert_eq!(count_used_numbers(1, Some(65_535), 0), 2);
        assert_eq!(count_used_numbers(1, Some(15), 32_782), MAX_USED_NUMBERS);
        assert_eq!(count_used_numbers(u32::MAX, Some(1), 2), u32::MAX);
    }

    #[test]
    fn timestamp_comparison_works_across_the_end_of_the_ntp_era() {
        assert!(is_later(1 << 32, u64::MAX));
        assert!(!is_later(u64::MAX, 1 << 32));
        assert!(!is_later(7, 7));
        assert!(is_later(8, 7));
    }
}
