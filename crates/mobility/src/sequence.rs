//! Sequence numbers of Binding Updates (RFC 6275 9.5.1), and timestamps in their order (RFC 4285 6).

/// Whether `sequence` is greater than `last`, modulo 2^16.
///
/// The last value itself and the 32768 values before it are "less than or equal": after 15, 0-15 and
/// 32783-65535 are old. (Some test suites disagree about 32783; the RFC gives it as an example.)
pub fn is_newer(sequence: u16, last: u16) -> bool {
    (1..=32_767).contains(&sequence.wrapping_sub(last))
}

/// Whether a 64-bit NTP timestamp is later than another; the two are less than 68 years apart, in one era of
/// RFC 5905 or in two.
pub(crate) fn is_later(timestamp: u64, than: u64) -> bool {
    timestamp.wrapping_sub(than).cast_signed() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_6275_9_5_1() {
        assert!(is_newer(16, 15));
        assert!(is_newer(32_782, 15));
        for old in [0, 14, 15, 32_783, 65_535] {
            assert!(!is_newer(old, 15), "{old}");
        }
        assert!(is_newer(0, 65_535));
    }

    #[test]
    fn timestamps_are_in_order_across_the_end_of_the_era() {
        assert!(is_later(1 << 32, u64::MAX));
        assert!(!is_later(u64::MAX, 1 << 32));
        assert!(!is_later(7, 7));
        assert!(is_later(8, 7));
    }
}
