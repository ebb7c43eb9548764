//! Decides whether packets go directly to a station: prefix tests, probes, begin and end of contact.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::{PrefixTest, PrefixTestKind};
use carnet_wire::nd;
use ipnet::Ipv6Net;

use super::peer::{Peer, RouteState};
use super::{LinkAddress, Mnpp, Output, PREFIX_PROOF_RENEWAL_TIME, StationObservation, StationObserver};
use crate::Event;

/// Interval of position checks of a station with a direct route. [`CHECK_INTERVAL_NOT_DIRECT`] is the
/// interval for other stations.
const CHECK_INTERVAL_DIRECT: Duration = Duration::from_millis(250);
const CHECK_INTERVAL_NOT_DIRECT: Duration = Duration::from_millis(500);
/// Number of probes without an answer after which a station has failed. [`MAX_UNANSWERED_PROBES_IN_RANGE`] is
/// the number if other frames still arrive from the station.
const MAX_UNANSWERED_PROBES: usize = 3;
const MAX_UNANSWERED_PROBES_IN_RANGE: usize = 6;
/// Time after the last frame of a station for which its frames count as still arriving.
const RECENT_FRAME_TIME: Duration = Duration::from_millis(300);
/// Time after an answer for which the router needs no further answer before it uses the route.
const RECENT_ANSWER_TIME: Duration = Duration::from_millis(500);
/// First hold-down of a failed station. It doubles with each failure, up to 32 s.
const FIRST_HOLD_DOWN: Duration = Duration::from_secs(1);
/// Duration of contact after which the router clears the count of failures.
const STABLE_CONTACT_TIME: Duration = Duration::from_secs(60);
/// First interval between tests of one prefix. It doubles up to 8 s.
const TEST_INTERVAL: Duration = Duration::from_secs(1);

const REASON_NO_ANSWER: &str = "does not answer";
const REASON_UNAUTHORIZED: &str = "not authorized by its home agent";
const REASON_NOT_CONFIRMED: &str = "not yet confirmed in both directions";

impl Mnpp {
    /// Handles a frame that the link could not deliver to a station.
    pub fn handle_unreachable_station(&mut self, now: Time, station: LinkAddress) {
        let Some(mut peer) = self.peers.remove(&station) else { return };
        if peer.is_direct() {
            self.record_route_failure(now, &mut peer);
            self.end_direct_route(now, station, &mut peer, "the link does not reach it");
        }
        self.peers.insert(station, peer);
        self.report_routes();
    }

