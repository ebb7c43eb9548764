//! Neighbor Unreachability Detection for a router of one uplink (RFC 4861 7.3, RFC 6275 11.5.1).
//!
//! carnet probes the router in use when another router sends its first advertisement. It probes the router
//! that advertises the home prefix (the *home router*) at an interval, because no heartbeats are sent on the
//! home link.
//!
//! A probe is a Neighbor Solicitation, of which RFC 4861 7.3.3 permits one for each neighbour in
//! [`RETRANS_TIMER`]. In the meantime a probe is an Echo Request, which every node answers (RFC 4443 4.2),
//! and which no rule of Neighbor Discovery limits. For a router that drops Echo Requests only the
//! solicitations count, so its failure is detected after [`MAX_UNICAST_SOLICIT`] seconds.
//!
//! If the home router does not answer as fast as before, carnet sends two more probes at once. With the
//! second it sends a Router Solicitation to all routers. If the interface has moved to another link without
//! loss of carrier, the router of that link answers. So the kernel can begin duplicate address detection
//! early. The uplink has left the home link if such a router has advertised and the home router has not
//! answered [`MAX_UNICAST_SOLICIT`] probes. A second router of the home link does not count as a sign of a
//! move. If no other router advertises, carnet waits for [`PATIENCE`].
//!
//! Several routers of a home link may advertise the home prefix. carnet probes one of them, and if it fails
//! the next, its *successor*. The mobile router leaves the home link when all have failed.
//!
//! Left out: the states of RFC 4861 7.3.2, which the kernel has.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;

/// Number of unanswered probes of a home router after which the uplink has left the home link (RFC 4861 10).
/// It is also the number of unanswered Neighbor Solicitations after which a router has failed that drops Echo
/// Requests.
const MAX_UNICAST_SOLICIT: u32 = 3;
/// Minimum interval of Neighbor Solicitations to one neighbour (RFC 4861 10).
const RETRANS_TIMER: Duration = Duration::from_secs(1);
/// Number of unanswered probes after which a router has failed that answers Echo Requests. [`PATIENCE`] is
/// the minimum time, because a short disturbance could lose three probes.
const MAX_PROBES: u32 = 4;
const PATIENCE: Duration = Duration::from_millis(1200);
/// Number of unanswered Neighbor Solicitations after which a router has failed that carnet does not know yet.
/// Between them the router has not answered Echo Requests either.
const MAX_FIRST_SOLICIT: u32 = 2;
/// Interval of probes. The fourth interval ends with [`RETRANS_TIMER`].
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum time after which an answer of the home router is late, and between two Echo Requests. An answer
/// must also take twice the usual time to be late.
const LATE: Duration = Duration::from_millis(50);
/// Number of answers to Neighbor Solicitations, without an Echo Reply between them, after which a router
/// counts as one that drops Echo Requests.
const MAX_WITHOUT_ECHO: u32 = 3;
/// Time to wait for the answer to the last Neighbor Solicitation before a router that carnet does not know
/// yet has failed.
const ANSWER_TIME: Duration = Duration::from_millis(200);
/// Number of last Echo Requests whose replies are accepted.
const RECENT_ECHOES: u16 = 8;
/// Maximum number of routers whose probes are recorded; the one that was probed longest ago is removed first.
const MAX_PROBED: usize = 8;
/// Pause after the probes of a home router that has never answered.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(10);
/// Minimum time between two Router Solicitations because one home router did not answer:
/// `RTR_SOLICITATION_INTERVAL` (RFC 4861 10).
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
/// Maximum time in which all routers of one link answer a Router Solicitation (`MAX_RA_DELAY_TIME`, RFC 4861
/// 10). A router whose last advertisement is older than the home router's by more than this is on another
/// link.
const SAME_LINK: Duration = Duration::from_millis(500);

/// A router that carnet probes, or will probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RouterProbe {
    router: Ipv6Addr,
    /// Number of probes sent. `solicitations` is the number of Neighbor Solicitations among them.
    sent: u32,
    solicitations: u32,
    /// Time of the first probe. `last` is the time of the last one.
    began: Time,
    last: Time,
    next: Time,
    /// Whether the router is the home router, which carnet probes at an interval.
    at_home: bool,
    /// Whether another router has sent its first advertisement.
    new_router_seen: bool,
    /// Whether another router has advertised that does not belong to the home link.
    other_link_seen: bool,
}

/// Last messages to a router, from which the rate limits of RFC 4861 and of this module follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProbedRouter {
    router: Ipv6Addr,
    /// Times of the last Neighbor Solicitation and of the last Echo Request.
    solicited: Option<Time>,
    echoed: Option<Time>,
    /// Whether the router answers Echo Requests; `None` if unknown.
    answers_echo: Option<bool>,
    /// Whether an Echo Request has been sent since the router's last answer. `without_echo` is the number of
    /// Neighbor Advertisements in its place since the last Echo Reply.
    awaits_echo: bool,
    without_echo: u32,
}

