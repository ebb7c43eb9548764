//! Encodes the GeoNetworking frames of the bench's tester (EN 302 636-4-1 V1.4.1 clause 9), without carnet's
//! own encoder.

/// Length in octets of an Ethernet header: destination, source, EtherType.
pub const ETHERNET_HEADER_LENGTH: usize = 14;
/// Offset of the Remaining Hop Limit in a frame.
pub const REMAINING_HOPS_OFFSET: usize = ETHERNET_HEADER_LENGTH + 3;
/// Offset of header type and subtype (HT and HST) of the Common Header.
pub const HEADER_TYPE_OFFSET: usize = ETHERNET_HEADER_LENGTH + 5;
/// Offset of the sequence number of a multi-hop packet.
pub const SEQUENCE_NUMBER_OFFSET: usize = ETHERNET_HEADER_LENGTH + 12;
/// Offset of the MID of the source of a multi-hop packet.
pub const SOURCE_MID_OFFSET: usize = ETHERNET_HEADER_LENGTH + 18;
/// Minimum length in octets of an Ethernet frame without its checksum.
const MINIMUM_FRAME_LENGTH: usize = 60;

/// A link-layer address.
pub type Mac = [u8; 6];
/// The broadcast link-layer address.
pub const BROADCAST_MAC: Mac = [0xff; 6];

/// A place in tenths of a microdegree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeoPosition {
    pub latitude: i32,
    pub longitude: i32,
}

impl GeoPosition {
    /// Returns latitude and longitude in degrees.
    pub fn to_degrees(self) -> (f64, f64) {
        (f64::from(self.latitude) / 1e7, f64::from(self.longitude) / 1e7)
    }

    /// Returns the place `metres` to the north, along the meridian of WGS 84.
    pub fn moved_north(self, metres: f64) -> GeoPosition {
        let (a, e2) = (6_378_137.0, 6.694_379_990_141_316e-3);
        let middle = self.to_degrees().0 + metres / 111_200.0 / 2.0;
        let radius = a * (1.0 - e2) / (1.0 - e2 * middle.to_radians().sin().powi(2)).powf(1.5);
        let latitude = self.latitude + ((metres / radius).to_degrees() * 1e7).round() as i32;
        GeoPosition { latitude, ..self }
    }
}

/// Converts nanoseconds since 1970 to the timestamp in a packet: milliseconds of TAI since 2004, with five
/// leap seconds (9.5.2.2).
pub fn gn_timestamp(unix_nanoseconds: u64) -> u32 {
    let milliseconds = unix_nanoseconds / 1_000_000;
    milliseconds.wrapping_sub(1_072_915_200_000).wrapping_add(5000) as u32
}

/// A station that sends its position in each packet.
#[derive(Debug, Clone, Copy)]
pub struct SendingStation {
    pub mac: Mac,
    pub position: GeoPosition,
    pub timestamp: u32,
}

impl SendingStation {
    /// Returns the GN_ADDR of a passenger car with this MID.
    fn gn_address(mac: Mac) -> [u8; 8] {
        let [a, b, c, d, e, f] = mac;
        [5 << 2, 0, a, b, c, d, e, f]
    }

    /// Encodes the station's Long Position Vector, with an accurate position and speed 0.
    fn long_position_vector(&self) -> Vec<u8> {
        let mut octets = Self::gn_address(self.mac).to_vec();
        octets.extend_from_slice(&self.timestamp.to_be_bytes());
        octets.extend_from_slice(&self.position.latitude.to_be_bytes());
        octets.extend_from_slice(&self.position.longitude.to_be_bytes());
        octets.extend_from_slice(&[0x80, 0, 0, 0]);
        octets
    }

    /// Encodes a frame to `destination`: link-layer header, Basic and Common Header, extended header, payload
    /// of BTP-B.
    fn build_frame(&self, destination: Mac, kind: u8, hops: u8, extended: &[u8], payload: &[u8]) -> Vec<u8> {
        let next_header = if payload.is_empty() { 0 } else { 0x20 };
        let [high, low] = (payload.len() as u16).to_be_bytes();
        let basic = [0x11, 0, 0x1a, hops];
        let common = [next_header, kind, 0, 0x80, high, low, hops, 0];
        let mut frame =
            [&destination[..], &self.mac, &[0x89, 0x47], &basic, &common, extended, payload].concat();
        frame.resize(frame.len().max(MINIMUM_FRAME_LENGTH), 0);
        frame
    }

