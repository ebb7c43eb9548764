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
//! move. If no other router advertises, carnet waits for [`PROBE_ANSWER_TIMEOUT`].
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
/// Number of unanswered probes after which a router has failed that answers Echo Requests.
/// [`PROBE_ANSWER_TIMEOUT`] is the minimum time, because a short disturbance could lose three probes.
const MAX_PROBES: u32 = 4;
const PROBE_ANSWER_TIMEOUT: Duration = Duration::from_millis(1200);
/// Number of unanswered Neighbor Solicitations after which a router has failed that carnet does not know yet.
/// Between them the router has not answered Echo Requests either.
const MAX_FIRST_PROBE_SOLICITATIONS: u32 = 2;
/// Interval of probes, a quarter of [`RETRANS_TIMER`].
const PROBE_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum time after which an answer of the home router is late, and minimum time between two Echo Requests.
/// An answer must also take twice the usual time to be late.
const MIN_LATE_TIME: Duration = Duration::from_millis(50);
/// Number of answers to Neighbor Solicitations, without an Echo Reply between them, after which a router
/// counts as one that drops Echo Requests.
const MAX_PROBES_WITHOUT_ECHO_REPLY: u32 = 3;
/// Time to wait for the answer to the last Neighbor Solicitation before a router that carnet does not know
/// yet has failed.
const DEFAULT_ANSWER_TIME: Duration = Duration::from_millis(200);
/// Number of last Echo Requests whose replies are accepted.
const ACCEPTED_ECHO_COUNT: u16 = 8;
/// Maximum number of routers whose probes are recorded; the one that was probed longest ago is removed first.
const MAX_PROBED_ROUTERS: usize = 8;
/// Pause after the probes of a home router that has never answered.
const PAUSE_AFTER_UNANSWERED_PROBE: Duration = Duration::from_secs(10);
/// Minimum time between two Router Solicitations because one home router did not answer:
/// `RTR_SOLICITATION_INTERVAL` (RFC 4861 10).
const SOLICITATION_INTERVAL: Duration = Duration::from_secs(4);
/// Maximum time in which all routers of one link answer a Router Solicitation (`MAX_RA_DELAY_TIME`, RFC 4861
/// 10). A router whose last advertisement is older than the home router's by more than this is on another
/// link.
const SAME_LINK_TIME: Duration = Duration::from_millis(500);

/// A router that carnet probes, or will probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RouterProbe {
    router: Ipv6Addr,
    /// Number of probes sent. `sent_solicitations` is the number of Neighbor Solicitations among them.
    sent_probes: u32,
    sent_solicitations: u32,
    /// Time of the first probe. `last_probe_at` is the time of the last one.
    began_at: Time,
    last_probe_at: Time,
    next_probe_at: Time,
    /// Whether the router is the home router, which carnet probes at an interval.
    is_home_router: bool,
    /// Whether another router has sent its first advertisement.
    new_router_seen: bool,
    /// Whether another router has advertised that does not belong to the home link.
    other_link_seen: bool,
}

/// Last messages to a router, from which the rate limits of RFC 4861 and of this module follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProbedRouter {
    router: Ipv6Addr,
    /// Time of the last Neighbor Solicitation to the router. `echo_requested_at` is the time of the last Echo
    /// Request. Both are `None` before the first such message.
    solicited_at: Option<Time>,
    echo_requested_at: Option<Time>,
    /// Whether the router answers Echo Requests; `None` if unknown.
    answers_echo: Option<bool>,
    /// Whether an Echo Request has been sent since the router's last answer. `probes_without_echo` is the
    /// number of probes since the last Echo Reply that the router answered by a Neighbor Advertisement only.
    awaits_echo: bool,
    probes_without_echo: u32,
}

/// A probe of a router. At least one of the two messages is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProbeToSend {
    pub router: Ipv6Addr,
    /// Whether to send a Neighbor Solicitation.
    pub needs_solicitation: bool,
    /// Sequence number of the Echo Request to send; `None` for no Echo Request.
    pub echo_number: Option<u16>,
}

/// Messages of a probe that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct SentProbe {
    pub solicitation_sent: bool,
    pub echo_sent: bool,
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
pub(super) enum DueProbeAction {
    /// No action is due.
    Nothing,
    /// Send this probe.
    Probe(ProbeToSend),
    /// Mark this router as unreachable. `link_since` is the time since which the mobile router is on this
    /// link. If the home router fails, routers whose last advertisement is older are on other links.
    Unreachable { router: Ipv6Addr, link_since: Option<Time> },
}