/// A probe of a router. At least one of the two messages is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probe {
    pub router: Ipv6Addr,
    /// Whether to send a Neighbor Solicitation.
    pub solicits: bool,
    /// Sequence number of the Echo Request to send; `None` for no Echo Request.
    pub echo: Option<u16>,
}

/// Messages of a probe that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SentProbe {
    pub solicitation: bool,
    pub echo: bool,
}

/// A router that answers probes.
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
    /// Send this probe.
    Probe(Probe),
    /// Mark this router as unreachable. `link_since` is the time since which the mobile router is on this
    /// link. If the home router fails, routers whose last advertisement is older are on other links.
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
    /// Router that answered the last probe since the link came up.
    answering: Option<ReachableRouter>,
    /// Home router that has not answered any probe.
    never_answers: Option<Ipv6Addr>,
    /// Last probes of the routers.
    probed: Vec<ProbedRouter>,
    /// Sequence number of the next Echo Request.
    sequence: u16,
    /// Time of the last Router Solicitation because the home router did not answer.
    solicited_at: Option<Time>,
}

impl Reachability {
    /// Takes over the state from before a reload of the config. A running probe starts again.
    pub fn adopt(&mut self, old: &Reachability) {
        *self = Reachability { probe: None, ..old.clone() };
    }

    /// Sets the time of the next probe of the home router; a new home router is probed at once.
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
            let is_silent = self.never_answers.is_some() && self.never_answers == router;
            let interval = if is_silent { UNANSWERED_PAUSE } else { interval };
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

    /// Handles a router's answer to a probe: an Echo Reply with this sequence number, or a Neighbor
    /// Advertisement. Returns whether carnet was probing this router.
    pub fn answered(&mut self, now: Time, router: Ipv6Addr, echo: Option<u16>) -> bool {
        if echo.is_some_and(|number| self.sequence.wrapping_sub(number).wrapping_sub(1) >= RECENT_ECHOES) {
            return false;
        }
        if let Some(known) = self.probed.iter_mut().find(|known| known.router == router) {
            known.answered(echo.is_some());
        }
        let Some(probe) = self.probe.filter(|probe| probe.router == router) else { return false };
        let known = self.answering.filter(|known| known.router == router);
        let mut within = known.map_or(Duration::ZERO, |known| known.answer_time);
        if probe.sent > 0 {
            within = now.saturating_since(probe.began).max(within / 2);
        }
        // Keep a probe that is not sent yet: this answer is a repetition, or answers a solicitation of the
        // kernel.
        if probe.sent > 0 || !probe.at_home || probe.new_router_seen {
            self.probe = None;
        }
        self.answering = Some(ReachableRouter { router, answer_time: within });
        self.never_answers = None;
        true
    }

    /// Returns the time of the next action.
    pub fn deadline(&self) -> Option<Time> {
        self.probe.map(|probe| probe.next)
    }

    /// Returns the action that is due now. After a probe the caller calls [`Self::sent`]. `has_successor`
    /// says whether the home link has another router.
    pub fn due(&mut self, now: Time, has_successor: bool) -> DueAction {
        let Some(probe) = self.probe.filter(|probe| probe.next <= now) else { return DueAction::Nothing };
        let answers = self.answering.is_some_and(|known| known.router == probe.router);
        let has_moved = probe.other_link_seen && answers && probe.sent >= MAX_UNICAST_SOLICIT;
        if !self.is_silent(now, &probe) && !has_moved {
            return self.next_probe(now, probe.router);
        }
        self.probe = None;
        // A home router that never answers, as on a point-to-point link, does not count as failed for this
        // reason alone.
        if probe.at_home && !probe.new_router_seen && !answers && !has_successor {
            self.never_answers = Some(probe.router);
            return DueAction::Nothing;
        }
        let home = self.home.filter(|(home, _)| *home == probe.router);
        self.has_moved = probe.other_link_seen;
        DueAction::Unreachable { router: probe.router, link_since: home.map(|(_, since)| before_link(since)) }
    }

    /// Returns whether a router has not answered enough probes.
    fn is_silent(&mut self, now: Time, probe: &RouterProbe) -> bool {
        let known = *self.probed(probe.router);
        let since_solicited = known.solicited.map_or(Duration::ZERO, |at| now.saturating_since(at));
        let is_late = now.saturating_since(probe.began) >= PATIENCE;
        match known.answers_echo {
            Some(true) => probe.sent >= MAX_PROBES && is_late,
            None => probe.solicitations >= MAX_FIRST_SOLICIT && is_late && since_solicited >= ANSWER_TIME,
            Some(false) => probe.solicitations >= MAX_UNICAST_SOLICIT && since_solicited >= RETRANS_TIMER,
        }
    }

