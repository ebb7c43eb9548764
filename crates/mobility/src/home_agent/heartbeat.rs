//! Heartbeats (RFC 5847): a node asks over each of its paths whether the home agent is reachable.
//!
//! By RFC 5847 every request is answered. Here the home agent answers only a request over a registered path,
//! so that a stranger cannot direct packets at others, and up to a limit of many times a node's need. A
//! request of a known home address inside IPv4 from elsewhere draws a Binding Error, so that the node
//! registers from there. The home agent sends no requests, because nodes renew their bindings.

use carnet_base::{Endpoint, Time};
use carnet_wire::mobility::message::Heartbeat;
use carnet_wire::mobility::{Builder, ControlPacket, MobilityOption};

use super::HomeAgent;
use crate::{HOP_LIMIT, MobilityDrop, MobilityMessage};

impl HomeAgent {
    pub(super) fn heartbeat(
        &mut self,
        now: Time,
        message: &MobilityMessage<'_>,
        heartbeat: &Heartbeat<'_>,
    ) -> Result<(), MobilityDrop> {
        if heartbeat.response {
            return Err(MobilityDrop::Unexpected);
        }
        let care_of_address = message.outer.map_or(Endpoint::Ipv6(message.source), |(_, node)| node);
        let bound = match message.outer {
            // Inside IPv4 the packet's source is the home address.
            Some(_) => self
                .cache
                .of(message.source)
                .any(|binding| binding.care_of_address == care_of_address)
                .then_some(message.source),
            None => self.cache.bound_to(care_of_address),
        };
        let Some(home_address) = bound else {
            // A NAT has given the node another address, or its binding is lost: the home agent treats the
            // request like any packet from there.
            if let Some((local, remote)) = message.outer {
                self.unbound(now, local, remote, message.source);
            }
            return Err(MobilityDrop::WrongParty);
        };
        if !self.limits.entry(home_address).or_default().heartbeats.allow(now) {
            return Err(MobilityDrop::RateLimited);
        }
        let mut mobility_header = Builder::heartbeat_response(heartbeat.sequence)
            .option(&MobilityOption::RestartCounter(self.restart_counter))
            .finish();
        let packet = ControlPacket {
            source: self.config.address,
            destination: message.source,
            hop_limit: HOP_LIMIT,
            home_address: None,
            routing_home_address: None,
            mobility_header: &mut mobility_header,
        };
        let packet = packet.emit();
        self.send(message.outer, packet);
        Ok(())
    }
}
