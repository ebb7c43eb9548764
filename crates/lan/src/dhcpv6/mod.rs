//! DHCPv6 for one interface (RFC 8415): answers Information-requests with DNS servers, search list and
//! captive portal, and delegates prefixes to routers on board ([`delegation`]).
//!
//! Hosts get the same values by Router Advertisements, and their addresses from there as well. The values are
//! for hosts that take DNS servers only from DHCPv6. A router on board gets a prefix for the links behind it
//! by IA_PD. carnet is the only DHCPv6 server on its links. So it also renews free prefixes of which it has
//! no record. Left out: addresses (the server answers IA_NA and IA_TA with
//! NoAddrsAvail), Rapid Commit, relay agents, Reconfigure and authentication.

pub mod delegation;
mod message;

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time, WallTime};
use carnet_wire::nd::host_configuration::encode_domain_name;

use crate::LinkAddress;
use delegation::{DelegationClient, Delegator};
use message::{IaPd, Request, Status, code, push};

/// Types of messages (RFC 8415 7.3).
mod kind {
    pub const SOLICIT: u8 = 1;
    pub const ADVERTISE: u8 = 2;
    pub const REQUEST: u8 = 3;
    pub const CONFIRM: u8 = 4;
    pub const RENEW: u8 = 5;
    pub const REBIND: u8 = 6;
    pub const REPLY: u8 = 7;
    pub const RELEASE: u8 = 8;
    pub const DECLINE: u8 = 9;
    pub const INFORMATION_REQUEST: u8 = 11;
    pub const RELAY_FORWARD: u8 = 12;
}
/// Seconds after which hosts request the values again. This is the minimum (`IRT_MINIMUM`, RFC 8415 7.6),
/// because the values change with the vehicle's config.
const REFRESH_TIME: u32 = 600;
/// Number of messages that the server may process at once. The next constant is the time until it may process
/// one more.
const BURST: u32 = 1000;
const INTERVAL: Duration = Duration::from_millis(1);

carnet_base::drop_reasons! {
    /// Reason for which the server did not answer a message.
    pub enum Dhcpv6Drop {
        /// The octets are no DHCPv6 message of a client.
        Malformed = "malformed",
        /// A relay agent sent the message; the server serves its own link only.
        Relayed = "relayed",
        /// The client requests an address, or a prefix on an interface that delegates none.
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

/// An answer of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dhcpv6Reply {
    /// The UDP payload.
    pub octets: Vec<u8>,
    /// Whether the answer has to wait until the records of delegated prefixes are stored.
    pub waits_for_store: bool,
}

/// Counters of the server.
#[derive(Debug, Default)]
struct Counts {
    /// Messages received.
    received: u64,
    /// Answers sent.
    replies: u64,
    /// Prefixes delegated or renewed.
    delegated: u64,
    /// Requests for a prefix that were refused because no prefix is free.
    refused: u64,
    /// Prefixes that routers gave back.
    released: u64,
}

/// Message of a client, with the time and the place of its arrival.
struct Arrival<'a> {
    now: Time,
    wall: WallTime,
    source: Ipv6Addr,
    kind: u8,
    transaction: [u8; 3],
    request: Request<'a>,
}

/// The server of one interface.
#[derive(Debug)]
pub struct Dhcpv6Server {
    config: Dhcpv6Config,
    limiter: RateLimiter,
    counts: Counts,
    drops: [u64; Dhcpv6Drop::ALL.len()],
}

impl Dhcpv6Server {
    /// Creates a server.
    pub fn new(config: Dhcpv6Config) -> Dhcpv6Server {
        let limiter = RateLimiter::new(BURST, INTERVAL);
        Dhcpv6Server { config, limiter, counts: Counts::default(), drops: [0; Dhcpv6Drop::ALL.len()] }
    }

    /// Sets the values for hosts.
    pub fn set_config(&mut self, config: Dhcpv6Config) {
        self.config = config;
    }