    /// Returns the next probe of a router, within the rate limits of messages to this router.
    fn next_probe(&mut self, now: Time, router: Ipv6Addr) -> DueAction {
        let sequence = self.sequence;
        let known = *self.probed(router);
        let is_over = |last: Option<Time>, pause| last.is_none_or(|at| now.saturating_since(at) >= pause);
        let solicits = is_over(known.solicited, RETRANS_TIMER);
        let may_echo = is_over(known.echoed, LATE);
        let echoes = match known.answers_echo {
            Some(true) => !solicits,
            None => true,
            Some(false) => solicits,
        };
        if solicits || (echoes && may_echo) {
            let echo = (echoes && may_echo).then_some(sequence);
            return DueAction::Probe(Probe { router, solicits, echo });
        }
        let next_echo = known.echoed.filter(|_| echoes).map(|at| at + LATE);
        let next = known.solicited.map(|at| at + RETRANS_TIMER).into_iter().chain(next_echo).min();
        if let (Some(probe), Some(next)) = (&mut self.probe, next) {
            probe.next = next;
        }
        DueAction::Nothing
    }

    /// Records the messages of a probe that were sent. If the link-local address is still tentative, nothing
    /// can be sent, so no answer is missing. Returns whether to send a Router Solicitation.
    pub fn sent(&mut self, now: Time, sent: SentProbe) -> bool {
        let late = self.late();
        let Some(probe) = &mut self.probe else { return false };
        probe.next = now + PROBE_INTERVAL;
        if sent == SentProbe::default() {
            return false;
        }
        probe.sent += 1;
        probe.solicitations += u32::from(sent.solicitation);
        probe.last = now;
        if probe.sent == 1 {
            probe.began = now;
        }
        if let Some(late) = late.filter(|_| probe.sent < MAX_UNICAST_SOLICIT || probe.other_link_seen) {
            probe.next = now + late;
        }
        if probe.sent >= MAX_PROBES {
            probe.next = probe.next.min(probe.began + PATIENCE).max(now + LATE);
        }
        let is_due = self.solicited_at.is_none_or(|at| now.saturating_since(at) >= SOLICITATION_INTERVAL);
        let solicits = late.is_some() && probe.sent == 2 && is_due;
        let router = probe.router;
        if solicits {
            self.solicited_at = Some(now);
        }
        if sent.echo {
            self.sequence = self.sequence.wrapping_add(1);
        }
        let known = self.probed(router);
        known.solicited = if sent.solicitation { Some(now) } else { known.solicited };
        known.echoed = if sent.echo { Some(now) } else { known.echoed };
        known.awaits_echo |= sent.echo;
        let next_solicitation = known.solicited.map(|at| at + RETRANS_TIMER).filter(|at| *at > now);
        let next_solicitation = next_solicitation.filter(|_| known.answers_echo != Some(true));
        if let (Some(probe), Some(next)) = (&mut self.probe, next_solicitation) {
            probe.next = probe.next.min(next);
        }
        solicits
    }

    /// Returns the record of a router's probes.
    fn probed(&mut self, router: Ipv6Addr) -> &mut ProbedRouter {
        let position = self.probed.iter().position(|known| known.router == router);
        let position = position.unwrap_or_else(|| {
            if self.probed.len() >= MAX_PROBED {
                let last = |known: &ProbedRouter| known.solicited.max(known.echoed);
                let oldest = (0..self.probed.len()).min_by_key(|&index| last(&self.probed[index]));
                if let Some(oldest) = oldest {
                    self.probed.swap_remove(oldest);
                }
            }
            self.probed.push(ProbedRouter {
                router,
                solicited: None,
                echoed: None,
                answers_echo: None,
                awaits_echo: false,
                without_echo: 0,
            });
            self.probed.len() - 1
        });
        &mut self.probed[position]
    }

    /// Returns the time after which an answer of the home router is late; `None` if no probe is outstanding
    /// or the router never answers.
    fn late(&self) -> Option<Duration> {
        let probe = self.probe.filter(|probe| probe.at_home)?;
        let answering = self.answering.filter(|known| known.router == probe.router)?;
        Some((answering.answer_time * 2).clamp(LATE, PROBE_INTERVAL))
    }
}

/// Returns the time of the earliest last advertisement that a router of the home link can have. A router that
/// advertised last before it is on another link. `since` is the time since which the home router is known.
fn before_link(since: Time) -> Time {
    Time::ZERO + since.saturating_since(Time::ZERO + SAME_LINK)
}

impl ProbedRouter {
    /// Records an answer to a probe.
    fn answered(&mut self, is_echo: bool) {
        if is_echo {
            self.answers_echo = Some(true);
            self.without_echo = 0;
        } else if self.awaits_echo {
            self.without_echo = self.without_echo.saturating_add(1);
            if self.without_echo >= MAX_WITHOUT_ECHO {
                self.answers_echo = Some(false);
            }
        }
        self.awaits_echo = false;
    }
}

impl RouterProbe {
    fn new(now: Time, router: Ipv6Addr) -> RouterProbe {
        RouterProbe {
            router,
            sent: 0,
            solicitations: 0,
            began: now,
            last: now,
            next: now,
            at_home: false,
            new_router_seen: false,
            other_link_seen: false,
        }
    }
}
