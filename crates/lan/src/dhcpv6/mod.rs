//! DHCPv6 for one interface (RFC 8415): answers Information-requests with DNS servers, search list and
//! captive portal, and delegates prefixes to routers on board ([`delegation`]).
//!
//! Hosts get their addresses and the same values by Router Advertisements. DHCPv6 is for hosts that take DNS
//! servers only from there. A router on board gets a prefix for the links behind it by IA_PD. carnet is the
//! only DHCPv6 server on its links. So it also renews free prefixes of which it has no record. Left out:
//! addresses (the server answers IA_NA and IA_TA with NoAddrsAvail), Rapid Commit, relay agents, Reconfigure
//! and authentication.

pub mod delegation;
mod message;

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time, WallTime};
use carnet_wire::nd::host_configuration::encode_domain_name;

use crate::LinkAddress;
use delegation::{DelegationClient, PrefixDelegator};
use message::{Dhcpv6ClientMessage, Dhcpv6StatusCode, PrefixRequest, option_code, push_option};

/// Types of messages (RFC 8415 7.3).
mod message_kind {
    pub const MESSAGE_SOLICIT: u8 = 1;
    pub const MESSAGE_ADVERTISE: u8 = 2;
    pub const MESSAGE_REQUEST: u8 = 3;
    pub const MESSAGE_CONFIRM: u8 = 4;
    pub const MESSAGE_RENEW: u8 = 5;
    pub const MESSAGE_REBIND: u8 = 6;
    pub const MESSAGE_REPLY: u8 = 7;
    pub const MESSAGE_RELEASE: u8 = 8;
    pub const MESSAGE_DECLINE: u8 = 9;
    pub const MESSAGE_INFORMATION_REQUEST: u8 = 11;
    pub const MESSAGE_RELAY_FORWARD: u8 = 12;
}
/// Seconds after which hosts request the values again. This is the minimum (`IRT_MINIMUM`, RFC 8415 7.6),
/// because the values change with the vehicle's config.
const REFRESH_TIME_SECONDS: u32 = 600;
/// Maximum number of messages that the server processes in one burst.
const MESSAGE_BURST: u32 = 1000;
/// Time after which the server may process one more message, once a burst has used up `MESSAGE_BURST`.
const MESSAGE_INTERVAL: Duration = Duration::from_millis(1);

carnet_base::drop_reasons! {
    /// Reason for which the server did not answer a message.
    pub enum Dhcpv6DropReason {
        /// The octets are no DHCPv6 message of a client.
        Malformed = "malformed",
        /// A relay agent sent the message; the server serves its own link only.
        Relayed = "relayed",
        /// The client requests an address, or a prefix on an interface that delegates none.
        NotSupported = "not_supported",
        /// The message is for another server.
        OtherServer = "other_server",
        /// The source address of the message is not link-local.
        Source = "source",
        /// More messages arrived than the server processes.
        RateLimit = "rate_limit",
    }
}

/// Config of the server of one interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dhcpv6Config {
    /// DNS servers.
    pub dns_servers: Vec<Ipv6Addr>,
    /// Domain names that hosts append to short names.
    pub search_domains: Vec<String>,
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
struct Dhcpv6Counts {
    /// Messages received.
    received_messages: u64,
    /// Answers sent.
    sent_replies: u64,
    /// Prefixes delegated or renewed.
    delegated_prefixes: u64,
    /// Requests for a prefix that were refused because no prefix is free.
    refused_requests: u64,
    /// Prefixes that routers gave back.
    released_prefixes: u64,
}

/// Message of a client, with the time of its arrival and its source address.
struct MessageArrival<'a> {
    now: Time,
    wall_time: WallTime,
    source: Ipv6Addr,
    kind: u8,
    transaction_id: [u8; 3],
    client_message: Dhcpv6ClientMessage<'a>,
}

/// The server of one interface.
#[derive(Debug)]
pub struct Dhcpv6Server {
    config: Dhcpv6Config,
    message_limiter: RateLimiter,
    message_counts: Dhcpv6Counts,
    drops_by_reason: [u64; Dhcpv6DropReason::ALL.len()],
}