    /// Checks a station: decides whether packets go directly, and sends the tests and probes that are due.
    pub(super) fn check_station(&mut self, now: Time, station: LinkAddress, around: &dyn StationObserver) {
        let Some(mut peer) = self.peers.remove(&station) else { return };
        if peer.announced_prefixes.iter().all(|claim| claim.expires_at <= now) {
            if peer.is_direct() {
                self.end_direct_route(now, station, &mut peer, "no longer announced");
                self.report_routes();
            }
            return;
        }
        peer.announced_prefixes.retain(|claim| claim.expires_at > now);
        let reach = self.reachable_observation(around.observation(now, station));
        let reachable = reach.is_ok();
        self.send_missing_prefix_test(now, station, &mut peer, reachable);
        let authorized =
            peer.announced_prefixes.iter().any(|claim| self.is_proven(now, station, claim.prefix));
        match (peer.route_state, reach) {
            (RouteState::Direct, Err(reason)) => self.end_direct_route(now, station, &mut peer, reason),
            (RouteState::Direct, Ok(_)) if !authorized => {
                self.end_direct_route(now, station, &mut peer, REASON_UNAUTHORIZED)
            }
            (RouteState::Direct, Ok(sight)) => {
                if self.send_due_probe(now, station, &mut peer, sight) {
                    self.record_route_failure(now, &mut peer);
                    self.end_direct_route(now, station, &mut peer, REASON_NO_ANSWER);
                }
            }
            (RouteState::ViaHomeAgents(_), Err(reason)) => self.set_route_not_direct(&mut peer, reason),
            (RouteState::ViaHomeAgents(_), Ok(_)) if !authorized => {
                self.set_route_not_direct(&mut peer, REASON_UNAUTHORIZED)
            }
            (RouteState::ViaHomeAgents(_), Ok(sight)) if !sight.stays_in_range => {
                self.set_route_not_direct(&mut peer, "at the edge")
            }
            (RouteState::ViaHomeAgents(_), Ok(_)) if peer.paused_until > now => {}
            (RouteState::ViaHomeAgents(_), Ok(sight)) => {
                if peer.last_confirmed_at.is_some_and(|at| now.saturating_since(at) <= RECENT_ANSWER_TIME) {
                    self.begin_direct_route(now, station, &mut peer);
                } else if self.send_due_probe(now, station, &mut peer, sight) {
                    self.record_route_failure(now, &mut peer);
                    self.set_route_not_direct(&mut peer, REASON_NO_ANSWER);
                } else {
                    peer.route_state = RouteState::ViaHomeAgents(REASON_NOT_CONFIRMED);
                }
            }
        }
        let look = if peer.is_direct() { CHECK_INTERVAL_DIRECT } else { CHECK_INTERVAL_NOT_DIRECT };
        let probing = peer.is_direct() || !peer.probes.has_no_outstanding_heartbeat();
        let probe = probing.then(|| peer.next_probe_at(now));
        let test = self.next_prefix_test_at(now).filter(|_| reachable);
        let claims = peer.announced_prefixes.iter().map(|claim| match test {
            Some(test) if !self.has_lasting_proof(now, station, claim.prefix) => {
                claim.expires_at.min(claim.next_test_at.max(test))
            }
            _ => claim.expires_at,
        });
        // Everything that is due now has been handled, so the next check is later than now.
        let due = claims.chain(probe).min().unwrap_or(Time::MAX).min(now + look);
        peer.next_check_at = due.max(now + Duration::from_millis(1));
        self.peers.insert(station, peer);
        self.report_routes();
    }

