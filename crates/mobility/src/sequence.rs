//! Sequence numbers of Binding Updates (RFC 6275 9.5.1).

/// Whether `sequence` is greater than `last`, modulo 2^16.
///
/// The last value itself and the 32768 values before it are "less than or equal": after 15, 0-15 and
/// 32783-65535 are old. (Some test suites disagree about 32783; the RFC gives it as an example.)
pub fn is_newer(sequence: u16, last: u16) -> bool {
    (1..=32_767).contains(&sequence.wrapping_sub(last))
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
}
