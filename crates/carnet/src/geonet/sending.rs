//! Packets that operators send: `POST /v1/gnsend`.
//!
//! The router passes its packets to the link and gets no result. So this module refuses a packet that cannot
//! leave, as far as it can know this. The operator then sees the reason.

use carnet_api::model::{GnArea, GnNextHeader, GnSendRequest, GnTransport};
use carnet_base::Time;
use carnet_cits::position::to_tenths_of_microdegrees;
use carnet_linux::frame_link::LinkState;
use carnet_station::Station;
use carnet_station::io::{Area, AreaShape, GeonetRequest, GeonetTransport};
use carnet_wire::btp::{BtpA, BtpB};

use super::{Geonet, link_state_name, station_address};

impl Geonet {
    /// Converts the body of `POST /v1/gnsend` to a request of the station.
    ///
    /// # Errors
    /// Returns an error if the target is unknown, or if the link would not take the packet.
    pub fn geonet_request(
        &self,
        now: Time,
        packet: GnSendRequest,
        station: &Station,
    ) -> Result<GeonetRequest, String> {
        let transport = match packet.transport {
            GnTransport::Guc { to } => GeonetTransport::GeoUnicast(station_address(to)?),
            GnTransport::Gac { area } => {
                GeonetTransport::GeoAnycast(self.area_at_present(now, &area, station)?)
            }
            GnTransport::Gbc { area } => {
                GeonetTransport::GeoBroadcast(self.area_at_present(now, &area, station)?)
            }
            GnTransport::Tsb {} => GeonetTransport::TopologicallyScoped,
            GnTransport::Shb {} => GeonetTransport::SingleHop,
        };
        let (next_header, header) = match (packet.next_header, packet.port) {
            (GnNextHeader::Any, _) => (0, None),
            (GnNextHeader::BtpA, port) => {
                let header = |port| BtpA { destination_port: port, source_port: 0 }.to_octets();
                (1, port.map(header))
            }
            (GnNextHeader::BtpB, port) => {
                let header = |port| BtpB { destination_port: port, destination_port_info: 0 }.to_octets();
                (2, port.map(header))
            }
            (GnNextHeader::Ipv6, _) => (3, None),
        };
        let payload: Vec<u8> = header.into_iter().flatten().chain(packet.payload.0).collect();
        // A packet with store-carry-forward may wait until the link is back.
        if !packet.scf {
            self.check_link()?;
        }
        self.check_length(headers_length(&transport), payload.len())?;
        Ok(GeonetRequest {
            transport,
            next_header,
            store_carry_forward: packet.scf,
            traffic_class: 0,
            lifetime_ms: packet.lifetime_ms,
            hop_limit: packet.hop_limit,
            payload,
        })
    }

    /// Returns an area at its present position.
    ///
    /// # Errors
    /// Returns an error if the area does not exist, or if its position is unknown.
    pub fn area_at_present(&self, now: Time, area: &GnArea, station: &Station) -> Result<Area, String> {
        match area {
            GnArea::Name(name) => self.area_by_name(now, name, station),
            GnArea::Circle(circle) => Ok(Area {
                shape: AreaShape::Circle,
                latitude: to_tenths_of_microdegrees(circle.latitude),
                longitude: to_tenths_of_microdegrees(circle.longitude),
                distance_a: circle.radius_m,
                distance_b: 0,
                angle: 0,
            }),
        }
    }

    /// Checks that the link can send.
    ///
    /// # Errors
    /// Returns an error if the link cannot send.
    pub fn check_link(&self) -> Result<(), String> {
        match self.frame_link.state() {
            LinkState::Up => Ok(()),
            state => Err(format!(
                "cannot send the packet: the radio interface of GeoNetworking is {}",
                link_state_name(state)
            )),
        }
    }

    fn check_length(&self, headers: usize, payload: usize) -> Result<(), String> {
        let mtu = self.frame_link.mtu() as usize;
        // An MTU of 0 means that the MTU is not known yet.
        if mtu > 0 && headers + payload > mtu {
            let room = mtu.saturating_sub(headers);
            return Err(format!("the payload has {payload} octets, expected at most {room} over this link"));
        }
        Ok(())
    }
}

/// Returns the length in octets of the GeoNetworking headers (EN 302 636-4-1 9.8). Basic and Common Header
/// together have twelve octets.
fn headers_length(transport: &GeonetTransport) -> usize {
    match transport {
        GeonetTransport::GeoUnicast(_) => 60,
        GeonetTransport::GeoAnycast(_) | GeonetTransport::GeoBroadcast(_) => 56,
        GeonetTransport::TopologicallyScoped | GeonetTransport::SingleHop => 40,
    }
}