    /// Returns the observation of a station that can be reached directly; otherwise the reason why it cannot.
    fn reachable_observation(
        &self,
        sight: Option<StationObservation>,
    ) -> Result<StationObservation, &'static str> {
        match sight {
            None => Err("out of reach"),
            // The observation concerns one hop. If the config permits several hops, only probes show
            // whether the station is reachable.
            Some(sight) if self.config.announcement_hop_limit > 1 => {
                Ok(StationObservation { stays_in_range: true, leaves_range: false, ..sight })
            }
            Some(sight) if !sight.is_neighbour => Err("no neighbour"),
            Some(sight) if sight.leaves_range => Err("about to leave"),
            Some(sight) => Ok(sight),
        }
    }

    fn is_proven(&self, now: Time, station: LinkAddress, prefix: Ipv6Net) -> bool {
        self.proof_expiry(prefix, station).is_some_and(|until| until > now)
    }

    /// Returns whether a prefix is proven and its proof does not end soon.
    fn has_lasting_proof(&self, now: Time, station: LinkAddress, prefix: Ipv6Net) -> bool {
        self.proof_expiry(prefix, station)
            .is_some_and(|until| until.saturating_since(now) > PREFIX_PROOF_RENEWAL_TIME)
    }

    /// Sends a test of a prefix whose proof is missing or ends soon. It sends one test at a time, so that
    /// other stations get tests too.
    fn send_missing_prefix_test(
        &mut self,
        now: Time,
        station: LinkAddress,
        peer: &mut Peer,
        reachable: bool,
    ) {
        for claim in &peer.announced_prefixes {
            if !self.is_proven(now, station, claim.prefix) {
                self.proof_expiry.remove(&(claim.prefix, station));
            }
        }
        let claims = peer.announced_prefixes.iter_mut().filter(|claim| claim.next_test_at <= now);
        let open = claims.filter(|claim| !self.has_lasting_proof(now, station, claim.prefix));
        let claim = open.min_by_key(|claim| claim.next_test_at);
        // Record a test only if the router could send it.
        if let Some(claim) = claim.filter(|_| reachable)
            && let Some(cookie) = self.send_prefix_test(now, station, claim.prefix)
        {
            claim.record_test(cookie, now + TEST_INTERVAL * (1 << claim.tests_since_proof.min(3)));
            (peer.last_tested_at, peer.has_sent_test) = (now, true);
        }
    }

    /// Sends the probe that is due. Returns whether too many probes got no answer.
    fn send_due_probe(
        &mut self,
        now: Time,
        station: LinkAddress,
        peer: &mut Peer,
        sight: StationObservation,
    ) -> bool {
        if peer.next_probe_at(now) > now {
            return false;
        }
        let heard = now.saturating_since(sight.received_at) < RECENT_FRAME_TIME;
        let most = if heard { MAX_UNANSWERED_PROBES_IN_RANGE } else { MAX_UNANSWERED_PROBES };
        if peer.probes.is_exhausted(&peer.probe_schedule(most)) {
            return true;
        }
        let Some((asker, link_local)) = self.own_addresses else { return false };
        let fresh = self.rng.random_u64();
        let cookie = peer.probes.oldest_outstanding_heartbeat().unwrap_or(fresh);
        peer.probes.record_sent_heartbeat(now, cookie);
        let test = PrefixTest {
            kind: PrefixTestKind::Probe,
            cookie,
            responder: station,
            requester: asker,
            prefix: Ipv6Addr::UNSPECIFIED,
            prefix_length: 0,
        };
        self.counters.sent_probes += 1;
        let packet = test.emit_packet(link_local, peer.link_local, nd::HOP_LIMIT);
        self.outputs.push_back(Output::Straight(station, packet));
        false
    }

    /// Records a failure of a station, and sets a hold-down that grows each time.
    fn record_route_failure(&mut self, now: Time, peer: &mut Peer) {
        if peer.is_direct() && now.saturating_since(peer.route_state_since) > STABLE_CONTACT_TIME {
            peer.recent_failures = 0;
        }
        peer.paused_until = now + FIRST_HOLD_DOWN * (1 << peer.recent_failures.min(5));
        peer.recent_failures = peer.recent_failures.saturating_add(1);
        peer.last_confirmed_at = None;
    }

    fn set_route_not_direct(&mut self, peer: &mut Peer, reason: &'static str) {
        peer.route_state = RouteState::ViaHomeAgents(reason);
        peer.probes.remove_outstanding_heartbeats();
    }

    fn begin_direct_route(&mut self, now: Time, station: LinkAddress, peer: &mut Peer) {
        (peer.route_state, peer.route_state_since) = (RouteState::Direct, now);
        self.counters.begun_routes += 1;
        self.report_route(station, peer, true, "answers straight");
    }

    fn end_direct_route(&mut self, now: Time, station: LinkAddress, peer: &mut Peer, reason: &'static str) {
        (peer.route_state, peer.route_state_since) = (RouteState::ViaHomeAgents(reason), now);
        peer.probes.remove_outstanding_heartbeats();
        self.counters.ended_routes += 1;
        self.report_route(station, peer, false, reason);
        self.outputs.push_back(Output::Withdrawn(station));
    }

    fn report_route(&mut self, station: LinkAddress, peer: &Peer, direct: bool, reason: &str) {
        self.outputs.push_back(Output::Routes);
        self.outputs.push_back(Output::Event(Event::Path {
            prefixes: peer.announced_prefixes.iter().map(|claim| claim.prefix).collect(),
            station: super::format_link_address(station),
            direct,
            reason: reason.into(),
        }));
    }
}
