//! Home Agent Switch (RFC 5142 4): a home agent asks a mobile node to register elsewhere.
//!
//! ```text
//!   6: # of Addresses, Reserved
//!   8: Home Agent Addresses, 16 octets each, the first to be tried first
//!      mobility options, such as Binding Refresh Advice and what authenticates the message
//! ```

use super::options::MobilityOptions;
use crate::Error;
use crate::octets::{octets_from, slice_at, u8_at};
use std::net::Ipv6Addr;

/// The most addresses that [`super::MobilityHeaderBuilder::home_agent_switch`] writes, so that the packet
/// fits the minimum MTU.
pub const MAX_ADDRESSES: usize = 64;
/// Offset of the addresses in the Mobility Header, octets.
const ADDRESSES_OFFSET: usize = 8;

/// Home Agent Switch message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeAgentSwitch<'a> {
    addresses: &'a [u8],
    /// The mobility options.
    pub options: MobilityOptions<'a>,
}

impl<'a> HomeAgentSwitch<'a> {
    /// Reads the message from a whole Mobility Header.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the addresses or an option exceed the message.
    pub(crate) fn parse(octets: &'a [u8]) -> Result<Self, Error> {
        let options = options_offset(octets)?;
        Ok(HomeAgentSwitch {
            addresses: slice_at(octets, ADDRESSES_OFFSET, options - ADDRESSES_OFFSET, NAME_IN_ERRORS)?,
            options: MobilityOptions::parse(octets_from(octets, options, NAME_IN_ERRORS)?)?,
        })
    }

    /// Returns the addresses of the home agents in the order in which the mobile node tries them. If the list
    /// is empty, the mobile node searches for a home agent itself.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv6Addr> + use<'a> {
        let chunks = self.addresses.chunks_exact(16);
        chunks.filter_map(|octets| octets.first_chunk::<16>().copied().map(Ipv6Addr::from))
    }
}

const NAME_IN_ERRORS: &str = "home agent switch";

/// Returns the offset of the options in a Home Agent Switch message.
///
/// # Errors
/// [`Error::Truncated`] if the message ends before the number of addresses.
pub(crate) fn options_offset(octets: &[u8]) -> Result<usize, Error> {
    Ok(ADDRESSES_OFFSET + usize::from(u8_at(octets, 6, NAME_IN_ERRORS)?) * 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mobility::{MobilityHeader, MobilityHeaderBuilder, MobilityOption, ParsedMobilityMessage};

    fn example_addresses() -> [Ipv6Addr; 2] {
        ["2001:db8:1::2", "2001:db8:1::3"].map(|text| text.parse().expect("an address"))
    }

    #[test]
    fn home_agent_switch_is_encoded_and_decoded() {
        let octets = MobilityHeaderBuilder::home_agent_switch(&example_addresses())
            .option(&MobilityOption::BindingRefreshAdvice(15))
            .finish();
        assert_eq!(octets.len(), 48);
        assert_eq!(octets[..8], [59, 5, 12, 0, 0, 0, 2, 0]);
        let header = MobilityHeader::parse(&octets).expect("a header");
        let Ok(ParsedMobilityMessage::HomeAgentSwitch(switch)) = header.message() else {
            panic!("another message")
        };
        assert_eq!(switch.addresses().collect::<Vec<_>>(), example_addresses());
        let options: Vec<_> = switch.options.iter().collect();
        assert_eq!(options, [Ok(MobilityOption::BindingRefreshAdvice(15))]);
    }

    #[test]
    fn empty_home_agent_switch_has_eight_octets() {
        // RFC 5142 4: "no padding is necessary and the Header Len field ... will be set to zero".
        let octets = MobilityHeaderBuilder::home_agent_switch(&[]).finish();
        assert_eq!(octets, [59, 0, 12, 0, 0, 0, 0, 0]);
        let header = MobilityHeader::parse(&octets).expect("a header");
        let Ok(ParsedMobilityMessage::HomeAgentSwitch(switch)) = header.message() else {
            panic!("another message")
        };
        assert_eq!(switch.addresses().count(), 0);
    }

    #[test]
    fn home_agent_switch_with_wrong_address_count_is_refused() {
        let mut octets = MobilityHeaderBuilder::home_agent_switch(&example_addresses()).finish();
        octets[6] = 3;
        assert!(MobilityHeader::parse(&octets).expect("a header").message().is_err());
    }

    #[test]
    fn home_agent_switch_limits_number_of_addresses() {
        let octets = MobilityHeaderBuilder::home_agent_switch(&[Ipv6Addr::LOCALHOST; 300]).finish();
        assert_eq!(usize::from(octets[6]), MAX_ADDRESSES);
        assert_eq!(octets.len(), 8 + MAX_ADDRESSES * 16);
    }
}
