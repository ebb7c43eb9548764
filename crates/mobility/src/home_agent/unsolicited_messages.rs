//! Messages that the home agent sends to a registered node unsolicited: Home Agent Switch (RFC 5142), Binding
//! Revocation (RFC 5846), Binding Refresh Request (RFC 6275 9.5.5).
//!
//! Home Agent Switch and Binding Revocation move or end traffic, so their RFCs require IPsec. If the node has
//! a shared key, carnet uses RFC 4285's authentication option instead. The MAC covers the message's
//! destination as care-of address; inside IPv4 it covers the home address. A Message-ID option contains the
//! time of sending, which is greater in each message. So a node detects a replay.
//!
//! The option alone does not detect a message that an attacker holds back and delivers later. So each
//! acknowledgement of a registration without timestamps also has a Message-ID option, with the home agent's
//! time. The node accepts an unsolicited message only if its time is close to the home agent's present time.

use carnet_base::{Time, WallTime};
use carnet_wire::mobility::{ControlPacket, MobilityHeaderBuilder, MobilityOption};

use super::acknowledgements::build_encapsulated_output;
use super::request::BindingUpdateRequest;
use super::{Binding, HomeAgentConfig};
use crate::security::NOTICE_TIMESTAMP_WINDOW;
use crate::sequence::is_later;
use crate::{HOP_LIMIT, Output};

/// Times of the unsolicited messages to nodes.
#[derive(Debug, Default)]
pub(super) struct NoticeTimestamps {
    /// Timestamp of the last unsolicited message to any node; `None` before the first one.
    pub(super) last_timestamp: Option<u64>,
    /// Monotonic time and time of day at which the home agent last received a Binding Update; `None` before
    /// the first one.
    pub(super) last_update_times: Option<(Time, WallTime)>,
}

impl NoticeTimestamps {
    /// Returns the time of sending for an authenticated message, as an NTP timestamp that is greater than all
    /// earlier ones. After the operator has set the clock back, it may be smaller: nodes learn the present
    /// time from acknowledgements ([`Self::timestamp_for_node`]).
    fn next_timestamp(&mut self, wall: WallTime) -> u64 {
        let time = match self.last_timestamp {
            Some(last)
                if !is_later(wall.to_ntp(), last)
                    && WallTime::from_ntp(last, wall).absolute_difference(wall)
                        <= NOTICE_TIMESTAMP_WINDOW / 2 =>
            {
                last.wrapping_add(1)
            }
            _ => wall.to_ntp(),
        };
        self.last_timestamp = Some(time);
        time
    }

    /// Returns the home agent's time for the acknowledgement of a registration, as an NTP timestamp. Returns
    /// `None` if the node has no key, because nothing would authenticate the time.
    pub(super) fn timestamp_for_node(
        &self,
        now: Time,
        config: &HomeAgentConfig,
        request: &BindingUpdateRequest,
    ) -> Option<u64> {
        let node = config.node(request.home_address)?;
        node.authentication.association_of(request.spi)?;
        let (then, wall) = self.last_update_times?;
        Some((wall + now.saturating_since(then)).to_ntp())
    }

    /// Returns a message to the node over a binding. Authenticates the message if the node has a key. During
    /// a change of keys the node has the key of the `spi` that it used last, but perhaps not yet the new one.
    pub(super) fn build_notice(
        &mut self,
        wall: WallTime,
        config: &HomeAgentConfig,
        spi: Option<u32>,
        binding: &Binding,
        builder: MobilityHeaderBuilder,
    ) -> Output {
        let home_address = binding.home_address;
        let time = MobilityOption::MessageIdentifier(self.next_timestamp(wall));
        let node = config.node(home_address);
        let mut mobility_header = match node.and_then(|node| node.authentication.association_of(spi)) {
            Some(association) => {
                let mut octets =
                    builder.option(&time).option(&association.empty_authentication_option()).finish();
                let destination = binding.care_of_address.ipv6().unwrap_or(home_address);
                association.sign(&mut octets, destination, home_address);
                octets
            }
            None => builder.finish(),
        };
        build_packet(config, binding, &mut mobility_header)
    }
}

/// Returns a Binding Refresh Request, which asks the node to renew a binding that is about to end (RFC 6275
/// 9.5.5).
pub(super) fn build_refresh_request(config: &HomeAgentConfig, binding: &Binding) -> Output {
    build_packet(config, binding, &mut MobilityHeaderBuilder::binding_refresh_request().finish())
}

/// Returns a message to the node over a binding.
fn build_packet(config: &HomeAgentConfig, binding: &Binding, mobility_header: &mut [u8]) -> Output {
    let home_address = binding.home_address;
    let care_of_address = binding.care_of_address.ipv6();
    let packet = ControlPacket {
        source: config.address,
        // Inside IPv4 the packet's destination is the home address (RFC 5555 4.2).
        destination: care_of_address.unwrap_or(home_address),
        hop_limit: HOP_LIMIT,
        home_address: None,
        routing_home_address: care_of_address.map(|_| home_address),
        mobility_header,
    };
    build_encapsulated_output(Some(binding.tunnel_ends()), packet.emit())
}
