//! Decides whether packets go directly to a station: prefix tests, probes, begin and end of contact.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::{PrefixTest, PrefixTestKind};
use carnet_wire::nd;
use ipnet::Ipv6Net;

use super::peer::{Peer, RouteState};
use super::{LinkAddress, Mnpp, Output, PROOF_RENEWAL, StationObservation, StationObserver};
use crate::Event;

/// Interval of position checks of a station with a direct route. [`LOOK_AWAY`] is the interval for other
/// stations.
const LOOK_DIRECT: Duration = Duration::from_millis(250);
const LOOK_AWAY: Duration = Duration::from_millis(500);
/// Number of probes without an answer after which a station has failed. [`DEAF`] is the number if other
/// frames still arrive from the station.
const SILENT: usize = 3;
const DEAF: usize = 6;
/// Time after the last frame of a station for which its frames count as still arriving.
const HEARD: Duration = Duration::from_millis(300);
/// Time after an answer for which the router needs no further answer before it uses the route.
const FRESH: Duration = Duration::from_millis(500);
/// First hold-down of a failed station. It doubles with each failure, up to 32 s.
const HOLD: Duration = Duration::from_secs(1);
/// Duration of contact after which the router clears the count of failures.
const STEADY: Duration = Duration::from_secs(60);
/// First interval between tests of one prefix. It doubles up to 8 s.
const TEST_INTERVAL: Duration = Duration::from_secs(1);

const SILENCE: &str = "does not answer";
const UNAUTHORIZED: &str = "not authorized by its home agent";
const PROBING: &str = "not yet confirmed in both directions";

impl Mnpp {
    /// Handles a frame that the link could not deliver to a station.
    pub fn handle_unreachable(&mut self, now: Time, station: LinkAddress) {
        let Some(mut peer) = self.peers.remove(&station) else { return };
        if peer.is_direct() {
            self.fail(now, &mut peer);
            self.part(now, station, &mut peer, "the link does not reach it");
        }
        self.peers.insert(station, peer);
        self.report_routes();
    }

    /// Checks a station: decides whether packets go directly, and sends the tests and probes that are due.
    pub(super) fn look(&mut self, now: Time, station: LinkAddress, around: &dyn StationObserver) {
        let Some(mut peer) = self.peers.remove(&station) else { return };
        if peer.announced_prefixes.iter().all(|claim| claim.expires <= now) {
            if peer.is_direct() {
                self.part(now, station, &mut peer, "no longer announced");
                self.report_routes();
            }
            return;
        }
        peer.announced_prefixes.retain(|claim| claim.expires > now);
        let reach = self.reach(around.observation(now, station));
        let reachable = reach.is_ok();
        self.ask(now, station, &mut peer, reachable);
        let authorized =
            peer.announced_prefixes.iter().any(|claim| self.is_proven(now, station, claim.prefix));
        match (peer.route_state, reach) {
            (RouteState::Direct, Err(reason)) => self.part(now, station, &mut peer, reason),
            (RouteState::Direct, Ok(_)) if !authorized => self.part(now, station, &mut peer, UNAUTHORIZED),
            (RouteState::Direct, Ok(sight)) => {
                if self.is_silent(now, station, &mut peer, sight) {
                    self.fail(now, &mut peer);
                    self.part(now, station, &mut peer, SILENCE);
                }
            }
            (RouteState::ViaHomeAgents(_), Err(reason)) => self.stay_away(&mut peer, reason),
            (RouteState::ViaHomeAgents(_), Ok(_)) if !authorized => self.stay_away(&mut peer, UNAUTHORIZED),
            (RouteState::ViaHomeAgents(_), Ok(sight)) if !sight.stays_in_range => {
                self.stay_away(&mut peer, "at the edge")
            }
            (RouteState::ViaHomeAgents(_), Ok(_)) if peer.hold_until > now => {}
            (RouteState::ViaHomeAgents(_), Ok(sight)) => {
                if peer.confirmed.is_some_and(|at| now.saturating_since(at) <= FRESH) {
                    self.meet(now, station, &mut peer);
                } else if self.is_silent(now, station, &mut peer, sight) {
                    self.fail(now, &mut peer);
                    self.stay_away(&mut peer, SILENCE);
                } else {
                    peer.route_state = RouteState::ViaHomeAgents(PROBING);
                }
            }
        }
        let look = if peer.is_direct() { LOOK_DIRECT } else { LOOK_AWAY };
        let probing = peer.is_direct() || !peer.probes.is_quiet();
        let probe = probing.then(|| peer.next_probe(now));
        let test = self.test_at(now).filter(|_| reachable);
        let claims = peer.announced_prefixes.iter().map(|claim| match test {
            Some(test) if !self.is_settled(now, station, claim.prefix) => {
                claim.expires.min(claim.next_test.max(test))
            }
            _ => claim.expires,
        });
        // Everything that is due now has been handled, so the next check is later than now.
        let due = claims.chain(probe).min().unwrap_or(Time::MAX).min(now + look);
        peer.due = due.max(now + Duration::from_millis(1));
        self.peers.insert(station, peer);
        self.report_routes();
    }

