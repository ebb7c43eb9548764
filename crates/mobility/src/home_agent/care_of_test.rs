//! Tests whether a node answers at a new care-of address.
//!
//! RFC 6275 15.3 permits a home agent to trust the care-of address of an authentic Binding Update. A stolen
//! router could then direct all packets of its network at a victim. So the home agent first sends an Echo
//! Request (RFC 4443 4.1) with a random token to a new care-of address. It sends packets there only after the
//! node's answer. The request goes through the tunnel, from the home agent to the home address; every node
//! answers it (RFC 4443 4.2). The answer may come through any tunnel of the node, or without a tunnel: the
//! token proves that the node received the request. If the node is behind a NAT, the answer proves address
//! and port of the NAT.
//!
//! Until then the home agent sends packets over the node's other tested bindings. If the node has none, it
//! sends them over the former path, as long as the node still listens there
//! ([`OLD_PATH_GRACE`](crate::OLD_PATH_GRACE)). It accepts packets *from* the new address at once.
//!
//! A binding is tested or untested (`Binding::is_care_of_tested`). The home agent does not test an address
//! again that the node has left within [`TESTED_ADDRESS_LIFETIME`]. It tests no addresses of nodes without
//! `care_of_test` in the config.
//!
//! A request is at most as long as the Binding Update that caused it. Each care-of address in an update
//! causes at most [`MAX_ECHO_REQUESTS`] requests, with growing pauses. Each node has a limit: a burst of
//! [`PROBE_BURST`], then one request per [`PROBE_INTERVAL`].

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Endpoint, RateLimiter, Rng, TimerTable};
use carnet_wire::icmpv6::{self, message_type};
use carnet_wire::ipv6::{HEADER_LEN, Header, protocol};

use super::{BindingCache, HomeAgentContext, HomeAgentTimer};
use crate::{Event, Output};

/// Octets of the inner packet of a test: IPv6 header, header of the Echo Request, token.
pub const CARE_OF_TEST_LEN: usize = HEADER_LEN + 8 + 8;
/// Maximum number of Echo Requests to each care-of address after an accepted Binding Update.
const MAX_ECHO_REQUESTS: u8 = 16;
/// Pause after the first Echo Request; it doubles with each, up to [`MAX_ECHO_REQUEST_PAUSE`].
const FIRST_ECHO_REQUEST_PAUSE: Duration = Duration::from_millis(250);
const MAX_ECHO_REQUEST_PAUSE: Duration = Duration::from_secs(8);
/// Requests without an answer after which the home agent warns the operator.
const ECHO_REQUESTS_BEFORE_WARNING: u32 = 6;
/// Number of Echo Requests that the home agent sends at once to the untested addresses of one node.
/// [`PROBE_INTERVAL`] is the interval for each further request.
const PROBE_BURST: u32 = 48;
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// Time for which a care-of address still counts as tested after the node has left it.
pub(super) const TESTED_ADDRESS_LIFETIME: Duration = Duration::from_secs(3600);

/// A running test of one care-of address.
#[derive(Debug)]
struct CareOfTest {
    tunnel_ends: (Endpoint, Endpoint),
    echo_token: u64,
    /// Number of Echo Requests that may still be sent before the next Binding Update.
    requests_left: u8,
    /// Number of Echo Requests that were sent to this care-of address.
    requests_sent: u32,
}

impl CareOfTest {
    fn pause_until_next_request(&self) -> Duration {
        let doubled = 2_u32.saturating_pow(
            u32::from(MAX_ECHO_REQUESTS.saturating_sub(self.requests_left)).saturating_sub(1),
        );
        FIRST_ECHO_REQUEST_PAUSE.saturating_mul(doubled).min(MAX_ECHO_REQUEST_PAUSE)
    }
}

/// The running tests of all nodes: at most one for each binding. The test of an ended binding may remain for
/// a moment.
#[derive(Debug)]
pub(super) struct CareOfTests {
    /// Tests by home address and Binding Identifier.
    running_tests: BTreeMap<(Ipv6Addr, Option<u16>), CareOfTest>,
    probe_limits: BTreeMap<Ipv6Addr, RateLimiter>,
    /// Source of tokens. A node that knows its own tokens cannot predict the tokens of other nodes.
    rng: Rng,
    counters: CareOfTestCounters,
}

impl CareOfTests {
    pub(super) fn new(rng: Rng) -> CareOfTests {
        CareOfTests {
            running_tests: BTreeMap::new(),
            probe_limits: BTreeMap::new(),
            rng,
            counters: CareOfTestCounters::default(),
        }
    }

    /// Takes over the tokens, limits and counters from before a reload of the config. The tests of the nodes
    /// begin anew.
    pub(super) fn adopt_tests(&mut self, old: CareOfTests, is_served: impl Fn(Ipv6Addr) -> bool) {
        self.probe_limits = old.probe_limits;
        self.probe_limits.retain(|home_address, _| is_served(*home_address));
        self.rng = old.rng;
        self.counters = old.counters;
    }
}

/// Counters of the tests of care-of addresses.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct CareOfTestCounters {
    /// Echo Requests sent to untested care-of addresses.
    pub sent_requests: u64,
    /// Care-of addresses that have passed the test.
    pub passed_tests: u64,
}

impl CareOfTests {
    /// Returns the counters of the tests.
    pub(super) fn counters(&self) -> CareOfTestCounters {
        self.counters
    }