impl Dhcpv6Server {
    /// Creates a server.
    pub fn new(config: Dhcpv6Config) -> Dhcpv6Server {
        let limiter = RateLimiter::new(MESSAGE_BURST, MESSAGE_INTERVAL);
        Dhcpv6Server {
            config,
            message_limiter: limiter,
            message_counts: Dhcpv6Counts::default(),
            drops_by_reason: [0; Dhcpv6DropReason::ALL.len()],
        }
    }

    /// Sets the config, with the DNS servers and the other values that the server sends to hosts.
    pub fn set_config(&mut self, config: Dhcpv6Config) {
        self.config = config;
    }

    /// Returns the answer to a UDP payload from `source`. `link_address` is the interface's link-layer
    /// address, from which the server derives its identity (DUID). `delegator` delegates prefixes to routers
    /// on this interface; it knows the interface by the name `interface`.
    pub fn handle_message(
        &mut self,
        (now, wall): (Time, WallTime),
        (interface, link_address): (&str, LinkAddress),
        source: Ipv6Addr,
        octets: &[u8],
        delegator: &mut PrefixDelegator,
    ) -> Option<Dhcpv6Reply> {
        self.message_counts.received_messages += 1;
        let arrival = self.check_message(now, wall, source, octets);
        let reply =
            arrival.and_then(|arrival| self.answer_message(&arrival, (interface, link_address), delegator));
        match reply {
            Ok(reply) => {
                self.message_counts.sent_replies += 1;
                Some(reply)
            }
            Err(reason) => {
                let count = Dhcpv6DropReason::ALL.iter().position(|known| *known == reason);
                *self.drops_by_reason.get_mut(count?)? += 1;
                None
            }
        }
    }

