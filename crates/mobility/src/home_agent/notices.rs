//! What the home agent says to a registered node unasked: Home Agent Switch (RFC 5142), Binding Revocation
//! (RFC 5846), Binding Refresh Request (RFC 6275 9.5.5).
//!
//! The first two move or end traffic. Their RFCs want IPsec; where the node has a shared key, RFC 4285's
//! authentication option takes its place. Its MAC covers, as care-of address, the address that the message is
//! sent to (inside IPv4 that is the home address), and a Message-ID option, the time of sending, greater in
//! each, keeps recordings out. A message that an attacker withholds is not old by that. So each
//! acknowledgement of a registration without timestamps has a Message-ID option as well: it tells the node
//! the time of the home agent, to which the next notice has to be near.

use carnet_base::{Time, WallTime};
use carnet_wire::mobility::{Builder, ControlPacket, MobilityOption};

use super::request::Request;
use super::{Binding, HomeAgent};
use crate::HOP_LIMIT;
use crate::security::NOTICE_WINDOW;
use crate::sequence::is_later;

impl HomeAgent {
    /// The time of sending of an authenticated notice, as an NTP timestamp greater than all before; except
    /// after the clock was set back, for nodes know the present time by [`Self::time_for_node`].
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

    /// The time of this home agent for the acknowledgement of a registration, as an NTP timestamp; `None`
    /// where the node has no key, and nothing vouches for the time.
    pub(super) fn time_for_node(&self, now: Time, request: &Request) -> Option<u64> {
        let node = self.config.node(request.home_address)?;
        node.authentication.association_of(request.spi)?;
        let (then, wall) = self.clock?;
        Some((wall + now.saturating_since(then)).to_ntp())
    }

    /// Sends a message to the node of a binding by the way of that binding, authenticated where it has a key.
    pub(super) fn notify(&mut self, wall: WallTime, binding: &Binding, builder: Builder) {
        let home_address = binding.home_address;
        let time = MobilityOption::MessageIdentifier(self.notice_time(wall));
        // While the key changes the node has the one that it has used last, if not another one besides.
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
            // Inside IPv4 the packet bears the home address (RFC 5555 4.2).
            destination: care_of_address.unwrap_or(home_address),
            hop_limit: HOP_LIMIT,
            home_address: None,
            routing_home_address: care_of_address.map(|_| home_address),
            mobility_header,
        };
        let packet = packet.emit();
        self.send(Some(binding.ends()), packet);
    }

    /// RFC 6275 9.5.5: the binding is about to end, and has not been renewed.
    pub(super) fn request_refresh(&mut self, now: Time, home_address: std::net::Ipv6Addr, bid: Option<u16>) {
        self.cache.set_asked(home_address, bid);
        let binding = self.cache.get(home_address, bid).filter(Binding::is_valid);
        // Whoever is to leave shall not be asked to stay.
        if let Some(binding) = binding.filter(|binding| binding.expires > now)
            && !self.is_draining()
        {
            let mut mobility_header = Builder::binding_refresh_request().finish();
            self.send_notice(&binding, &mut mobility_header);
        }
    }
}
