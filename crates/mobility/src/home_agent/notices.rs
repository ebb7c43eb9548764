//! Messages that the home agent sends to a registered node unsolicited: Home Agent Switch (RFC 5142), Binding
//! Revocation (RFC 5846), Binding Refresh Request (RFC 6275 9.5.5).
//!
//! The first two move or end traffic. Their RFCs require IPsec; if the node has a shared key, RFC 4285's
//! authentication option replaces it. The MAC covers as care-of address the message's destination (inside
//! IPv4 the home address). A Message-ID option with the time of sending, greater in each message, protects
//! against replays. It does not make a message old that an attacker withholds. So each acknowledgement of a
//! registration without timestamps has a Message-ID option as well. It gives the node the home agent's time,
//! to which the time of the next notice must be close.

use carnet_base::{Time, WallTime};
use carnet_wire::mobility::{Builder, ControlPacket, MobilityOption};

use super::request::Request;
use super::{Binding, HomeAgent};
use crate::HOP_LIMIT;
use crate::security::NOTICE_WINDOW;
use crate::sequence::is_later;

impl HomeAgent {
    /// Returns the time of sending of an authenticated notice, as an NTP timestamp greater than all before.
    /// After the clock was set back it may be smaller, because nodes know the present time by
    /// [`Self::time_for_node`].
    fn notice_time(&mut self, wall: WallTime) -> u64 {
        let time = match self.last_notice {
            Some(last)
                if !is_later(wall.to_ntp(), last)
                    && WallTime::from_ntp(last, wall).distance(wall) <= NOTICE_WINDOW / 2 =>
            {
                last.wrapping_add(1)
            }
            _ => wall.to_ntp(),
        };
        self.last_notice = Some(time);
        time
    }

    /// Returns the home agent's time for the acknowledgement of a registration, as an NTP timestamp; `None`
    /// if the node has no key, because the time would be unauthenticated.
    pub(super) fn time_for_node(&self, now: Time, request: &Request) -> Option<u64> {
        let node = self.config.node(request.home_address)?;
        node.authentication.association_of(request.spi)?;
        let (then, wall) = self.clock?;
        Some((wall + now.saturating_since(then)).to_ntp())
    }

    /// Sends a message to the node over a binding, authenticated if the node has a key.
    pub(super) fn notify(&mut self, wall: WallTime, binding: &Binding, builder: Builder) {
        let home_address = binding.home_address;
        let time = MobilityOption::MessageIdentifier(self.notice_time(wall));
        // During a change of keys the node has the key that it used last, and perhaps not yet another.
        let spi = self.spis.get(&home_address).copied();
        let node = self.config.node(home_address);
        let mut mobility_header = match node.and_then(|node| node.authentication.association_of(spi)) {
            Some(association) => {
                let mut octets = builder.option(&time).option(&association.blank_option()).finish();
                let destination = binding.care_of_address.ipv6().unwrap_or(home_address);
                association.sign(&mut octets, destination, home_address);
                octets
            }
            None => builder.finish(),
        };
        self.send_notice(binding, &mut mobility_header);
    }

    fn send_notice(&mut self, binding: &Binding, mobility_header: &mut [u8]) {
        let home_address = binding.home_address;
        let care_of_address = binding.care_of_address.ipv6();
        let packet = ControlPacket {
            source: self.config.address,
            // Inside IPv4 the packet's destination is the home address (RFC 5555 4.2).
            destination: care_of_address.unwrap_or(home_address),
            hop_limit: HOP_LIMIT,
            home_address: None,
            routing_home_address: care_of_address.map(|_| home_address),
            mobility_header,
        };
        let packet = packet.emit();
        self.send(Some(binding.ends()), packet);
    }

    /// RFC 6275 9.5.5: asks the node to renew a binding that is about to end.
    pub(super) fn request_refresh(&mut self, now: Time, home_address: std::net::Ipv6Addr, bid: Option<u16>) {
        self.cache.set_asked(home_address, bid);
        let binding = self.cache.get(home_address, bid).filter(Binding::is_valid);
        // A node that is to leave is not asked to renew.
        if let Some(binding) = binding.filter(|binding| binding.expires > now)
            && !self.is_draining()
        {
            let mut mobility_header = Builder::binding_refresh_request().finish();
            self.send_notice(&binding, &mut mobility_header);
        }
    }
}