    /// Parses a message that the server may answer.
    fn check_message<'a>(
        &mut self,
        now: Time,
        wall: WallTime,
        source: Ipv6Addr,
        octets: &'a [u8],
    ) -> Result<MessageArrival<'a>, Dhcpv6DropReason> {
        if !self.message_limiter.try_take_token(now) {
            return Err(Dhcpv6DropReason::RateLimit);
        }
        if !source.is_unicast_link_local() {
            return Err(Dhcpv6DropReason::Source);
        }
        let ([kind, transaction @ ..], options) =
            octets.split_first_chunk::<4>().ok_or(Dhcpv6DropReason::Malformed)?;
        match *kind {
            message_kind::MESSAGE_SOLICIT
            | message_kind::MESSAGE_REQUEST
            | message_kind::MESSAGE_CONFIRM
            | message_kind::MESSAGE_RENEW
            | message_kind::MESSAGE_REBIND => {}
            message_kind::MESSAGE_RELEASE
            | message_kind::MESSAGE_DECLINE
            | message_kind::MESSAGE_INFORMATION_REQUEST => {}
            message_kind::MESSAGE_RELAY_FORWARD => return Err(Dhcpv6DropReason::Relayed),
            _ => return Err(Dhcpv6DropReason::Malformed),
        }
        let request = Dhcpv6ClientMessage::parse(options)?;
        Ok(MessageArrival {
            now,
            wall_time: wall,
            source,
            kind: *kind,
            transaction_id: *transaction,
            client_message: request,
        })
    }

    fn answer_message(
        &mut self,
        arrival: &MessageArrival<'_>,
        (interface, link_address): (&str, LinkAddress),
        delegator: &mut PrefixDelegator,
    ) -> Result<Dhcpv6Reply, Dhcpv6DropReason> {
        let MessageArrival { kind, transaction_id: transaction, client_message: request, .. } = arrival;
        let own = server_duid(link_address);
        // RFC 8415 16.12: the server ignores a message for another server.
        if request.server_duid.is_some_and(|server| server != own) {
            return Err(Dhcpv6DropReason::OtherServer);
        }
        let is_information = *kind == message_kind::MESSAGE_INFORMATION_REQUEST;
        if is_information == request.has_associations() {
            return Err(Dhcpv6DropReason::NotSupported);
        }
        let (mut associations, mut waits_for_store) = (Vec::new(), false);
        if !is_information {
            if request.prefix_requests.is_empty()
                || *kind == message_kind::MESSAGE_CONFIRM
                || delegator.delegating_interface(interface).is_none()
            {
                return Err(Dhcpv6DropReason::NotSupported);
            }
            // RFC 8415 16.2 to 16.9: a Solicit or Rebind names no server, and any other message names this
            // server.
            let is_to_all = matches!(*kind, message_kind::MESSAGE_SOLICIT | message_kind::MESSAGE_REBIND);
            let Some(client) = request.client_duid.filter(|_| is_to_all == request.server_duid.is_none())
            else {
                return Err(Dhcpv6DropReason::Malformed);
            };
            (associations, waits_for_store) = self.delegation_options(arrival, interface, client, delegator);
        }
        let kind = if *kind == message_kind::MESSAGE_SOLICIT {
            message_kind::MESSAGE_ADVERTISE
        } else {
            message_kind::MESSAGE_REPLY
        };
        let mut octets = [&[kind], &transaction[..]].concat();
        for (code, value) in self.reply_options(request, own, is_information).into_iter().chain(associations)
        {
            push_option(&mut octets, code, &value).ok_or(Dhcpv6DropReason::Malformed)?;
        }
        Ok(Dhcpv6Reply { octets, waits_for_store })
    }

    /// Returns the options about the requested prefixes and addresses, and whether the answer has to wait for
    /// the disk.
    fn delegation_options(
        &mut self,
        arrival: &MessageArrival<'_>,
        interface: &str,
        duid: &[u8],
        delegator: &mut PrefixDelegator,
    ) -> (Vec<(u16, Vec<u8>)>, bool) {
        let MessageArrival { now, wall_time: wall, source, kind, client_message: request, .. } = arrival;
        let (mut options, mut waits) = (Vec::new(), false);
        for PrefixRequest { iaid, prefixes } in &request.prefix_requests {
            let client =
                DelegationClient { interface: interface.to_owned(), duid: duid.to_vec(), iaid: *iaid };
            if matches!(*kind, message_kind::MESSAGE_RELEASE | message_kind::MESSAGE_DECLINE) {
                // Treat a Decline as a release of no prefix: a router cannot decline a prefix (RFC 8415
                // 18.2.8).
                let was_released =
                    *kind == message_kind::MESSAGE_RELEASE && delegator.release_prefixes(&client, prefixes);
                self.message_counts.released_prefixes += u64::from(was_released);
                if !was_released {
                    let reason = Dhcpv6StatusCode::NoBinding.to_option("no such prefix");
                    options.push((option_code::IA_PD, ia_pd_option(*iaid, Duration::ZERO, &reason)));
                }
                continue;
            }
            let given = match *kind {
                message_kind::MESSAGE_SOLICIT => delegator.choose_prefix(&client, prefixes),
                _ => delegator.delegate_prefix((*now, *wall), &client, *source, prefixes),
            };
            let mut content = Vec::new();
            match given {
                Some((prefix, lifetime)) => {
                    message::push_ia_prefix(&mut content, prefix, lifetime);
                    self.message_counts.delegated_prefixes +=
                        u64::from(*kind != message_kind::MESSAGE_SOLICIT);
                    waits |= *kind != message_kind::MESSAGE_SOLICIT;
                }
                None => {
                    delegator.report_exhausted(*now, interface);
                    self.message_counts.refused_requests += 1;
                    content.extend(Dhcpv6StatusCode::NoPrefixAvail.to_option("no prefix is free"));
                }
            }
            if *kind != message_kind::MESSAGE_SOLICIT {
                // Give the router's other prefixes a lifetime of 0, so that it stops using them (RFC 8415
                // 18.3.4).
                let others =
                    prefixes.iter().filter(|other| given.is_none_or(|(prefix, _)| prefix != **other));
                others.for_each(|other| message::push_ia_prefix(&mut content, *other, Duration::ZERO));
            }
            let lifetime = given.map(|(_, lifetime)| lifetime).unwrap_or_default();
            options.push((option_code::IA_PD, ia_pd_option(*iaid, lifetime, &content)));
        }
        let without_address =
            Dhcpv6StatusCode::NoAddrsAvail.to_option("addresses come from Router Advertisements");
        for association in &request.address_requests {
            let value = [&association.iaid.to_be_bytes(), &[0; 8][..], &without_address].concat();
            options.push((option_code::IA_NA, value));
        }
        if matches!(*kind, message_kind::MESSAGE_RELEASE | message_kind::MESSAGE_DECLINE) {
            options.push((option_code::STATUS_CODE, Dhcpv6StatusCode::Success.status_option_value("")));
        }
        (options, waits)
    }

    /// Returns the options that are not about prefixes. If `with_refresh` is set and the client requests the
    /// option, they include the time of its next Information-request.
    fn reply_options(
        &self,
        request: &Dhcpv6ClientMessage<'_>,
        own: Vec<u8>,
        with_refresh: bool,
    ) -> Vec<(u16, Vec<u8>)> {
        let Dhcpv6Config { dns_servers: dns, search_domains: search, captive_portal } = &self.config;
        let dns: Vec<u8> = dns.iter().flat_map(Ipv6Addr::octets).collect();
        let search: Vec<u8> = search.iter().filter_map(|name| encode_domain_name(name)).flatten().collect();
        let portal = captive_portal.as_ref().map(|uri| uri.as_bytes().to_vec());
        let values = [
            (option_code::DNS_SERVERS, Some(dns).filter(|dns| !dns.is_empty())),
            (option_code::DOMAIN_SEARCH, Some(search).filter(|search| !search.is_empty())),
            (option_code::CAPTIVE_PORTAL, portal),
            (
                option_code::INFORMATION_REFRESH_TIME,
                with_refresh.then(|| REFRESH_TIME_SECONDS.to_be_bytes().to_vec()),
            ),
        ];
        let mut options = vec![(option_code::SERVER_ID, own)];
        options.extend(request.client_duid.map(|client| (option_code::CLIENT_ID, client.to_vec())));
        let wanted = values.into_iter().filter(|(code, _)| request.requested_options.contains(code));
        options.extend(wanted.filter_map(|(code, value)| Some((code, value?))));
        options
    }

    /// Returns the counters by name.
    pub fn counters(&self) -> impl Iterator<Item = (String, u64)> {
        use carnet_base::DropReason;
        let Dhcpv6Counts {
            received_messages: received,
            sent_replies: replies,
            delegated_prefixes: delegated,
            refused_requests: refused,
            released_prefixes: released,
        } = self.message_counts;
        let sums = [
            ("received", received),
            ("replies", replies),
            ("prefixes_delegated", delegated),
            ("prefixes_refused", refused),
            ("prefixes_released", released),
        ];
        let sums = sums.map(|(name, count)| (name.to_owned(), count));
        let drops = Dhcpv6DropReason::ALL.iter().zip(self.drops_by_reason);
        sums.into_iter().chain(drops.map(|(reason, count)| (format!("dropped.{}", reason.name()), count)))
    }
}

