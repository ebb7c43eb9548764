//! Stateless DHCPv6 for one interface (RFC 8415): answers Information-requests with DNS servers, search list
//! and captive portal.
//!
//! Hosts get the same values by Router Advertisements, and their addresses from there as well. This server is
//! for hosts that take DNS servers only from DHCPv6. Left out: addresses, prefix delegation, relay agents,
//! Reconfigure and authentication.

use std::net::Ipv6Addr;

use carnet_base::{RateLimiter, Time};
use carnet_wire::nd::host_configuration::encode_domain_name;

use crate::LinkAddress;

/// Types of messages (RFC 8415 7.3).
const REPLY: u8 = 7;
const INFORMATION_REQUEST: u8 = 11;
const RELAY_FORWARD: u8 = 12;
/// Codes of options (RFC 8415 21, RFC 3646, RFC 8910).
mod code {
    pub const CLIENT_ID: u16 = 1;
    pub const SERVER_ID: u16 = 2;
    pub const IA_NA: u16 = 3;
    pub const IA_TA: u16 = 4;
    pub const REQUEST: u16 = 6;
    pub const DNS: u16 = 23;
    pub const SEARCH: u16 = 24;
    pub const IA_PD: u16 = 25;
    pub const REFRESH: u16 = 32;
    pub const CAPTIVE_PORTAL: u16 = 103;
}
/// Maximum length of a client's DUID in octets (RFC 8415 11.1).
const MAX_DUID: usize = 130;
/// Seconds after which hosts request the values again. This is the minimum (`IRT_MINIMUM`, RFC 8415 7.6),
/// because the values change with the vehicle's config.
const REFRESH_TIME: u32 = 600;
/// Number of messages that the server may process at once. The next constant is the time until it may process
/// one more.
const BURST: u32 = 1000;
const INTERVAL: std::time::Duration = std::time::Duration::from_millis(1);

carnet_base::drop_reasons! {
    /// Reason for which the server did not answer a message.
    pub enum Dhcpv6Drop {
        /// The octets are no DHCPv6 message of a client.
        Malformed = "malformed",
        /// A relay agent sent the message; the server serves its own link only.
        Relayed = "relayed",
        /// The client requests an address or a prefix, which this server does not assign.
        NotSupported = "not_supported",
        /// The message is for another server.
        OtherServer = "other_server",
        /// The sender has no link-local address.
        Source = "source",
        /// More messages arrived than the server processes.
        RateLimit = "rate_limit",
    }
}

/// Config of the server of one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dhcpv6Config {
    /// DNS servers.
    pub dns: Vec<Ipv6Addr>,
    /// Domain names that hosts append to short names.
    pub search: Vec<String>,
    /// URI of the captive portal's API.
    pub captive_portal: Option<String>,
}

/// The server of one interface.
#[derive(Debug)]
pub struct Dhcpv6Server {
    config: Dhcpv6Config,
    limiter: RateLimiter,
    /// Number of received messages, and number of sent answers.
    counts: (u64, u64),
    drops: [u64; Dhcpv6Drop::ALL.len()],
}

impl Dhcpv6Server {
    /// Creates a server.
    pub fn new(config: Dhcpv6Config) -> Dhcpv6Server {
        let limiter = RateLimiter::new(BURST, INTERVAL);
        Dhcpv6Server { config, limiter, counts: (0, 0), drops: [0; Dhcpv6Drop::ALL.len()] }
    }

    /// Sets the values for hosts.
    pub fn set_config(&mut self, config: Dhcpv6Config) {
        self.config = config;
    }

    /// Returns the answer to a UDP payload from `source`. `link_address` is the interface's link-layer
    /// address, from which the server derives its identity (DUID).
    pub fn handle_message(
        &mut self,
        now: Time,
        link_address: LinkAddress,
        source: Ipv6Addr,
        octets: &[u8],
    ) -> Option<Vec<u8>> {
        self.counts.0 += 1;
        match self.answer(now, link_address, source, octets) {
            Ok(reply) => {
                self.counts.1 += 1;
                Some(reply)
            }
            Err(reason) => {
                let count = Dhcpv6Drop::ALL.iter().position(|known| *known == reason);
                *self.drops.get_mut(count?)? += 1;
                None
            }
        }
    }

