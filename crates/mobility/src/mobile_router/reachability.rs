//! Neighbor Unreachability Detection for a router of one uplink (RFC 4861 7.3, RFC 6275 11.5.1).
//!
//! carnet solicits the router in use when another router sends its first advertisement. It solicits the
//! router that advertises the home prefix (the *home router*) at an interval, because no heartbeats are sent
//! on the home link.
//!
//! If the home router does not answer as fast as before, carnet sends two more Neighbor Solicitations at
//! once. With the second it sends a Router Solicitation to all routers. If the interface has moved to another
//! link without loss of carrier, the router of that link answers. So the kernel can begin duplicate address
//! detection early. The uplink has left the home link if such a router has advertised and the home router has
//! not answered [`MAX_UNICAST_SOLICIT`] solicitations. A second router of the home link does not count as a
//! sign of a move. If no other router advertises, carnet waits for [`PATIENCE`].
//!
//! Several routers of a home link may advertise the home prefix. carnet solicits one of them, and if it fails
//! the next, its *successor*. The mobile router leaves the home link when all have failed.
//!
//! Left out: the states of RFC 4861 7.3.2, which the kernel has.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;

/// Number of unanswered Neighbor Solicitations to a home router after which the uplink has left the home link
/// (RFC 4861 10).
const MAX_UNICAST_SOLICIT: u32 = 3;
/// Number of unanswered Neighbor Solicitations after which any router has failed. [`PATIENCE`] is the minimum
/// time. RFC 4861 10 has [`MAX_UNICAST_SOLICIT`] solicitations in 3 s. carnet sends them faster, so a short
/// disturbance could lose three of them.
const MAX_PROBES: u32 = 4;
const PATIENCE: Duration = Duration::from_millis(1200);
/// Interval of Neighbor Solicitations. RFC 4861 has one second (`RETRANS_TIMER`). A shorter interval does no
/// harm, because after a late answer carnet only prefers another router for a while.
const PROBE_INTERVAL: Duration = Duration::from_millis(300);
/// Minimum time after which an answer of the home router is late. It must also take twice the usual time.
const LATE: Duration = Duration::from_millis(50);
/// Minimum time between two Router Solicitations because one home router did not answer:
/// `RTR_SOLICITATION_INTERVAL` (RFC 4861 10).
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
/// Maximum time in which all routers of one link answer a Router Solicitation (`MAX_RA_DELAY_TIME`, RFC 4861
/// 10). A router whose last advertisement is older than the home router's by more than this is on another
/// link.
const SAME_LINK: Duration = Duration::from_millis(500);

/// A router that carnet solicits, or will solicit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RouterProbe {
    router: Ipv6Addr,
    /// Number of solicitations sent.
    sent: u32,
    /// Time of the first solicitation. `last` is the time of the last one.
    began: Time,
    last: Time,
    next: Time,
    /// Whether the router is the home router, which carnet solicits at an interval.
    at_home: bool,
    /// Whether another router has sent its first advertisement.
    new_router_seen: bool,
    /// Whether another router has advertised that does not belong to the home link.
    other_link_seen: bool,
}

/// A router that answers solicitations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReachableRouter {
    router: Ipv6Addr,
    /// Time in which the router answers. A slower answer raises it; each faster answer halves the difference.
    answer_time: Duration,
}

/// Action that the caller performs now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DueAction {
    /// Nothing.
    Nothing,
    /// Send a Neighbor Solicitation to this router.
    Solicit(Ipv6Addr),
    /// Mark this router as unreachable. If it is the home router, routers whose last advertisement was before
    /// `link_since` are on other links.
    Unreachable { router: Ipv6Addr, link_since: Option<Time> },
}

/// Reachability of the routers of an uplink.
#[derive(Debug, Clone, Default)]
pub(super) struct Reachability {
    probe: Option<RouterProbe>,
    /// The home router, and the time since which the uplink has been on the home link.
    home: Option<(Ipv6Addr, Time)>,
    /// Whether a router of another link advertised while the home router that has just failed did not answer.
    has_moved: bool,
    /// Router that answered the last Neighbor Solicitation since the link came up.
    answering: Option<ReachableRouter>,
    /// Time of the last Router Solicitation because the home router did not answer.
    solicited_at: Option<Time>,
}

impl Reachability {
    /// Takes over the state from before a reload of the config. A running probe starts again.
    pub fn adopt(&mut self, old: &Reachability) {
        *self = Reachability { probe: None, ..old.clone() };
    }

    /// Sets the time of the next solicitation of the home router; a new home router is solicited at once.
    /// Stops the probe of a home link that the uplink has left.
    pub fn watch_home_router(&mut self, now: Time, router: Option<Ipv6Addr>, interval: Duration) {
        let former = self.home;
        let is_new = former.map(|(known, _)| known) != router;
        let moved = std::mem::take(&mut self.has_moved);
        if is_new {
            // The successor is on the same link, and answers as fast as the former router did.
            self.home = router.map(|router| (router, former.map_or(now, |(_, since)| since)));
            match (former, router, &mut self.answering) {
                (Some((former, _)), Some(router), Some(known)) if known.router == former => {
                    known.router = router;
                }
                (Some(_), Some(_), _) => {}
                _ => self.solicited_at = None,
            }
        }
        // Away from home, a probe of the router in use may be running; it continues.
        let is_kept = |probe: RouterProbe| match router {
            Some(router) => probe.router == router,
            None => !probe.at_home || probe.new_router_seen,
        };
        if !self.probe.is_some_and(is_kept) {
            let next = if is_new { now } else { now + interval };
            self.probe = router.map(|router| RouterProbe {
                next,
                at_home: true,
                other_link_seen: moved,
                ..RouterProbe::new(now, router)
            });
        }
    }