/// Reachability of the routers of an uplink.
#[derive(Debug, Clone, Default)]
pub(super) struct Reachability {
    running_probe: Option<RouterProbe>,
    /// The home router, and the time since which the uplink has been on the home link. `None` if the uplink
    /// is not on the home link.
    home_router: Option<(Ipv6Addr, Time)>,
    /// Whether a router of another link advertised while the home router that has just failed did not answer.
    has_left_home_link: bool,
    /// Router that answered the last probe since the link came up; `None` if none has answered.
    answering_router: Option<ReachableRouter>,
    /// Home router that has not answered any probe; `None` without such a router.
    never_answering_router: Option<Ipv6Addr>,
    /// Last probes of the routers.
    probed_routers: Vec<ProbedRouter>,
    /// Sequence number of the next Echo Request.
    sequence: u16,
    /// Time of the last Router Solicitation because the home router did not answer; `None` before the first
    /// one.
    solicited_at: Option<Time>,
}

impl Reachability {
    /// Takes over the state from before a reload of the config. A running probe starts again.
    pub fn adopt_state(&mut self, old: &Reachability) {
        *self = Reachability { running_probe: None, ..old.clone() };
    }

    /// Sets the time of the next probe of the home router; a new home router is probed at once.
    /// Stops the probe of a home link that the uplink has left.
    pub fn watch_home_router(&mut self, now: Time, router: Option<Ipv6Addr>, interval: Duration) {
        let former = self.home_router;
        let is_new = former.map(|(known, _)| known) != router;
        let moved = std::mem::take(&mut self.has_left_home_link);
        if is_new {
            // The next router of the home link takes over two values of the former router. These are the time
            // since which the uplink is on this link, and the time in which the router answers.
            self.home_router = router.map(|router| (router, former.map_or(now, |(_, since)| since)));
            match (former, router, &mut self.answering_router) {
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
            None => !probe.is_home_router || probe.new_router_seen,
        };
        if !self.running_probe.is_some_and(is_kept) {
            let is_silent = self.never_answering_router.is_some() && self.never_answering_router == router;
            let interval = if is_silent { PAUSE_AFTER_UNANSWERED_PROBE } else { interval };
            let next = if is_new { now } else { now + interval };
            self.running_probe = router.map(|router| RouterProbe {
                next_probe_at: next,
                is_home_router: true,
                other_link_seen: moved,
                ..RouterProbe::new(now, router)
            });
        }
    }

    /// Handles an advertisement of a router. `before` is the time of its last advertisement. `in_use` is the
    /// router to which the traffic goes.
    pub fn handle_advertisement(
        &mut self,
        now: Time,
        router: Ipv6Addr,
        before: Option<Time>,
        in_use: Option<Ipv6Addr>,
    ) {
        if self.running_probe.is_some_and(|probe| probe.router == router) {
            self.running_probe = None;
        }
        if let Some(in_use) = in_use.filter(|in_use| *in_use != router && !in_use.is_unspecified())
            && before.is_none()
        {
            let under_way =
                self.running_probe.filter(|probe| probe.router == in_use && probe.sent_probes > 0);
            let at_home = self.home_router.is_some_and(|(home, _)| home == in_use);
            let probe =
                under_way.unwrap_or(RouterProbe { is_home_router: at_home, ..RouterProbe::new(now, in_use) });
            self.running_probe = Some(RouterProbe { new_router_seen: true, ..probe });
        }
        let late = self.late_time();
        if let (Some(probe), Some((home, since))) = (&mut self.running_probe, self.home_router)
            && probe.router == home
            && router != home
            && before.is_none_or(|before| before < earliest_home_advertisement(since))
        {
            probe.other_link_seen = true;
            let due = if probe.sent_probes == 0 {
                now
            } else {
                probe.last_probe_at + late.unwrap_or(PROBE_INTERVAL)
            };
            probe.next_probe_at = probe.next_probe_at.min(due);
        }
    }

    /// Handles a router's answer to a probe: an Echo Reply with this sequence number, or a Neighbor
    /// Advertisement. Returns whether carnet was probing this router.
    pub fn handle_answer(&mut self, now: Time, router: Ipv6Addr, echo: Option<u16>) -> bool {
        if echo
            .is_some_and(|number| self.sequence.wrapping_sub(number).wrapping_sub(1) >= ACCEPTED_ECHO_COUNT)
        {
            return false;
        }
        if let Some(known) = self.probed_routers.iter_mut().find(|known| known.router == router) {
            known.record_answer(echo.is_some());
        }
        let Some(probe) = self.running_probe.filter(|probe| probe.router == router) else { return false };
        let known = self.answering_router.filter(|known| known.router == router);
        let mut within = known.map_or(Duration::ZERO, |known| known.answer_time);
        if probe.sent_probes > 0 {
            within = now.saturating_since(probe.began_at).max(within / 2);
        }
        // Keep a probe that is not sent yet: this answer is a repetition, or answers a solicitation of the
        // kernel.
        if probe.sent_probes > 0 || !probe.is_home_router || probe.new_router_seen {
            self.running_probe = None;
        }
        self.answering_router = Some(ReachableRouter { router, answer_time: within });
        self.never_answering_router = None;
        true
    }

    /// Returns when the next probe is due; `None` if no router is being probed.
    pub fn next_deadline(&self) -> Option<Time> {
        self.running_probe.map(|probe| probe.next_probe_at)
    }

    /// Returns the action that is due now. After a probe the caller calls [`Self::record_sent_probe`].
    /// `has_successor` says whether the home link has another router.
    pub fn due_action(&mut self, now: Time, has_successor: bool) -> DueProbeAction {
        let Some(probe) = self.running_probe.filter(|probe| probe.next_probe_at <= now) else {
            return DueProbeAction::Nothing;
        };
        let answers = self.answering_router.is_some_and(|known| known.router == probe.router);
        let has_left_home_link = probe.other_link_seen && answers && probe.sent_probes >= MAX_UNICAST_SOLICIT;
        if !self.is_probe_unanswered(now, &probe) && !has_left_home_link {
            return self.next_probe(now, probe.router);
        }
        self.running_probe = None;
        // A home router that never answers, as on a point-to-point link, does not count as failed for this
        // reason alone.
        if probe.is_home_router && !probe.new_router_seen && !answers && !has_successor {
            self.never_answering_router = Some(probe.router);
            return DueProbeAction::Nothing;
        }
        let home = self.home_router.filter(|(home, _)| *home == probe.router);
        self.has_left_home_link = probe.other_link_seen;
        DueProbeAction::Unreachable {
            router: probe.router,
            link_since: home.map(|(_, since)| earliest_home_advertisement(since)),
        }
    }

    /// Returns whether a router has not answered enough probes.
    fn is_probe_unanswered(&mut self, now: Time, probe: &RouterProbe) -> bool {
        let known = *self.probed_router_mut(probe.router);
        let since_solicited = known.solicited_at.map_or(Duration::ZERO, |at| now.saturating_since(at));
        let is_late = now.saturating_since(probe.began_at) >= PROBE_ANSWER_TIMEOUT;
        match known.answers_echo {
            Some(true) => probe.sent_probes >= MAX_PROBES && is_late,
            None => {
                probe.sent_solicitations >= MAX_FIRST_PROBE_SOLICITATIONS
                    && is_late
                    && since_solicited >= DEFAULT_ANSWER_TIME
            }
            Some(false) => {
                probe.sent_solicitations >= MAX_UNICAST_SOLICIT && since_solicited >= RETRANS_TIMER
            }
        }
    }

    /// Returns the next probe of a router, within the rate limits of messages to this router.
    fn next_probe(&mut self, now: Time, router: Ipv6Addr) -> DueProbeAction {
        let sequence = self.sequence;
        let known = *self.probed_router_mut(router);
        let is_over = |last: Option<Time>, pause| last.is_none_or(|at| now.saturating_since(at) >= pause);
        let solicits = is_over(known.solicited_at, RETRANS_TIMER);
        let may_echo = is_over(known.echo_requested_at, MIN_LATE_TIME);
        let echoes = match known.answers_echo {
            Some(true) => !solicits,
            None => true,
            Some(false) => solicits,
        };
        if solicits || (echoes && may_echo) {
            let echo = (echoes && may_echo).then_some(sequence);
            return DueProbeAction::Probe(ProbeToSend {
                router,
                needs_solicitation: solicits,
                echo_number: echo,
            });
        }
        let next_echo = known.echo_requested_at.filter(|_| echoes).map(|at| at + MIN_LATE_TIME);
        let next = known.solicited_at.map(|at| at + RETRANS_TIMER).into_iter().chain(next_echo).min();
        if let (Some(probe), Some(next)) = (&mut self.running_probe, next) {
            probe.next_probe_at = next;
        }
        DueProbeAction::Nothing
    }

    /// Records the messages of a probe that were sent. If the link-local address is still tentative, nothing
    /// can be sent, so no answer is missing. Returns whether to send a Router Solicitation.
    pub fn record_sent_probe(&mut self, now: Time, sent: SentProbe) -> bool {
        let late = self.late_time();
        let Some(probe) = &mut self.running_probe else { return false };
        probe.next_probe_at = now + PROBE_INTERVAL;
        if sent == SentProbe::default() {
            return false;
        }
        probe.sent_probes += 1;
        probe.sent_solicitations += u32::from(sent.solicitation_sent);
        probe.last_probe_at = now;
        if probe.sent_probes == 1 {
            probe.began_at = now;
        }
        if let Some(late) = late.filter(|_| probe.sent_probes < MAX_UNICAST_SOLICIT || probe.other_link_seen)
        {
            probe.next_probe_at = now + late;
        }
        if probe.sent_probes >= MAX_PROBES {
            probe.next_probe_at =
                probe.next_probe_at.min(probe.began_at + PROBE_ANSWER_TIMEOUT).max(now + MIN_LATE_TIME);
        }
        let is_due = self.solicited_at.is_none_or(|at| now.saturating_since(at) >= SOLICITATION_INTERVAL);
        let solicits = late.is_some() && probe.sent_probes == 2 && is_due;
        let router = probe.router;
        if solicits {
            self.solicited_at = Some(now);
        }
        if sent.echo_sent {
            self.sequence = self.sequence.wrapping_add(1);
        }
        let known = self.probed_router_mut(router);
        known.solicited_at = if sent.solicitation_sent { Some(now) } else { known.solicited_at };
        known.echo_requested_at = if sent.echo_sent { Some(now) } else { known.echo_requested_at };
        known.awaits_echo |= sent.echo_sent;
        let next_solicitation = known.solicited_at.map(|at| at + RETRANS_TIMER).filter(|at| *at > now);
        let next_solicitation = next_solicitation.filter(|_| known.answers_echo != Some(true));
        if let (Some(probe), Some(next)) = (&mut self.running_probe, next_solicitation) {
            probe.next_probe_at = probe.next_probe_at.min(next);
        }
        solicits
    }

    /// Returns the record of a router's probes.
    fn probed_router_mut(&mut self, router: Ipv6Addr) -> &mut ProbedRouter {
        let position = self.probed_routers.iter().position(|known| known.router == router);
        let position = position.unwrap_or_else(|| {
            if self.probed_routers.len() >= MAX_PROBED_ROUTERS {
                let last = |known: &ProbedRouter| known.solicited_at.max(known.echo_requested_at);
                let oldest =
                    (0..self.probed_routers.len()).min_by_key(|&index| last(&self.probed_routers[index]));
                if let Some(oldest) = oldest {
                    self.probed_routers.swap_remove(oldest);
                }
            }
            self.probed_routers.push(ProbedRouter {
                router,
                solicited_at: None,
                echo_requested_at: None,
                answers_echo: None,
                awaits_echo: false,
                probes_without_echo: 0,
            });
            self.probed_routers.len() - 1
        });
        &mut self.probed_routers[position]
    }

    /// Returns the time after which an answer of the home link's router is late. `None` if no probe to this
    /// router is outstanding, or if this router has not answered any probe yet.
    fn late_time(&self) -> Option<Duration> {
        let probe = self.running_probe.filter(|probe| probe.is_home_router)?;
        let answering = self.answering_router.filter(|known| known.router == probe.router)?;
        Some((answering.answer_time * 2).clamp(MIN_LATE_TIME, PROBE_INTERVAL))
    }
}

/// Returns the earliest time at which a router of the home link can have advertised last. A router that
/// advertised last before this time is on another link. `since` is the time since which the home router is
/// known.
fn earliest_home_advertisement(since: Time) -> Time {
    Time::ZERO + since.saturating_since(Time::ZERO + SAME_LINK_TIME)
}

impl ProbedRouter {
    /// Records an answer to a probe.
    fn record_answer(&mut self, is_echo: bool) {
        if is_echo {
            self.answers_echo = Some(true);
            self.probes_without_echo = 0;
        } else if self.awaits_echo {
            self.probes_without_echo = self.probes_without_echo.saturating_add(1);
            if self.probes_without_echo >= MAX_PROBES_WITHOUT_ECHO_REPLY {
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
            sent_probes: 0,
            sent_solicitations: 0,
            began_at: now,
            last_probe_at: now,
            next_probe_at: now,
            is_home_router: false,
            new_router_seen: false,
            other_link_seen: false,
        }
    }
}