    /// Returns the answer to a UDP payload from `source`. `link_address` is the interface's link-layer
    /// address, from which the server derives its identity (DUID). `delegator` gives prefixes to routers on
    /// this interface, which it knows by the name `interface`.
    pub fn handle_message(
        &mut self,
        (now, wall): (Time, WallTime),
        (interface, link_address): (&str, LinkAddress),
        source: Ipv6Addr,
        octets: &[u8],
        delegator: &mut Delegator,
    ) -> Option<Dhcpv6Reply> {
        self.counts.received += 1;
        let arrival = self.check(now, wall, source, octets);
        let reply = arrival.and_then(|arrival| self.answer(&arrival, (interface, link_address), delegator));
        match reply {
            Ok(reply) => {
                self.counts.replies += 1;
                Some(reply)
            }
            Err(reason) => {
                let count = Dhcpv6Drop::ALL.iter().position(|known| *known == reason);
                *self.drops.get_mut(count?)? += 1;
                None
            }
        }
    }

    /// Parses a message that the server may answer.
    fn check<'a>(
        &mut self,
        now: Time,
        wall: WallTime,
        source: Ipv6Addr,
        octets: &'a [u8],
    ) -> Result<Arrival<'a>, Dhcpv6Drop> {
        if !self.limiter.allow(now) {
            return Err(Dhcpv6Drop::RateLimit);
        }
        if !source.is_unicast_link_local() {
            return Err(Dhcpv6Drop::Source);
        }
        let ([kind, transaction @ ..], options) =
            octets.split_first_chunk::<4>().ok_or(Dhcpv6Drop::Malformed)?;
        match *kind {
            kind::SOLICIT | kind::REQUEST | kind::CONFIRM | kind::RENEW | kind::REBIND => {}
            kind::RELEASE | kind::DECLINE | kind::INFORMATION_REQUEST => {}
            kind::RELAY_FORWARD => return Err(Dhcpv6Drop::Relayed),
            _ => return Err(Dhcpv6Drop::Malformed),
        }
        let request = Request::parse(options)?;
        Ok(Arrival { now, wall, source, kind: *kind, transaction: *transaction, request })
    }

    fn answer(
        &mut self,
        arrival: &Arrival<'_>,
        (interface, link_address): (&str, LinkAddress),
        delegator: &mut Delegator,
    ) -> Result<Dhcpv6Reply, Dhcpv6Drop> {
        let Arrival { kind, transaction, request, .. } = arrival;
        let own = server_id(link_address);
        // RFC 8415 16.12.
        if request.server.is_some_and(|server| server != own) {
            return Err(Dhcpv6Drop::OtherServer);
        }
        let is_information = *kind == kind::INFORMATION_REQUEST;
        if is_information == request.has_associations() {
            return Err(Dhcpv6Drop::NotSupported);
        }
        let (mut associations, mut waits_for_store) = (Vec::new(), false);
        if !is_information {
            if request.ia_pd.is_empty() || *kind == kind::CONFIRM || delegator.interface(interface).is_none()
            {
                return Err(Dhcpv6Drop::NotSupported);
            }
            // RFC 8415 16.2 to 16.9.
            let is_to_all = matches!(*kind, kind::SOLICIT | kind::REBIND);
            let Some(client) = request.client.filter(|_| is_to_all == request.server.is_none()) else {
                return Err(Dhcpv6Drop::Malformed);
            };
            (associations, waits_for_store) = self.delegate(arrival, interface, client, delegator);
        }
        let kind = if *kind == kind::SOLICIT { kind::ADVERTISE } else { kind::REPLY };
        let mut octets = [&[kind], &transaction[..]].concat();
        for (code, value) in self.options(request, own, is_information).into_iter().chain(associations) {
            push(&mut octets, code, &value).ok_or(Dhcpv6Drop::Malformed)?;
        }
        Ok(Dhcpv6Reply { octets, waits_for_store })
    }

    /// Returns the options about the requested prefixes and addresses, and whether the answer has to wait for
    /// the disk.
    fn delegate(
        &mut self,
        arrival: &Arrival<'_>,
        interface: &str,
        duid: &[u8],
        delegator: &mut Delegator,
    ) -> (Vec<(u16, Vec<u8>)>, bool) {
        let Arrival { now, wall, source, kind, request, .. } = arrival;
        let (mut options, mut waits) = (Vec::new(), false);
        for IaPd { iaid, prefixes } in &request.ia_pd {
            let client =
                DelegationClient { interface: interface.to_owned(), duid: duid.to_vec(), iaid: *iaid };
            if matches!(*kind, kind::RELEASE | kind::DECLINE) {
                // A router cannot decline a prefix (RFC 8415 18.2.8).
                let was_released = *kind == kind::RELEASE && delegator.release(&client, prefixes);
                self.counts.released += u64::from(was_released);
                if !was_released {
                    let reason = Status::NoBinding.option("no such prefix");
                    options.push((code::IA_PD, ia_pd(*iaid, Duration::ZERO, &reason)));
                }
                continue;
            }
            let given = match *kind {
                kind::SOLICIT => delegator.choose(&client, prefixes),
                _ => delegator.delegate((*now, *wall), &client, *source, prefixes),
            };
            let mut content = Vec::new();
            match given {
                Some((prefix, lifetime)) => {
                    message::push_prefix(&mut content, prefix, lifetime);
                    self.counts.delegated += u64::from(*kind != kind::SOLICIT);
                    waits |= *kind != kind::SOLICIT;
                }
                None => {
                    delegator.report_exhausted(*now, interface);
                    self.counts.refused += 1;
                    content.extend(Status::NoPrefixAvail.option("no prefix is free"));
                }
            }
            if *kind != kind::SOLICIT {
                // The router must stop to use its other prefixes (RFC 8415 18.3.4).
                let others =
                    prefixes.iter().filter(|other| given.is_none_or(|(prefix, _)| prefix != **other));
                others.for_each(|other| message::push_prefix(&mut content, *other, Duration::ZERO));
            }
            let lifetime = given.map(|(_, lifetime)| lifetime).unwrap_or_default();
            options.push((code::IA_PD, ia_pd(*iaid, lifetime, &content)));
        }
        let without_address = Status::NoAddrsAvail.option("addresses come from Router Advertisements");
        for association in &request.ia_na {
            let value = [&association.iaid.to_be_bytes(), &[0; 8][..], &without_address].concat();
            options.push((code::IA_NA, value));
        }
        if matches!(*kind, kind::RELEASE | kind::DECLINE) {
            options.push((code::STATUS, Status::Success.value("")));
        }
        (options, waits)
    }

    /// Returns the options that are no prefixes. `with_refresh` says whether the client may ask for the time
    /// of its next Information-request.
    fn options(&self, request: &Request<'_>, own: Vec<u8>, with_refresh: bool) -> Vec<(u16, Vec<u8>)> {
        let Dhcpv6Config { dns, search, captive_portal } = &self.config;
        let dns: Vec<u8> = dns.iter().flat_map(Ipv6Addr::octets).collect();
        let search: Vec<u8> = search.iter().filter_map(|name| encode_domain_name(name)).flatten().collect();
        let portal = captive_portal.as_ref().map(|uri| uri.as_bytes().to_vec());
        let values = [
            (code::DNS, Some(dns).filter(|dns| !dns.is_empty())),
            (code::SEARCH, Some(search).filter(|search| !search.is_empty())),
            (code::CAPTIVE_PORTAL, portal),
            (code::REFRESH, with_refresh.then(|| REFRESH_TIME.to_be_bytes().to_vec())),
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
        let Counts { received, replies, delegated, refused, released } = self.counts;
        let sums = [
            ("received", received),
            ("replies", replies),
            ("prefixes_delegated", delegated),
            ("prefixes_refused", refused),
            ("prefixes_released", released),
        ];
        let sums = sums.map(|(name, count)| (name.to_owned(), count));
        let drops = Dhcpv6Drop::ALL.iter().zip(self.drops);
        sums.into_iter().chain(drops.map(|(reason, count)| (format!("dropped.{}", reason.name()), count)))
    }
}