    /// Handles an advertisement of a router. `before` is the time of its last advertisement. `in_use` is the
    /// router to which the traffic goes.
    pub fn heard(&mut self, now: Time, router: Ipv6Addr, before: Option<Time>, in_use: Option<Ipv6Addr>) {
        if self.probe.is_some_and(|probe| probe.router == router) {
            self.probe = None;
        }
        if let Some(in_use) = in_use.filter(|in_use| *in_use != router && !in_use.is_unspecified())
            && before.is_none()
        {
            let under_way = self.probe.filter(|probe| probe.router == in_use && probe.sent > 0);
            let at_home = self.home.is_some_and(|(home, _)| home == in_use);
            let probe = under_way.unwrap_or(RouterProbe { at_home, ..RouterProbe::new(now, in_use) });
            self.probe = Some(RouterProbe { new_router_seen: true, ..probe });
        }
        let late = self.late();
        if let (Some(probe), Some((home, since))) = (&mut self.probe, self.home)
            && probe.router == home
            && router != home
            && before.is_none_or(|before| before < before_link(since))
        {
            probe.other_link_seen = true;
            let due = if probe.sent == 0 { now } else { probe.last + late.unwrap_or(PROBE_INTERVAL) };
            probe.next = probe.next.min(due);
        }
    }

    /// Handles a router's answer to a Neighbor Solicitation. Returns whether carnet was soliciting this
    /// router.
    pub fn answered(&mut self, now: Time, router: Ipv6Addr) -> bool {
        let Some(probe) = self.probe.filter(|probe| probe.router == router) else { return false };
        let known = self.answering.filter(|known| known.router == router);
        let mut within = known.map_or(Duration::ZERO, |known| known.answer_time);
        if probe.sent > 0 {
            within = now.saturating_since(probe.began).max(within / 2);
        }
        // Otherwise the router has repeated its answer, or has answered a solicitation of the kernel.
        if probe.sent > 0 || !probe.at_home || probe.new_router_seen {
            self.probe = None;
        }
        self.answering = Some(ReachableRouter { router, answer_time: within });
        true
    }

    /// Returns the time of the next action.
    pub fn deadline(&self) -> Option<Time> {
        self.probe.map(|probe| probe.next)
    }

    /// Returns the action that is due now. After a Neighbor Solicitation the caller calls
    /// [`Self::solicited`].
    pub fn due(&mut self, now: Time) -> DueAction {
        let Some(probe) = self.probe.filter(|probe| probe.next <= now) else { return DueAction::Nothing };
        let answers = self.answering.is_some_and(|known| known.router == probe.router);
        let is_silent = probe.sent >= MAX_PROBES && now.saturating_since(probe.began) >= PATIENCE;
        let has_moved = probe.other_link_seen && answers && probe.sent >= MAX_UNICAST_SOLICIT;
        if !is_silent && !has_moved {
            return DueAction::Solicit(probe.router);
        }
        self.probe = None;
        // A home router that never answers, as on a point-to-point link, does not count as failed for this
        // reason alone.
        if probe.at_home && !probe.new_router_seen && !answers {
            return DueAction::Nothing;
        }
        let home = self.home.filter(|(home, _)| *home == probe.router);
        self.has_moved = probe.other_link_seen;
        DueAction::Unreachable { router: probe.router, link_since: home.map(|(_, since)| before_link(since)) }
    }

    /// Records whether a Neighbor Solicitation was sent. If the link-local address is still tentative,
    /// nothing can be sent, so no answer is missing. Returns whether to send a Router Solicitation.
    pub fn solicited(&mut self, now: Time, has_left: bool) -> bool {
        let late = self.late();
        let Some(probe) = &mut self.probe else { return false };
        probe.next = now + PROBE_INTERVAL;
        if !has_left {
            return false;
        }
        probe.sent += 1;
        probe.last = now;
        if probe.sent == 1 {
            probe.began = now;
        }
        if let Some(late) = late.filter(|_| probe.sent < MAX_UNICAST_SOLICIT || probe.other_link_seen) {
            probe.next = now + late;
        }
        if probe.sent >= MAX_PROBES {
            probe.next = probe.next.min(probe.began + PATIENCE).max(now);
        }
        let is_due = self.solicited_at.is_none_or(|at| now.saturating_since(at) >= SOLICITATION_INTERVAL);
        let solicits = late.is_some() && probe.sent == 2 && is_due;
        if solicits {
            self.solicited_at = Some(now);
        }
        solicits
    }

    /// Returns the time after which an answer of the home router is late; `None` if no solicitation is
    /// outstanding or the router never answers.
    fn late(&self) -> Option<Duration> {
        let probe = self.probe.filter(|probe| probe.at_home)?;
        let answering = self.answering.filter(|known| known.router == probe.router)?;
        Some((answering.answer_time * 2).clamp(LATE, PROBE_INTERVAL))
    }
}

/// Returns the time before which no router of the home link can have advertised last. `since` is the time
/// since which the home router is known.
fn before_link(since: Time) -> Time {
    Time::ZERO + since.saturating_since(Time::ZERO + SAME_LINK)
}

impl RouterProbe {
    fn new(now: Time, router: Ipv6Addr) -> RouterProbe {
        RouterProbe {
            router,
            sent: 0,
            began: now,
            last: now,
            next: now,
            at_home: false,
            new_router_seen: false,
            other_link_seen: false,
        }
    }
}