    /// Begins or continues the test of an untested care-of address after an accepted Binding Update.
    pub(super) fn begin_test(
        &mut self,
        context: HomeAgentContext<'_>,
        home_address: Ipv6Addr,
        bid: Option<u16>,
    ) {
        if let Some(running) = self.running_tests.get_mut(&(home_address, bid)) {
            running.requests_left = MAX_ECHO_REQUESTS;
        }
        self.send_next_request(context, home_address, bid);
    }

    /// Sends the next Echo Request to the care-of address of this binding.
    pub(super) fn send_next_request(
        &mut self,
        context: HomeAgentContext<'_>,
        home_address: Ipv6Addr,
        bid: Option<u16>,
    ) {
        let HomeAgentContext { now, config, cache, timers, outputs } = context;
        let key = (home_address, bid);
        let timer = HomeAgentTimer::CareOfTest(home_address, bid);
        let binding = cache.get(home_address, bid);
        let Some(binding) = binding.filter(|binding| binding.is_valid() && !binding.is_care_of_tested) else {
            self.running_tests.remove(&key);
            timers.stop_timer(timer);
            return;
        };
        let ends = binding.tunnel_ends();
        if self.running_tests.get(&key).is_none_or(|running| running.tunnel_ends != ends) {
            let token = self.rng.random_u64();
            self.running_tests.insert(
                key,
                CareOfTest {
                    tunnel_ends: ends,
                    echo_token: token,
                    requests_left: MAX_ECHO_REQUESTS,
                    requests_sent: 0,
                },
            );
        }
        let Some(running) = self.running_tests.get_mut(&key) else { return };
        if running.requests_left == 0 {
            // After the last request the test ends, so a later answer does not count. The next Binding Update
            // begins the test anew.
            self.running_tests.remove(&key);
            timers.stop_timer(timer);
            return;
        }
        let limit = self
            .probe_limits
            .entry(home_address)
            .or_insert_with(|| RateLimiter::new(PROBE_BURST, PROBE_INTERVAL));
        if !limit.try_take_token(now) {
            let ready = limit.token_available_at(now).max(now + PROBE_INTERVAL);
            timers.set_deadline(timer, ready);
            return;
        }
        running.requests_left -= 1;
        running.requests_sent += 1;
        self.counters.sent_requests += 1;
        let packet =
            echo_request(config.address, home_address, running.echo_token, running.requests_sent as u16);
        timers.set_deadline(timer, now + running.pause_until_next_request());
        if running.requests_sent == ECHO_REQUESTS_BEFORE_WARNING {
            let message = format!(
                "{home_address} does not answer Echo Requests at its care-of address {}: no packets are sent \
                 there before it does (care_of_test)",
                binding.care_of_address
            );
            outputs.push_back(Output::Event(Event::Warning { message }));
        }
        outputs.push_back(Output::Tunnelled { local: ends.0, remote: ends.1, packet });
    }

    /// Handles a packet to the home agent that came through a tunnel or without one. Returns whether the
    /// packet answers a test.
    pub(super) fn handle_echo_reply(
        &mut self,
        cache: &mut BindingCache,
        timers: &mut TimerTable<HomeAgentTimer>,
        outputs: &mut VecDeque<Output>,
        packet: &[u8],
    ) -> bool {
        let Some((home_address, token)) = echo_reply_token(packet) else { return false };
        let of_node = (home_address, None)..=(home_address, Some(u16::MAX));
        let mut running = self.running_tests.range(of_node);
        let Some((bid, ends)) = running
            .find(|(_, test)| test.echo_token == token)
            .map(|((_, bid), test)| (*bid, test.tunnel_ends))
        else {
            return false;
        };
        self.running_tests.remove(&(home_address, bid));
        timers.stop_timer(HomeAgentTimer::CareOfTest(home_address, bid));
        if cache.set_care_of_tested(home_address, ends) {
            self.counters.passed_tests += 1;
            outputs.push_back(Output::Forwarding(home_address));
            outputs.push_back(Output::Persist(home_address));
        }
        true
    }
}

/// Builds the Echo Request that tests a care-of address through the tunnel, of [`CARE_OF_TEST_LEN`] octets.
fn echo_request(source: Ipv6Addr, destination: Ipv6Addr, token: u64, sequence: u16) -> Vec<u8> {
    let mut message = vec![message_type::ECHO_REQUEST, 0, 0, 0];
    // The token identifies the test, so the Identifier field may have any value.
    message.extend_from_slice(&((token >> 48) as u16).to_be_bytes());
    message.extend_from_slice(&sequence.to_be_bytes());
    message.extend_from_slice(&token.to_be_bytes());
    icmpv6::emit_packet(source, destination, icmpv6::DEFAULT_HOP_LIMIT, message)
}

/// Returns source and token of an Echo Reply that may answer a test; `None` for any other packet.
fn echo_reply_token(packet: &[u8]) -> Option<(Ipv6Addr, u64)> {
    let (header, message) = Header::parse_packet(packet).ok()?;
    if header.next_header != protocol::ICMPV6 || message.first() != Some(&message_type::ECHO_REPLY) {
        return None;
    }
    let token = u64::from_be_bytes(message.get(8..)?.try_into().ok()?);
    icmpv6::verify_checksum(header.source, header.destination, message).ok()?;
    Some((header.source, token))
}