/// Returns the value of an IA_PD option for prefixes with this lifetime (RFC 8415 21.21). Its router renews
/// after half of the lifetime, and asks all servers after four fifths (RFC 8415 21.4).
fn ia_pd(iaid: u32, lifetime: Duration, content: &[u8]) -> Vec<u8> {
    let seconds = message::seconds(lifetime);
    let renewal = (seconds / 2).to_be_bytes();
    let rebinding = (seconds / 5 * 4).to_be_bytes();
    [&iaid.to_be_bytes(), &renewal, &rebinding, content].concat()
}

/// Returns the server's identity: a DUID of its link-layer address (RFC 8415 11.4).
fn server_id(link_address: LinkAddress) -> Vec<u8> {
    [&[0, 3, 0, 1], &link_address[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::delegation::{DelegatingInterface, DelegationOutput, DelegatorConfig};
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

    fn wall() -> WallTime {
        WallTime::from_unix_nanos(1_700_000_000_000_000_000)
    }

    /// Returns a delegator of a /62 whose first /64 is used; without an interface if `is_off`.
    fn delegator(is_off: bool) -> Delegator {
        let net = |text: &str| text.parse().expect("a prefix");
        let interface = DelegatingInterface {
            name: "i0".into(),
            length: 64,
            lifetime: Duration::from_secs(1000),
            foreign: Vec::new(),
        };
        let config = DelegatorConfig {
            prefixes: vec![net("2001:db8:a::/62")],
            used: vec![net("2001:db8:a::/64")],
            interfaces: if is_off { vec![] } else { vec![interface] },
        };
        Delegator::new(config, &[], Time::ZERO, wall())
    }

    fn answer(server: &mut Dhcpv6Server, octets: &[u8]) -> Option<Vec<u8>> {
        delegation(server, &mut delegator(true), octets)
    }

    fn delegation(server: &mut Dhcpv6Server, delegator: &mut Delegator, octets: &[u8]) -> Option<Vec<u8>> {
        let times = (Time::ZERO, wall());
        let reply = server.handle_message(times, ("i0", MAC), host(), octets, delegator)?;
        // Only an answer with a stored prefix waits for the disk.
        let has_stored = std::iter::from_fn(|| delegator.poll_output())
            .any(|output| matches!(output, DelegationOutput::Store(_, Some(_))));
        assert_eq!(reply.waits_for_store, has_stored);
        Some(reply.octets)
    }

    const SERVER: [u8; 14] = [0, 2, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 1];

    /// Returns a message of a router with an IA_PD of the number 7, in which it names prefixes.
    fn of_router(kind: u8, with_server: bool, prefixes: &[&str]) -> Vec<u8> {
        let mut content = vec![0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
        for prefix in prefixes {
            message::push_prefix(&mut content, prefix.parse().expect("a prefix"), Duration::ZERO);
        }
        let mut octets = [&[kind, 1, 2, 3], &CLIENT[..]].concat();
        octets.extend(if with_server { &SERVER[..] } else { &[] });
        push(&mut octets, code::IA_PD, &content).expect("a short option");
        octets
    }

    /// Returns the prefixes in the IA_PD of an answer, each with its valid lifetime, and its status code.
    fn prefixes(reply: &[u8]) -> (Vec<(String, u32)>, Option<u16>) {
        let (mut found, mut status) = (Vec::new(), None);
        for (code, value) in message::options(&reply[4..]).map(|option| option.expect("an option")) {
            if code != code::IA_PD {
                continue;
            }
            assert_eq!(value[..4], [0, 0, 0, 7]);
            for (code, value) in message::options(&value[12..]).map(|option| option.expect("an option")) {
                match code {
                    code::IA_PREFIX => {
                        let valid = u32::from_be_bytes(value[4..8].try_into().expect("four octets"));
                        let address: [u8; 16] = value[9..25].try_into().expect("an address");
                        found.push((format!("{}/{}", Ipv6Addr::from(address), value[8]), valid));
                    }
                    _ => status = Some(u16::from_be_bytes([value[0], value[1]])),
                }
            }
        }
        (found, status)
    }

    #[test]
    fn router_gets_keeps_and_returns_a_prefix() {
        let (mut server, mut delegator) = (server(), delegator(false));
        let mut ask = |octets: &[u8]| delegation(&mut server, &mut delegator, octets).expect("a reply");
        let one = |text: &str, valid: u32| (vec![(text.to_owned(), valid)], None);
        let offer = ask(&of_router(kind::SOLICIT, false, &[]));
        assert_eq!((offer[0], &offer[1..4]), (kind::ADVERTISE, &[1, 2, 3][..]));
        assert_eq!(prefixes(&offer), one("2001:db8:a:1::/64", 1000));
        // The answer names both identities and the times of the renewal.
        assert!(offer.windows(14).any(|part| part == CLIENT) && offer.windows(14).any(|part| part == SERVER));
        let times = [500u32.to_be_bytes(), 800u32.to_be_bytes()].concat();
        assert!(offer.windows(8).any(|part| part == times));
        // A wish for a free prefix comes true; an offer alone reserves nothing.
        let reply = ask(&of_router(kind::REQUEST, true, &["2001:db8:a:2::/64"]));
        assert_eq!((reply[0], prefixes(&reply)), (kind::REPLY, one("2001:db8:a:2::/64", 1000)));
        assert_eq!(prefixes(&ask(&of_router(kind::RENEW, true, &["2001:db8:a:2::/64"]))).0.len(), 1);
        // The router stops to use a prefix that it does not have.
        let stale = ask(&of_router(kind::REBIND, false, &["2001:db8:a:2::/64", "2001:db8:b::/64"]));
        let expected = vec![("2001:db8:a:2::/64".to_owned(), 1000), ("2001:db8:b::/64".to_owned(), 0)];
        assert_eq!(prefixes(&stale), (expected, None));
        assert_eq!(prefixes(&ask(&of_router(kind::DECLINE, true, &["2001:db8:a:2::/64"]))).1, Some(3));
        assert_eq!(prefixes(&ask(&of_router(kind::RELEASE, true, &["2001:db8:a:2::/64"]))), (vec![], None));
        assert_eq!(prefixes(&ask(&of_router(kind::RELEASE, true, &["2001:db8:a:2::/64"]))).1, Some(3));
        assert_eq!(delegator.delegations().count(), 0);
    }

    #[test]
    fn router_gets_no_prefix_if_none_is_free() {
        let (mut server, mut delegator) = (server(), delegator(false));
        for number in 0..3 {
            let mut request = of_router(kind::REQUEST, true, &[]);
            request[17] = number;
            assert!(delegation(&mut server, &mut delegator, &request).is_some());
        }
        assert_eq!(delegator.delegations().count(), 3);
        for octets in [of_router(kind::SOLICIT, false, &[]), of_router(kind::REQUEST, true, &[])] {
            let reply = delegation(&mut server, &mut delegator, &octets).expect("a reply");
            assert_eq!(prefixes(&reply), (vec![], Some(6)));
        }
        let refused = server.counters().find(|(name, _)| name == "prefixes_refused");
        assert_eq!(refused.map(|(_, count)| count), Some(2));
        // A request for an address beside that for a prefix gets an answer of its own.
        let both = [of_router(kind::SOLICIT, false, &[]), vec![0, 3, 0, 12], vec![0; 12]].concat();
        let reply = delegation(&mut server, &mut delegator, &both).expect("a reply");
        let ia_na = message::options(&reply[4..]).flatten().find(|(code, _)| *code == code::IA_NA);
        assert_eq!(ia_na.map(|(_, value)| value[16..18].to_vec()), Some(vec![0, 2]));
    }

    #[test]
    fn messages_that_break_the_rules_of_identities_are_dropped() {
        let (mut server, mut delegator) = (server(), delegator(false));
        let without_client = [&[kind::SOLICIT, 1, 2, 3][..], &of_router(1, false, &[])[18..]].concat();
        for octets in [
            of_router(kind::SOLICIT, true, &[]),
            of_router(kind::REBIND, true, &[]),
            of_router(kind::REQUEST, false, &[]),
            of_router(kind::RENEW, false, &[]),
            of_router(kind::RELEASE, false, &[]),
            of_router(kind::CONFIRM, false, &[]),
            without_client,
        ] {
            assert_eq!(delegation(&mut server, &mut delegator, &octets), None, "{octets:?}");
        }
        assert_eq!(delegator.delegations().count(), 0);
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
            (of_router(kind::SOLICIT, false, &[]), "not_supported"),
            (request(&[&[0, 25, 0, 11], &[0; 11]]), "malformed"),
            (request(&[&[0, 3, 0, 12], &[0; 12]]), "not_supported"),
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
        let mut off = delegator(true);
        let times = (Time::ZERO, wall());
        assert_eq!(server.handle_message(times, ("i0", MAC), global, &request(&[]), &mut off), None);
    }
}
