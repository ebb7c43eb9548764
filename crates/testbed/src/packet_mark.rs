//! The mark in a packet, by which the lab recognises the packet on the air and at its receivers.

/// Length of a mark in octets.
pub const MARK_LENGTH: usize = 16;
const MARK_MAGIC: &[u8; 8] = b"carnetgb";

/// Mark of a packet: number of the broadcast in the scenario, and number of the packet.
pub type PacketMark = (u32, u32);

/// Returns the mark in a frame or payload; `None` without a mark.
pub fn find_packet_mark(octets: &[u8]) -> Option<PacketMark> {
    let at = octets.windows(MARK_MAGIC.len()).position(|w| w == MARK_MAGIC)?;
    let numbers = octets.get(at + MARK_MAGIC.len()..at + MARK_LENGTH)?;
    let number = |n: &[u8]| n.iter().fold(0, |sum, octet| sum << 8 | u32::from(*octet));
    Some((number(&numbers[..4]), number(&numbers[4..])))
}

/// Returns a payload of this size with a mark, in hexadecimal.
pub fn marked_payload(mark: PacketMark, size: usize) -> String {
    let mut octets = Vec::with_capacity(size);
    octets.extend_from_slice(MARK_MAGIC);
    octets.extend_from_slice(&mark.0.to_be_bytes());
    octets.extend_from_slice(&mark.1.to_be_bytes());
    octets.resize(size.max(MARK_LENGTH), 0);
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_marks_are_found_in_frames() {
        let text = marked_payload((3, 70_000), 20);
        assert_eq!(text.len(), 40);
        let octets: Vec<u8> =
            (0..20).map(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).expect("an octet")).collect();
        assert_eq!(find_packet_mark(&octets), Some((3, 70_000)));
        assert_eq!(find_packet_mark(&[&[1, 2, 3], &octets[..]].concat()), Some((3, 70_000)));
        assert_eq!((find_packet_mark(&octets[..15]), find_packet_mark(b"carnet")), (None, None));
    }
}