/// Returns the value of an IA_PD option for prefixes with this lifetime (RFC 8415 21.21). Its router renews
/// after half of the lifetime, and asks all servers after four fifths (RFC 8415 21.4).
fn ia_pd_option(iaid: u32, lifetime: Duration, content: &[u8]) -> Vec<u8> {
    let seconds = message::lifetime_seconds(lifetime);
    let renewal = (seconds / 2).to_be_bytes();
    let rebinding = (seconds / 5 * 4).to_be_bytes();
    [&iaid.to_be_bytes(), &renewal, &rebinding, content].concat()
}

/// Returns the server's identity: a DUID of its link-layer address (RFC 8415 11.4).
fn server_duid(link_address: LinkAddress) -> Vec<u8> {
    [&[0, 3, 0, 1], &link_address[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::delegation::{DelegatingInterface, DelegationOutput, DelegatorConfig};
    use super::*;

    const SERVER_MAC: LinkAddress = [2, 0, 0, 0, 0, 1];
    const CLIENT_ID_OPTION: [u8; 14] = [0, 1, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 9];

    fn host_address() -> Ipv6Addr {
        "fe80::9".parse().expect("an address")
    }

    fn new_server() -> Dhcpv6Server {
        Dhcpv6Server::new(Dhcpv6Config {
            dns_servers: vec!["2001:db8:a::1".parse().expect("an address")],
            search_domains: vec!["bus.example".into()],
            captive_portal: None,
        })
    }

    fn information_request(options: &[&[u8]]) -> Vec<u8> {
        [&[11, 1, 2, 3][..], &options.concat()].concat()
    }

    fn wall_time() -> WallTime {
        WallTime::from_unix_nanos(1_700_000_000_000_000_000)
    }

    /// Returns a delegator with a /62 whose first /64 is in use. With `is_off`, no interface delegates
    /// prefixes.
    fn new_delegator(is_off: bool) -> PrefixDelegator {
        let net = |text: &str| text.parse().expect("a prefix");
        let interface = DelegatingInterface {
            name: "i0".into(),
            prefix_length: 64,
            delegation_lifetime: Duration::from_secs(1000),
            networks_of_other_interfaces: Vec::new(),
        };
        let config = DelegatorConfig {
            prefixes: vec![net("2001:db8:a::/62")],
            networks_in_use: vec![net("2001:db8:a::/64")],
            interfaces: if is_off { vec![] } else { vec![interface] },
        };
        PrefixDelegator::new(config, &[], Time::ZERO, wall_time())
    }

    fn answer_of(server: &mut Dhcpv6Server, octets: &[u8]) -> Option<Vec<u8>> {
        answer_of_delegator(server, &mut new_delegator(true), octets)
    }

    fn answer_of_delegator(
        server: &mut Dhcpv6Server,
        delegator: &mut PrefixDelegator,
        octets: &[u8],
    ) -> Option<Vec<u8>> {
        let times = (Time::ZERO, wall_time());
        let reply = server.handle_message(times, ("i0", SERVER_MAC), host_address(), octets, delegator)?;
        // An answer waits for the disk only if the caller has to store its prefix.
        let has_stored = std::iter::from_fn(|| delegator.poll_output())
            .any(|output| matches!(output, DelegationOutput::Store(_, Some(_))));
        assert_eq!(reply.waits_for_store, has_stored);
        Some(reply.octets)
    }

    const SERVER_ID_OPTION: [u8; 14] = [0, 2, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 1];

    /// Returns a message of a router with an IA_PD option, which has the IAID 7 and contains these prefixes.
    fn message_of_router(kind: u8, with_server: bool, prefixes: &[&str]) -> Vec<u8> {
        let mut content = vec![0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0];
        for prefix in prefixes {
            message::push_ia_prefix(&mut content, prefix.parse().expect("a prefix"), Duration::ZERO);
        }
        let mut octets = [&[kind, 1, 2, 3], &CLIENT_ID_OPTION[..]].concat();
        octets.extend(if with_server { &SERVER_ID_OPTION[..] } else { &[] });
        push_option(&mut octets, option_code::IA_PD, &content).expect("a short option");
        octets
    }

    /// Returns the prefixes in the IA_PD of an answer, each with its valid lifetime, and its status code.
    fn prefixes_in_reply(reply: &[u8]) -> (Vec<(String, u32)>, Option<u16>) {
        let (mut found, mut status) = (Vec::new(), None);
        for (code, value) in message::split_options(&reply[4..]).map(|option| option.expect("an option")) {
            if code != option_code::IA_PD {
                continue;
            }
            assert_eq!(value[..4], [0, 0, 0, 7]);
            for (code, value) in message::split_options(&value[12..]).map(|option| option.expect("an option"))
            {
                match code {
                    option_code::IA_PREFIX => {
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
        let (mut server, mut delegator) = (new_server(), new_delegator(false));
        let mut ask =
            |octets: &[u8]| answer_of_delegator(&mut server, &mut delegator, octets).expect("a reply");
        let one = |text: &str, valid: u32| (vec![(text.to_owned(), valid)], None);
        let offer = ask(&message_of_router(message_kind::MESSAGE_SOLICIT, false, &[]));
        assert_eq!((offer[0], &offer[1..4]), (message_kind::MESSAGE_ADVERTISE, &[1, 2, 3][..]));
        assert_eq!(prefixes_in_reply(&offer), one("2001:db8:a:1::/64", 1000));
        // The answer has the DUIDs of client and server, and the times of the renewal.
        assert!(
            offer.windows(14).any(|part| part == CLIENT_ID_OPTION)
                && offer.windows(14).any(|part| part == SERVER_ID_OPTION)
        );
        let times = [500u32.to_be_bytes(), 800u32.to_be_bytes()].concat();
        assert!(offer.windows(8).any(|part| part == times));
        // The router gets the free prefix that it asks for. The server has not reserved the prefix in its
        // earlier offer.
        let reply = ask(&message_of_router(message_kind::MESSAGE_REQUEST, true, &["2001:db8:a:2::/64"]));
        assert_eq!(
            (reply[0], prefixes_in_reply(&reply)),
            (message_kind::MESSAGE_REPLY, one("2001:db8:a:2::/64", 1000))
        );
        assert_eq!(
            prefixes_in_reply(&ask(&message_of_router(
                message_kind::MESSAGE_RENEW,
                true,
                &["2001:db8:a:2::/64"]
            )))
            .0
            .len(),
            1
        );
        // If the router names a prefix that it does not have, the answer gives this prefix the lifetime 0.
        let stale = ask(&message_of_router(
            message_kind::MESSAGE_REBIND,
            false,
            &["2001:db8:a:2::/64", "2001:db8:b::/64"],
        ));
        let expected = vec![("2001:db8:a:2::/64".to_owned(), 1000), ("2001:db8:b::/64".to_owned(), 0)];
        assert_eq!(prefixes_in_reply(&stale), (expected, None));
        assert_eq!(
            prefixes_in_reply(&ask(&message_of_router(
                message_kind::MESSAGE_DECLINE,
                true,
                &["2001:db8:a:2::/64"]
            )))
            .1,
            Some(3)
        );
        assert_eq!(
            prefixes_in_reply(&ask(&message_of_router(
                message_kind::MESSAGE_RELEASE,
                true,
                &["2001:db8:a:2::/64"]
            ))),
            (vec![], None)
        );
        assert_eq!(
            prefixes_in_reply(&ask(&message_of_router(
                message_kind::MESSAGE_RELEASE,
                true,
                &["2001:db8:a:2::/64"]
            )))
            .1,
            Some(3)
        );
        assert_eq!(delegator.delegations().count(), 0);
    }

    #[test]
    fn router_gets_no_prefix_if_none_is_free() {
        let (mut server, mut delegator) = (new_server(), new_delegator(false));
        for number in 0..3 {
            let mut request = message_of_router(message_kind::MESSAGE_REQUEST, true, &[]);
            request[17] = number;
            assert!(answer_of_delegator(&mut server, &mut delegator, &request).is_some());
        }
        assert_eq!(delegator.delegations().count(), 3);
        for octets in [
            message_of_router(message_kind::MESSAGE_SOLICIT, false, &[]),
            message_of_router(message_kind::MESSAGE_REQUEST, true, &[]),
        ] {
            let reply = answer_of_delegator(&mut server, &mut delegator, &octets).expect("a reply");
            assert_eq!(prefixes_in_reply(&reply), (vec![], Some(6)));
        }
        let refused = server.counters().find(|(name, _)| name == "prefixes_refused");
        assert_eq!(refused.map(|(_, count)| count), Some(2));
        // If a message requests an address and a prefix, the answer has an option for each of them.
        let both =
            [message_of_router(message_kind::MESSAGE_SOLICIT, false, &[]), vec![0, 3, 0, 12], vec![0; 12]]
                .concat();
        let reply = answer_of_delegator(&mut server, &mut delegator, &both).expect("a reply");
        let ia_na =
            message::split_options(&reply[4..]).flatten().find(|(code, _)| *code == option_code::IA_NA);
        assert_eq!(ia_na.map(|(_, value)| value[16..18].to_vec()), Some(vec![0, 2]));
    }

    #[test]
    fn dhcpv6_server_drops_messages_with_wrong_client_or_server_identifier() {
        let (mut server, mut delegator) = (new_server(), new_delegator(false));
        let without_client =
            [&[message_kind::MESSAGE_SOLICIT, 1, 2, 3][..], &message_of_router(1, false, &[])[18..]].concat();
        for octets in [
            message_of_router(message_kind::MESSAGE_SOLICIT, true, &[]),
            message_of_router(message_kind::MESSAGE_REBIND, true, &[]),
            message_of_router(message_kind::MESSAGE_REQUEST, false, &[]),
            message_of_router(message_kind::MESSAGE_RENEW, false, &[]),
            message_of_router(message_kind::MESSAGE_RELEASE, false, &[]),
            message_of_router(message_kind::MESSAGE_CONFIRM, false, &[]),
            without_client,
        ] {
            assert_eq!(answer_of_delegator(&mut server, &mut delegator, &octets), None, "{octets:?}");
        }
        assert_eq!(delegator.delegations().count(), 0);
    }

    #[test]
    fn dhcpv6_information_request_gets_the_requested_options() {
        let mut expected = vec![7, 1, 2, 3, 0, 2, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
        expected.extend(CLIENT_ID_OPTION);
        expected.extend([0, 23, 0, 16]);
        expected.extend("2001:db8:a::1".parse::<Ipv6Addr>().expect("an address").octets());
        expected.extend(b"\0\x18\0\x0d\x03bus\x07example\0");
        expected.extend([0, 32, 0, 4, 0, 0, 2, 88]);
        let named = [0, 6, 0, 8, 0, 23, 0, 24, 0, 32, 0, 103];
        assert_eq!(
            answer_of(&mut new_server(), &information_request(&[&CLIENT_ID_OPTION, &named])),
            Some(expected)
        );
        // A client that requests no option gets only the identities of client and server.
        let reply =
            answer_of(&mut new_server(), &information_request(&[&CLIENT_ID_OPTION])).expect("a reply");
        assert_eq!(reply.len(), 4 + 14 + 14);
    }

    #[test]
    fn other_messages_are_dropped_by_reason() {
        let mut server = new_server();
        let other = [0, 2, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 7];
        for (octets, reason) in [
            (vec![11, 1, 2], "malformed"),
            (information_request(&[&[0, 6, 0, 9, 0, 23]]), "malformed"),
            (information_request(&[&[0, 6, 0]]), "malformed"),
            (information_request(&[&[0, 1, 0, 131], &[0; 131]]), "malformed"),
            (vec![7, 1, 2, 3], "malformed"),
            (vec![1, 1, 2, 3], "not_supported"),
            (message_of_router(message_kind::MESSAGE_SOLICIT, false, &[]), "not_supported"),
            (information_request(&[&[0, 25, 0, 11], &[0; 11]]), "malformed"),
            (information_request(&[&[0, 3, 0, 12], &[0; 12]]), "not_supported"),
            (vec![12, 0, 0, 0], "relayed"),
            (information_request(&[&other]), "other_server"),
        ] {
            let count = |server: &Dhcpv6Server| {
                let name = format!("dropped.{reason}");
                server.counters().find(|(known, _)| *known == name).map(|(_, count)| count)
            };
            let before = count(&server).expect("a counter");
            assert_eq!(answer_of(&mut server, &octets), None, "{octets:?}");
            assert_eq!(count(&server), Some(before + 1), "{reason} {octets:?}");
        }
        let global = "2001:db8::1".parse().expect("an address");
        let mut off = new_delegator(true);
        let times = (Time::ZERO, wall_time());
        assert_eq!(
            server.handle_message(times, ("i0", SERVER_MAC), global, &information_request(&[]), &mut off),
            None
        );
    }
}