    fn answer(
        &mut self,
        now: Time,
        link_address: LinkAddress,
        source: Ipv6Addr,
        octets: &[u8],
    ) -> Result<Vec<u8>, Dhcpv6Drop> {
        if !self.limiter.allow(now) {
            return Err(Dhcpv6Drop::RateLimit);
        }
        if !source.is_unicast_link_local() {
            return Err(Dhcpv6Drop::Source);
        }
        let ([kind, transaction @ ..], options) =
            octets.split_first_chunk::<4>().ok_or(Dhcpv6Drop::Malformed)?;
        match *kind {
            INFORMATION_REQUEST => {}
            RELAY_FORWARD => return Err(Dhcpv6Drop::Relayed),
            // The types from Solicit to Decline (RFC 8415 7.3), without replies of servers.
            1 | 3..=6 | 8 | 9 => return Err(Dhcpv6Drop::NotSupported),
            _ => return Err(Dhcpv6Drop::Malformed),
        }
        let request = Request::parse(options)?;
        let own = server_id(link_address);
        // RFC 8415 16.12.
        if request.server.is_some_and(|server| server != own) {
            return Err(Dhcpv6Drop::OtherServer);
        }
        if request.has_addresses {
            return Err(Dhcpv6Drop::NotSupported);
        }
        let mut reply = [&[REPLY], &transaction[..]].concat();
        for (code, value) in self.options(&request, own) {
            reply.extend(code.to_be_bytes());
            reply.extend(u16::try_from(value.len()).map_err(|_| Dhcpv6Drop::Malformed)?.to_be_bytes());
            reply.extend(value);
        }
        Ok(reply)
    }

    fn options(&self, request: &Request<'_>, own: Vec<u8>) -> Vec<(u16, Vec<u8>)> {
        let Dhcpv6Config { dns, search, captive_portal } = &self.config;
        let dns: Vec<u8> = dns.iter().flat_map(Ipv6Addr::octets).collect();
        let search: Vec<u8> = search.iter().filter_map(|name| encode_domain_name(name)).flatten().collect();
        let portal = captive_portal.as_ref().map(|uri| uri.as_bytes().to_vec());
        let values = [
            (code::DNS, Some(dns).filter(|dns| !dns.is_empty())),
            (code::SEARCH, Some(search).filter(|search| !search.is_empty())),
            (code::CAPTIVE_PORTAL, portal),
            (code::REFRESH, Some(REFRESH_TIME.to_be_bytes().to_vec())),
        ];
        let mut options = vec![(code::SERVER_ID, own)];
        options.extend(request.client.map(|client| (code::CLIENT_ID, client.to_vec())));
        let wanted = values.into_iter().filter(|(code, _)| request.wanted.contains(code));
        options.extend(wanted.filter_map(|(code, value)| Some((code, value?))));
        options
    }

    /// Returns the counters by name.
    pub fn counters(&self) -> impl Iterator<Item = (String, u64)> {
        use carnet_base::DropReason;
        let sums = [("received".to_owned(), self.counts.0), ("replies".to_owned(), self.counts.1)];
        let drops = Dhcpv6Drop::ALL.iter().zip(self.drops);
        sums.into_iter().chain(drops.map(|(reason, count)| (format!("dropped.{}", reason.name()), count)))
    }
}

/// Options of a client's message.
#[derive(Debug, Default)]
struct Request<'a> {
    client: Option<&'a [u8]>,
    server: Option<&'a [u8]>,
    wanted: Vec<u16>,
    has_addresses: bool,
}

