//! A buffer for a packet, with room before the packet, so that a header can be put in front without a copy.

/// Octets of room before the packet, for an outer IPv6 header and the headers of other encapsulations.
const HEADROOM: usize = 96;
/// The largest IPv6 packet without a jumbo payload option.
const MAX_PACKET_LENGTH: usize = 40 + 65_535;

/// A buffer into which the station reads a packet, changes it in place, and from which it writes the packet.
#[derive(Debug)]
pub struct PacketBuffer {
    octets: Box<[u8]>,
    packet_start: usize,
    packet_end: usize,
}

impl PacketBuffer {
    /// Returns an empty buffer.
    pub fn new() -> Self {
        PacketBuffer {
            octets: vec![0; HEADROOM + MAX_PACKET_LENGTH].into_boxed_slice(),
            packet_start: HEADROOM,
            packet_end: HEADROOM,
        }
    }

    /// Empties the buffer and returns the space for a packet. After the read, [`Self::set_filled_length`]
    /// sets the length of the packet.
    pub fn empty_space(&mut self) -> &mut [u8] {
        self.packet_start = HEADROOM;
        self.packet_end = HEADROOM;
        &mut self.octets[HEADROOM..]
    }

    /// Empties the buffer and returns its memory for a packet, beginning `front` octets earlier. A device
    /// writes a header of this length in front of the packet. The header does not become part of the packet.
    /// `front` is less than the length of an outer header.
    pub fn empty_space_after(&mut self, front: usize) -> &mut [u8] {
        self.packet_start = HEADROOM;
        self.packet_end = HEADROOM;
        self.octets.get_mut(HEADROOM.saturating_sub(front)..).unwrap_or_default()
    }

    /// Returns the packet with `front` written directly before it. `front` does not become part of the
    /// packet. Returns `None` if the buffer has too little memory before the packet.
    pub fn packet_with_prefix(&mut self, front: &[u8]) -> Option<&[u8]> {
        let start = self.packet_start.checked_sub(front.len())?;
        self.octets.get_mut(start..self.packet_start)?.copy_from_slice(front);
        self.octets.get(start..self.packet_end)
    }

    /// Sets the packet's length after `length` octets were read into [`Self::empty_space`].
    pub fn set_filled_length(&mut self, length: usize) {
        self.packet_end = (self.packet_start + length).min(self.octets.len());
    }

    /// Copies `packet` into the buffer, truncated to the buffer's capacity.
    pub fn copy_from(&mut self, packet: &[u8]) {
        let length = packet.len().min(MAX_PACKET_LENGTH);
        if let (Some(space), Some(packet)) = (self.empty_space().get_mut(..length), packet.get(..length)) {
            space.copy_from_slice(packet);
        }
        self.set_filled_length(length);
    }

    /// Returns the packet.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[self.packet_start..self.packet_end]
    }

    /// Returns the packet for changes in place.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.octets[self.packet_start..self.packet_end]
    }

    /// Puts `header` in front of the packet; returns `false` if the room before the packet is too small.
    #[inline]
    pub fn prepend(&mut self, header: &[u8]) -> bool {
        let Some(start) = self.packet_start.checked_sub(header.len()) else { return false };
        self.octets[start..self.packet_start].copy_from_slice(header);
        self.packet_start = start;
        true
    }

    /// Removes `length` octets from the front of the packet and cuts the rest to `remaining` octets.
    pub fn strip_front(&mut self, length: usize, remaining: usize) {
        self.packet_start = (self.packet_start + length).min(self.packet_end);
        self.packet_end = (self.packet_start + remaining).min(self.packet_end);
    }
}

impl Default for PacketBuffer {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_added_and_removed_in_place() {
        let mut buffer = PacketBuffer::new();
        buffer.copy_from(b"inner");
        assert!(buffer.prepend(b"outer "));
        assert_eq!(buffer.as_slice(), b"outer inner");
        buffer.strip_front(6, 3);
        assert_eq!(buffer.as_slice(), b"inn");
        assert_eq!(buffer.packet_with_prefix(b"link "), Some(&b"link inn"[..]));
        assert_eq!(buffer.as_slice(), b"inn");
        buffer.strip_front(9, 9);
        assert_eq!(buffer.as_slice(), b"");
        buffer.empty_space_after(4)[..9].copy_from_slice(b"linkinner");
        buffer.set_filled_length(5);
        assert_eq!(buffer.as_slice(), b"inner");
        assert_eq!(buffer.packet_with_prefix(&[0; 4096]), None);
        assert!(!buffer.prepend(&[0; 4096]));
    }
}
