//! Inputs and outputs of the services: times, and messages to send.

use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::{Request, Transport};
use carnet_wire::btp::BtpB;
use carnet_wire::geonet::{CommonNextHeader, TrafficClass};

use crate::ItsDrop;
use crate::cdd::TimestampIts;
use crate::uper::{Uper, Writer};

/// The time of two clocks: monotonic time for timers, and the date for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItsTime {
    /// Monotonic time.
    pub time: Time,
    /// Date, in the timestamps of messages.
    pub timestamp: TimestampIts,
}

/// A message for the network: transport parameters, and octets with the BTP-B header in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageTransmission {
    /// Packet transport type and destination.
    pub transport: Transport,
    /// Traffic class.
    pub traffic_class: TrafficClass,
    /// Longest time that the packet may wait in buffers.
    pub maximum_lifetime: Duration,
    /// Maximum hop limit; the router's default if `None`.
    pub maximum_hop_limit: Option<u8>,
    /// Octets of BTP-B header and message.
    pub payload: Vec<u8>,
}

impl MessageTransmission {
    /// Returns the request to the router.
    pub fn to_request(&self) -> Request<'_> {
        Request {
            traffic_class: self.traffic_class,
            maximum_lifetime: Some(self.maximum_lifetime),
            maximum_hop_limit: self.maximum_hop_limit,
            ..Request::new(self.transport, CommonNextHeader::BtpB, &self.payload)
        }
    }
}

/// Returns the octets of a message, preceded by the BTP-B header for `port`.
pub(crate) fn encode_btp_payload(port: u16, message: &impl Uper) -> Result<Vec<u8>, ItsDrop> {
    let mut writer = Writer::new(Vec::with_capacity(256));
    writer.write_octets(&BtpB { destination_port: port, destination_port_info: 0 }.to_octets());
    message.encode(&mut writer);
    writer.finish().map_err(|_| ItsDrop::NotEncodable)
}
