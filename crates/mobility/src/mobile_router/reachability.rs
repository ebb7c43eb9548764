//! Neighbor Unreachability Detection of a router of one uplink (RFC 4861 7.3, RFC 6275 11.5.1).
//!
//! carnet solicits the router in use when another router is heard for the first time. It solicits the router
//! that advertises the home prefix at an interval, because no heartbeats run at home.
//!
//! If the home router does not answer as fast as before, it is *in doubt*: two more Neighbor Solicitations
//! follow at once. With the second a Router Solicitation goes to all routers. After a move without loss of
//! carrier the router of the new link answers it, so that the kernel's duplicate address detection begins
//! early. The router leaves the home link when such a router has advertised and the home router has left
//! [`MAX_UNICAST_SOLICIT`] solicitations unanswered. A second router of the home link is no sign of a move.
//! While no other router advertises, the home router has [`PATIENCE`].
//!
//! Left out: the states of RFC 4861 7.3.2, which the kernel keeps.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;

/// Unanswered Neighbor Solicitations to a home router after which the link is another one (RFC 4861 10).
const MAX_UNICAST_SOLICIT: u32 = 3;
/// Unanswered Neighbor Solicitations after which any router has failed. [`PATIENCE`] is the least time for
/// it. RFC 4861 10 has [`MAX_UNICAST_SOLICIT`] in 3 s; here they follow each other faster, and a short
/// disturbance could lose 3.
const MAX_PROBES: u32 = 4;
const PATIENCE: Duration = Duration::from_millis(1200);
/// Interval of Neighbor Solicitations. RFC 4861 has a second (`RETRANS_TIMER`); here a late answer costs only
/// the turn of another router.
const PROBE_INTERVAL: Duration = Duration::from_millis(300);
/// Least time after which an answer of the home router is late. It is also late after twice the usual time.
const LATE: Duration = Duration::from_millis(50);
/// Least time between two Router Solicitations because of doubt about one home router:
/// `RTR_SOLICITATION_INTERVAL` (RFC 4861 10).
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
/// Time within which routers of one link answer a Router Solicitation (`MAX_RA_DELAY_TIME`, RFC 4861 10). A
/// router that was heard longer before the home router, and not since, is on another link.
const SAME_LINK: Duration = Duration::from_millis(500);

/// A router that is being solicited, or is about to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Probe {
    router: Ipv6Addr,
    /// Solicitations sent so far.
    sent: u32,
    /// Time of the first solicitation. `last` is the time of the last.
    began: Time,
    last: Time,
    next: Time,
    /// Whether the router is that of the home link, which is solicited at an interval.
    at_home: bool,
    /// Whether another router was heard for the first time.
    newcomer: bool,
    /// Whether another router was heard that does not belong to the home link.
    moved: bool,
}

/// A router that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Answering {
    router: Ipv6Addr,
    /// Time that its answers take: the longest recent one, which halves with each faster answer.
    within: Duration,
}

/// An action that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing.
    Nothing,
    /// A Neighbor Solicitation to a router.
    Solicit(Ipv6Addr),
    /// A router does not answer. If it is the router of the home link, routers that were heard last before
    /// `link_since` are on other links.
    Unreachable { router: Ipv6Addr, link_since: Option<Time> },
}

/// Reachability of the routers of an uplink.
#[derive(Debug, Clone, Default)]
pub(super) struct Reachability {
    probe: Option<Probe>,
    /// Router of the home link, and the time since when it has been the home router.
    home: Option<(Ipv6Addr, Time)>,
    /// Router that has answered a Neighbor Solicitation last since the link came up.
    answering: Option<Answering>,
    /// Time of the last Router Solicitation because of doubt about this home router.
    solicited_at: Option<Time>,
}

impl Reachability {
    /// Takes over the state under another configuration. A running probe begins anew.
    pub fn adopt(&mut self, old: &Reachability) {
        *self = Reachability { probe: None, ..old.clone() };
    }

    /// Sets when the router of the home link is solicited next, a new one at once. Stops the probe of a home
    /// link that was left.
    pub fn watch_home_router(&mut self, now: Time, router: Option<Ipv6Addr>, interval: Duration) {
        let is_new = self.home.map(|(known, _)| known) != router;
        if is_new {
            self.home = router.map(|router| (router, now));
            self.solicited_at = None;
        }
        // Away from home another probe may run: of the router in use, which is in doubt.
        let is_kept = |probe: Probe| match router {
            Some(router) => probe.router == router,
            None => !probe.at_home || probe.newcomer,
        };
        if !self.probe.is_some_and(is_kept) {
            let next = if is_new { now } else { now + interval };
            self.probe = router.map(|router| Probe { next, at_home: true, ..Probe::new(now, router) });
        }
    }