    /// Encodes a beacon.
    pub fn beacon_frame(&self) -> Vec<u8> {
        self.build_frame(BROADCAST_MAC, 0x10, 1, &self.long_position_vector(), &[])
    }

    /// Encodes a GeoUnicast packet to a station through `next_hop`.
    pub fn unicast_frame(
        &self,
        next_hop: Mac,
        to: &SendingStation,
        sequence: u16,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut extended = self.sequence_number_octets(sequence);
        extended.extend_from_slice(&to.long_position_vector()[..20]);
        self.build_frame(next_hop, 0x20, 10, &extended, payload)
    }

    /// Encodes a GeoBroadcast packet for a circle.
    pub fn geobroadcast_frame(
        &self,
        next_hop: Mac,
        centre: GeoPosition,
        radius: u16,
        sequence: u16,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut extended = self.sequence_number_octets(sequence);
        extended.extend_from_slice(&centre.latitude.to_be_bytes());
        extended.extend_from_slice(&centre.longitude.to_be_bytes());
        extended.extend_from_slice(&radius.to_be_bytes());
        extended.extend_from_slice(&[0; 6]);
        self.build_frame(next_hop, 0x40, 10, &extended, payload)
    }

    fn sequence_number_octets(&self, sequence: u16) -> Vec<u8> {
        let [high, low] = sequence.to_be_bytes();
        [&[high, low, 0, 0][..], &self.long_position_vector()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_POSITION: GeoPosition = GeoPosition { latitude: 488_375_000, longitude: 21_008_000 };

    #[test]
    fn frame_fields_have_the_offsets_of_the_standard() {
        let speaker =
            SendingStation { mac: [2, 0, 0, 0, 0, 7], position: TEST_POSITION, timestamp: 0x0102_0304 };
        let beacon = speaker.beacon_frame();
        assert_eq!(beacon.len(), MINIMUM_FRAME_LENGTH);
        assert_eq!(beacon[12..26], [0x89, 0x47, 0x11, 0, 0x1a, 1, 0, 0x10, 0, 0x80, 0, 0, 1, 0]);
        assert_eq!(beacon[26..38], [0x14, 0, 2, 0, 0, 0, 0, 7, 1, 2, 3, 4]);
        let far = SendingStation { mac: [2, 0, 0, 0, 0, 9], ..speaker };
        let unicast = speaker.unicast_frame([2; 6], &far, 0xabcd, b"payload");
        assert_eq!(unicast.len(), ETHERNET_HEADER_LENGTH + 12 + 48 + 7);
        assert_eq!(unicast[SEQUENCE_NUMBER_OFFSET..SEQUENCE_NUMBER_OFFSET + 2], [0xab, 0xcd]);
        assert_eq!(unicast[SOURCE_MID_OFFSET..SOURCE_MID_OFFSET + 6], speaker.mac);
        assert_eq!((unicast[REMAINING_HOPS_OFFSET], unicast[HEADER_TYPE_OFFSET]), (10, 0x20));
        let circle = speaker.geobroadcast_frame(BROADCAST_MAC, TEST_POSITION, 500, 1, b"payload");
        assert_eq!(circle.len(), ETHERNET_HEADER_LENGTH + 12 + 44 + 7);
        assert_eq!(
            circle[ETHERNET_HEADER_LENGTH + 12 + 36..ETHERNET_HEADER_LENGTH + 12 + 44],
            [1, 244, 0, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn frame_contains_the_set_time_and_position() {
        // The timestamp of 2026-11-21T12:00:00Z was computed by hand from the standard.
        assert_eq!(gn_timestamp(1_795_262_400 * 1_000_000_000), 0x2f3f_a188);
        // A minute of latitude at 48.8 degrees is 1853.4 m.
        let minute = TEST_POSITION.moved_north(1853.43).latitude - TEST_POSITION.latitude;
        assert!((166_660..166_674).contains(&minute), "{minute}");
    }
}