impl<'a> Request<'a> {
    fn parse(mut octets: &'a [u8]) -> Result<Request<'a>, Dhcpv6Drop> {
        let mut request = Request::default();
        while let Some(([a, b, c, d], rest)) = octets.split_first_chunk::<4>() {
            let length = usize::from(u16::from_be_bytes([*c, *d]));
            let (value, rest) = rest.split_at_checked(length).ok_or(Dhcpv6Drop::Malformed)?;
            match u16::from_be_bytes([*a, *b]) {
                code::CLIENT_ID if value.len() > MAX_DUID => return Err(Dhcpv6Drop::Malformed),
                code::CLIENT_ID => request.client = request.client.or(Some(value)),
                code::SERVER_ID => request.server = request.server.or(Some(value)),
                code::REQUEST => {
                    let codes = value.as_chunks::<2>().0.iter().map(|code| u16::from_be_bytes(*code));
                    request.wanted.extend(codes);
                }
                code::IA_NA | code::IA_TA | code::IA_PD => request.has_addresses = true,
                _ => {}
            }
            octets = rest;
        }
        if octets.is_empty() { Ok(request) } else { Err(Dhcpv6Drop::Malformed) }
    }
}

/// Returns the server's identity: a DUID of its link-layer address (RFC 8415 11.4).
fn server_id(link_address: LinkAddress) -> Vec<u8> {
    [&[0, 3, 0, 1], &link_address[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: LinkAddress = [2, 0, 0, 0, 0, 1];
    const CLIENT: [u8; 14] = [0, 1, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 9];

    fn host() -> Ipv6Addr {
        "fe80::9".parse().expect("an address")
    }

    fn server() -> Dhcpv6Server {
        Dhcpv6Server::new(Dhcpv6Config {
            dns: vec!["2001:db8:a::1".parse().expect("an address")],
            search: vec!["bus.example".into()],
            captive_portal: None,
        })
    }

    fn request(options: &[&[u8]]) -> Vec<u8> {
        [&[11, 1, 2, 3][..], &options.concat()].concat()
    }

    fn answer(server: &mut Dhcpv6Server, octets: &[u8]) -> Option<Vec<u8>> {
        server.handle_message(Time::ZERO, MAC, host(), octets)
    }

    #[test]
    fn information_request_gets_the_values_that_it_names() {
        let mut expected = vec![7, 1, 2, 3, 0, 2, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
        expected.extend(CLIENT);
        expected.extend([0, 23, 0, 16]);
        expected.extend("2001:db8:a::1".parse::<Ipv6Addr>().expect("an address").octets());
        expected.extend(b"\0\x18\0\x0d\x03bus\x07example\0");
        expected.extend([0, 32, 0, 4, 0, 0, 2, 88]);
        let named = [0, 6, 0, 8, 0, 23, 0, 24, 0, 32, 0, 103];
        assert_eq!(answer(&mut server(), &request(&[&CLIENT, &named])), Some(expected));
        // A client that requests no option gets only the identities of client and server.
        let reply = answer(&mut server(), &request(&[&CLIENT])).expect("a reply");
        assert_eq!(reply.len(), 4 + 14 + 14);
    }

    #[test]
    fn other_messages_are_dropped_by_reason() {
        let mut server = server();
        let other = [0, 2, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 7];
        for (octets, reason) in [
            (vec![11, 1, 2], "malformed"),
            (request(&[&[0, 6, 0, 9, 0, 23]]), "malformed"),
            (request(&[&[0, 6, 0]]), "malformed"),
            (request(&[&[0, 1, 0, 131], &[0; 131]]), "malformed"),
            (vec![7, 1, 2, 3], "malformed"),
            (vec![1, 1, 2, 3], "not_supported"),
            (request(&[&[0, 3, 0, 0]]), "not_supported"),
            (vec![12, 0, 0, 0], "relayed"),
            (request(&[&other]), "other_server"),
        ] {
            let count = |server: &Dhcpv6Server| {
                let name = format!("dropped.{reason}");
                server.counters().find(|(known, _)| *known == name).map(|(_, count)| count)
            };
            let before = count(&server).expect("a counter");
            assert_eq!(answer(&mut server, &octets), None, "{octets:?}");
            assert_eq!(count(&server), Some(before + 1), "{reason} {octets:?}");
        }
        let global = "2001:db8::1".parse().expect("an address");
        assert_eq!(server.handle_message(Time::ZERO, MAC, global, &request(&[])), None);
    }
}