    /// Handles an advertisement of a router that was heard before at `before`; `in_use` is the router that
    /// traffic leaves by.
    pub fn heard(&mut self, now: Time, router: Ipv6Addr, before: Option<Time>, in_use: Option<Ipv6Addr>) {
        if self.probe.is_some_and(|probe| probe.router == router) {
            self.probe = None;
        }
        if let Some(in_use) = in_use.filter(|in_use| *in_use != router && !in_use.is_unspecified())
            && before.is_none()
        {
            let under_way = self.probe.filter(|probe| probe.router == in_use && probe.sent > 0);
            let at_home = self.home.is_some_and(|(home, _)| home == in_use);
            let probe = under_way.unwrap_or(Probe { at_home, ..Probe::new(now, in_use) });
            self.probe = Some(Probe { newcomer: true, ..probe });
        }
        let late = self.late();
        if let (Some(probe), Some((home, since))) = (&mut self.probe, self.home)
            && probe.router == home
            && router != home
            && before.is_none_or(|before| before < before_link(since))
        {
            probe.moved = true;
            let due = if probe.sent == 0 { now } else { probe.last + late.unwrap_or(PROBE_INTERVAL) };
            probe.next = probe.next.min(due);
        }
    }

    /// Handles a router's answer to a Neighbor Solicitation; returns true if the router was being solicited.
    pub fn answered(&mut self, now: Time, router: Ipv6Addr) -> bool {
        let Some(probe) = self.probe.filter(|probe| probe.router == router) else { return false };
        let known = self.answering.filter(|known| known.router == router);
        let mut within = known.map_or(Duration::ZERO, |known| known.within);
        if probe.sent > 0 {
            within = now.saturating_since(probe.began).max(within / 2);
        }
        // Otherwise the router has repeated an answer, or answered the kernel.
        if probe.sent > 0 || !probe.at_home || probe.newcomer {
            self.probe = None;
        }
        self.answering = Some(Answering { router, within });
        true
    }

    /// Returns when an action is due.
    pub fn deadline(&self) -> Option<Time> {
        self.probe.map(|probe| probe.next)
    }

    /// Returns the action that is due now. The caller reports a Neighbor Solicitation by [`Self::solicited`].
    pub fn due(&mut self, now: Time) -> Due {
        let Some(probe) = self.probe.filter(|probe| probe.next <= now) else { return Due::Nothing };
        let answers = self.answering.is_some_and(|known| known.router == probe.router);
        let is_silent = probe.sent >= MAX_PROBES && now.saturating_since(probe.began) >= PATIENCE;
        let has_moved = probe.moved && answers && probe.sent >= MAX_UNICAST_SOLICIT;
        if !is_silent && !has_moved {
            return Due::Solicit(probe.router);
        }
        self.probe = None;
        // A home router that never answers, as on a point-to-point link, does not fail by its silence alone.
        if probe.at_home && !probe.newcomer && !answers {
            return Due::Nothing;
        }
        let home = self.home.filter(|(home, _)| *home == probe.router);
        Due::Unreachable { router: probe.router, link_since: home.map(|(_, since)| before_link(since)) }
    }

    /// Records whether a Neighbor Solicitation has left. A tentative link-local address prevents it, and then
    /// no answer is missing. Returns true if routers are to be solicited.
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
        if let Some(late) = late.filter(|_| probe.sent < MAX_UNICAST_SOLICIT || probe.moved) {
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

    /// Returns when an answer of the home link's router is late, if the router is being solicited and answers
    /// at all.
    fn late(&self) -> Option<Duration> {
        let probe = self.probe.filter(|probe| probe.at_home)?;
        let answering = self.answering.filter(|known| known.router == probe.router)?;
        Some((answering.within * 2).clamp(LATE, PROBE_INTERVAL))
    }
}

/// Returns the time before which a router of the home router's link, known since `since`, cannot have been
/// heard last.
fn before_link(since: Time) -> Time {
    Time::ZERO + since.saturating_since(Time::ZERO + SAME_LINK)
}

impl Probe {
    fn new(now: Time, router: Ipv6Addr) -> Probe {
        Probe {
            router,
            sent: 0,
            began: now,
            last: now,
            next: now,
            at_home: false,
            newcomer: false,
            moved: false,
        }
    }
}