    /// Returns the observation of a station that can be reached directly; otherwise the reason why it cannot.
    fn reach(&self, sight: Option<StationObservation>) -> Result<StationObservation, &'static str> {
        match sight {
            None => Err("out of reach"),
            // The observation concerns one hop. If the config permits several hops, only probes show
            // whether the station is reachable.
            Some(sight) if self.config.hops > 1 => {
                Ok(StationObservation { stays_in_range: true, leaves_range: false, ..sight })
            }
            Some(sight) if !sight.is_neighbour => Err("no neighbour"),
            Some(sight) if sight.leaves_range => Err("about to leave"),
            Some(sight) => Ok(sight),
        }
    }

    fn is_proven(&self, now: Time, station: LinkAddress, prefix: Ipv6Net) -> bool {
        self.proof(prefix, station).is_some_and(|until| until > now)
    }

    /// Returns whether a prefix is proven and its proof does not end soon.
    fn is_settled(&self, now: Time, station: LinkAddress, prefix: Ipv6Net) -> bool {
        self.proof(prefix, station).is_some_and(|until| until.saturating_since(now) > PROOF_RENEWAL)
    }

    /// Sends a test of a prefix whose proof is missing or ends soon. It sends one test at a time, so that
    /// other stations get tests too.
    fn ask(&mut self, now: Time, station: LinkAddress, peer: &mut Peer, reachable: bool) {
        for claim in &peer.announced_prefixes {
            if !self.is_proven(now, station, claim.prefix) {
                self.proofs.remove(&(claim.prefix, station));
            }
        }
        let claims = peer.announced_prefixes.iter_mut().filter(|claim| claim.next_test <= now);
        let open = claims.filter(|claim| !self.is_settled(now, station, claim.prefix));
        let claim = open.min_by_key(|claim| claim.next_test);
        // Record a test only if the router could send it.
        if let Some(claim) = claim.filter(|_| reachable)
            && let Some(cookie) = self.test(now, station, claim.prefix)
        {
            claim.record_test(cookie, now + TEST_INTERVAL * (1 << claim.tries.min(3)));
            (peer.served, peer.is_tested) = (now, true);
        }
    }

    /// Sends the probe that is due. Returns whether too many probes got no answer.
    fn is_silent(
        &mut self,
        now: Time,
        station: LinkAddress,
        peer: &mut Peer,
        sight: StationObservation,
    ) -> bool {
        if peer.next_probe(now) > now {
            return false;
        }
        let heard = now.saturating_since(sight.received_at) < HEARD;
        let most = if heard { DEAF } else { SILENT };
        if peer.probes.is_exhausted(&peer.sequence(most)) {
            return true;
        }
        let Some((asker, link_local)) = self.station else { return false };
        let fresh = self.rng.u64();
        let cookie = peer.probes.oldest().unwrap_or(fresh);
        peer.probes.sent(now, cookie);
        let test = PrefixTest {
            kind: PrefixTestKind::Probe,
            cookie,
            responder: station,
            requester: asker,
            prefix: Ipv6Addr::UNSPECIFIED,
            prefix_length: 0,
        };
        self.counters.probes += 1;
        let packet = test.packet(link_local, peer.link_local, nd::HOP_LIMIT);
        self.outputs.push_back(Output::Straight(station, packet));
        false
    }

    /// Records a failure of a station, and sets a hold-down that grows each time.
    fn fail(&mut self, now: Time, peer: &mut Peer) {
        if peer.is_direct() && now.saturating_since(peer.since) > STEADY {
            peer.failures = 0;
        }
        peer.hold_until = now + HOLD * (1 << peer.failures.min(5));
        peer.failures = peer.failures.saturating_add(1);
        peer.confirmed = None;
    }

    fn stay_away(&mut self, peer: &mut Peer, reason: &'static str) {
        peer.route_state = RouteState::ViaHomeAgents(reason);
        peer.probes.forget();
    }

    fn meet(&mut self, now: Time, station: LinkAddress, peer: &mut Peer) {
        (peer.route_state, peer.since) = (RouteState::Direct, now);
        self.counters.met += 1;
        self.tell(station, peer, true, "answers straight");
    }

    fn part(&mut self, now: Time, station: LinkAddress, peer: &mut Peer, reason: &'static str) {
        (peer.route_state, peer.since) = (RouteState::ViaHomeAgents(reason), now);
        peer.probes.forget();
        self.counters.parted += 1;
        self.tell(station, peer, false, reason);
        self.outputs.push_back(Output::Withdrawn(station));
    }

    fn tell(&mut self, station: LinkAddress, peer: &Peer, direct: bool, reason: &str) {
        self.outputs.push_back(Output::Routes);
        self.outputs.push_back(Output::Event(Event::Path {
            prefixes: peer.announced_prefixes.iter().map(|claim| claim.prefix).collect(),
            station: super::format_link_address(station),
            direct,
            reason: reason.into(),
        }));
    }
}
