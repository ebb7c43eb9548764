//! One packet with room before it, so that a header can be put in front without copying.

/// Room for an outer IPv6 header, and for the headers that other encapsulations will need.
const HEADROOM: usize = 96;
/// The largest IPv6 packet without a jumbo payload option.
const MAX_PACKET: usize = 40 + 65_535;

/// A buffer that is read into, changed in place and written out again.
#[derive(Debug)]
pub struct PacketBuffer {
    octets: Box<[u8]>,
    start: usize,
    end: usize,
}

impl PacketBuffer {
    /// An empty buffer.
    pub fn new() -> Self {
        PacketBuffer {
            octets: vec![0; HEADROOM + MAX_PACKET].into_boxed_slice(),
            start: HEADROOM,
            end: HEADROOM,
        }
    }

    /// Empties the buffer and gives the space to read a packet into; [`Self::filled`] says how much came.
    pub fn space(&mut self) -> &mut [u8] {
        self.start = HEADROOM;
        self.end = HEADROOM;
        &mut self.octets[HEADROOM..]
    }

    /// The same with `front` octets more before it, fewer than an outer header takes, for what a device puts
    /// before each packet. They do not become part of it.
    pub fn space_with(&mut self, front: usize) -> &mut [u8] {
        self.start = HEADROOM;
        self.end = HEADROOM;
        self.octets.get_mut(HEADROOM.saturating_sub(front)..).unwrap_or_default()
    }

    /// The packet with these octets right before it, which do not become part of it; nothing where there is
    /// no room.
    pub fn behind(&mut self, front: &[u8]) -> Option<&[u8]> {
        let start = self.start.checked_sub(front.len())?;
        self.octets.get_mut(start..self.start)?.copy_from_slice(front);
        self.octets.get(start..self.end)
    }

    /// `length` octets were read into [`Self::space`].
    pub fn filled(&mut self, length: usize) {
        self.end = (self.start + length).min(self.octets.len());
    }

    /// Puts a copy of `packet` into the buffer, cut to what fits.
    pub fn copy_from(&mut self, packet: &[u8]) {
        let length = packet.len().min(MAX_PACKET);
        if let (Some(space), Some(packet)) = (self.space().get_mut(..length), packet.get(..length)) {
            space.copy_from_slice(packet);
        }
        self.filled(length);
    }

    /// The packet.
    pub fn as_slice(&self) -> &[u8] {
        &self.octets[self.start..self.end]
    }

    /// The packet, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.octets[self.start..self.end]
    }

    /// Puts `header` in front; false when there is no room.
    pub fn prepend(&mut self, header: &[u8]) -> bool {
        let Some(start) = self.start.checked_sub(header.len()) else { return false };
        self.octets[start..self.start].copy_from_slice(header);
        self.start = start;
        true
    }

    /// Takes `length` octets off the front and cuts the rest to `remaining`.
    pub fn strip(&mut self, length: usize, remaining: usize) {
        self.start = (self.start + length).min(self.end);
        self.end = (self.start + remaining).min(self.end);
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
    fn headers_come_and_go_in_place() {
        let mut buffer = PacketBuffer::new();
        buffer.copy_from(b"inner");
        assert!(buffer.prepend(b"outer "));
        assert_eq!(buffer.as_slice(), b"outer inner");
        buffer.strip(6, 3);
        assert_eq!(buffer.as_slice(), b"inn");
        assert_eq!(buffer.behind(b"link "), Some(&b"link inn"[..]));
        assert_eq!(buffer.as_slice(), b"inn");
        buffer.strip(9, 9);
        assert_eq!(buffer.as_slice(), b"");
        buffer.space_with(4)[..9].copy_from_slice(b"linkinner");
        buffer.filled(5);
        assert_eq!(buffer.as_slice(), b"inner");
        assert_eq!(buffer.behind(&[0; 4096]), None);
        assert!(!buffer.prepend(&[0; 4096]));
    }
}
