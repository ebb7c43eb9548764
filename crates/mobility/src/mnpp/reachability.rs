//! Decides whether a station is reached directly: tests of its prefixes, probes, begin and end of contact.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::{PrefixTest, PrefixTestKind};
use carnet_wire::nd;
use ipnet::Ipv6Net;

use super::peer::{Peer, Standing};
use super::{LinkAddress, Mnpp, Output, PROOF_RENEWAL, Sight, Surroundings};
use crate::Event;

/// Interval of position checks while packets go directly. [`LOOK_AWAY`] is for other stations.
const LOOK_DIRECT: Duration = Duration::from_millis(250);
const LOOK_AWAY: Duration = Duration::from_millis(500);
/// Probes without an answer after which a station has failed. [`DEAF`] is for a station that is
/// still heard.
const SILENT: usize = 3;
const DEAF: usize = 6;
/// Time after its last frame for which a station counts as heard.
const HEARD: Duration = Duration::from_millis(300);
/// Time for which an answer counts as fresh.
const FRESH: Duration = Duration::from_millis(500);
/// First hold-down of a failed station; it doubles each time, up to 32 times the value.
const HOLD: Duration = Duration::from_secs(1);
/// Time of contact after which the count of failures is cleared.
const STEADY: Duration = Duration::from_secs(60);
/// First interval between tests of one prefix; it doubles, up to 8 times the value.
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
        self.tell_routes();
    }

    /// Checks a station: decides whether packets go directly, and serves what is due.
    pub(super) fn look(&mut self, now: Time, station: LinkAddress, around: &dyn Surroundings) {
        let Some(mut peer) = self.peers.remove(&station) else { return };
        if peer.claims.iter().all(|claim| claim.expires <= now) {
            if peer.is_direct() {
                self.part(now, station, &mut peer, "no longer announced");
                self.tell_routes();
            }
            return;
        }
        peer.claims.retain(|claim| claim.expires > now);
        let reach = self.reach(around.sight(now, station));
        let reachable = reach.is_ok();
        self.ask(now, station, &mut peer, reachable);
        let authorized = peer.claims.iter().any(|claim| self.is_proven(now, station, claim.prefix));
        match (peer.standing, reach) {
            (Standing::Direct, Err(reason)) => self.part(now, station, &mut peer, reason),
            (Standing::Direct, Ok(_)) if !authorized => self.part(now, station, &mut peer, UNAUTHORIZED),
            (Standing::Direct, Ok(sight)) => {
                if self.is_silent(now, station, &mut peer, sight) {
                    self.fail(now, &mut peer);
                    self.part(now, station, &mut peer, SILENCE);
                }
            }
            (Standing::Away(_), Err(reason)) => self.stay_away(&mut peer, reason),
            (Standing::Away(_), Ok(_)) if !authorized => self.stay_away(&mut peer, UNAUTHORIZED),
            (Standing::Away(_), Ok(sight)) if !sight.stays => self.stay_away(&mut peer, "at the edge"),
            (Standing::Away(_), Ok(_)) if peer.hold > now => {}
            (Standing::Away(_), Ok(sight)) => {
                if peer.confirmed.is_some_and(|at| now.saturating_since(at) <= FRESH) {
                    self.meet(now, station, &mut peer);
                } else if self.is_silent(now, station, &mut peer, sight) {
                    self.fail(now, &mut peer);
                    self.stay_away(&mut peer, SILENCE);
                } else {
                    peer.standing = Standing::Away(PROBING);
                }
            }
        }
        let look = if peer.is_direct() { LOOK_DIRECT } else { LOOK_AWAY };
        let probing = peer.is_direct() || !peer.probes.is_quiet();
        let probe = probing.then(|| peer.next_probe(now));
        let test = self.test_at(now).filter(|_| reachable);
        let claims = peer.claims.iter().map(|claim| match test {
            Some(test) if !self.is_settled(now, station, claim.prefix) => {
                claim.expires.min(claim.next.max(test))
            }
            _ => claim.expires,
        });
        // The next check is never at once, because everything due has been served.
        let due = claims.chain(probe).min().unwrap_or(Time::MAX).min(now + look);
        peer.due = due.max(now + Duration::from_millis(1));
        self.peers.insert(station, peer);
        self.tell_routes();
    }

    /// Returns the observation of a station that can be reached directly; otherwise the reason against it.
    fn reach(&self, sight: Option<Sight>) -> Result<Sight, &'static str> {
        match sight {
            None => Err("out of reach"),
            // Over several hops only probes show reachability.
            Some(sight) if self.config.hops > 1 => Ok(Sight { stays: true, leaves: false, ..sight }),
            Some(sight) if !sight.near => Err("no neighbour"),
            Some(sight) if sight.leaves => Err("about to leave"),
            Some(sight) => Ok(sight),
        }
    }

    fn is_proven(&self, now: Time, station: LinkAddress, prefix: Ipv6Net) -> bool {
        self.proof(prefix, station).is_some_and(|until| until > now)
    }

    /// Whether a prefix is proven, and will be for a while.
    fn is_settled(&self, now: Time, station: LinkAddress, prefix: Ipv6Net) -> bool {
        self.proof(prefix, station).is_some_and(|until| until.saturating_since(now) > PROOF_RENEWAL)
    }

    /// Sends a test for a prefix whose proof is missing or ends soon: one test at a time, so that other
    /// stations have their turn.
    fn ask(&mut self, now: Time, station: LinkAddress, peer: &mut Peer, reachable: bool) {
        for claim in &peer.claims {
            if !self.is_proven(now, station, claim.prefix) {
                self.proofs.remove(&(claim.prefix, station));
            }
        }
        let claims = peer.claims.iter_mut().filter(|claim| claim.next <= now);
        let open = claims.filter(|claim| !self.is_settled(now, station, claim.prefix));
        let claim = open.min_by_key(|claim| claim.next);
        // A test that could not be sent does not count as a try.
        if let Some(claim) = claim.filter(|_| reachable)
            && let Some(cookie) = self.test(now, station, claim.prefix)
        {
            claim.tested(cookie, now + TEST_INTERVAL * (1 << claim.tries.min(3)));
            (peer.served, peer.asked) = (now, true);
        }
    }

    /// Sends the probe that is due. Returns true if too many probes got no answer.
    fn is_silent(&mut self, now: Time, station: LinkAddress, peer: &mut Peer, sight: Sight) -> bool {
        if peer.next_probe(now) > now {
            return false;
        }
        let heard = now.saturating_since(sight.heard) < HEARD;
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
            asker,
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
        peer.hold = now + HOLD * (1 << peer.failures.min(5));
        peer.failures = peer.failures.saturating_add(1);
        peer.confirmed = None;
    }

    fn stay_away(&mut self, peer: &mut Peer, reason: &'static str) {
        peer.standing = Standing::Away(reason);
        peer.probes.forget();
    }

    fn meet(&mut self, now: Time, station: LinkAddress, peer: &mut Peer) {
        (peer.standing, peer.since) = (Standing::Direct, now);
        self.counters.met += 1;
        self.tell(station, peer, true, "answers straight");
    }

    fn part(&mut self, now: Time, station: LinkAddress, peer: &mut Peer, reason: &'static str) {
        (peer.standing, peer.since) = (Standing::Away(reason), now);
        peer.probes.forget();
        self.counters.parted += 1;
        self.tell(station, peer, false, reason);
        self.outputs.push_back(Output::Withdrawn(station));
    }

    fn tell(&mut self, station: LinkAddress, peer: &Peer, direct: bool, reason: &str) {
        self.outputs.push_back(Output::Routes);
        self.outputs.push_back(Output::Event(Event::Path {
            prefixes: peer.claims.iter().map(|claim| claim.prefix).collect(),
            station: super::in_words(station),
            direct,
            reason: reason.into(),
        }));
    }
}
