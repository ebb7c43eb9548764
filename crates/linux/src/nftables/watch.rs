//! Watches the rules of all programs, for the fast path.
//!
//! The kernel reports each change of nftables. Events may be lost, and legacy iptables has none, so the watch
//! also compares the ruleset's generation and the legacy tables every second.

use std::io;
use std::task::Context;
use std::time::{Duration, Instant};

use super::legacy::{self, LegacyRules};
use super::ruleset::{self, RuleUses};
use super::socket::{EventSocket, RequestSocket};
use crate::fast_path::{RuleScope, RulesetValue};

/// Time after a change of the rules until the fast path notes flows that they have accepted. A packet that
/// the former rules accepted is past the filter by then.
const SETTLING: Duration = Duration::from_millis(200);
/// Seconds between attempts to reach nftables on a kernel without it. An attempt may load a kernel module.
const PAUSE_S: u32 = 60;

const TCP: &str = "nf_conntrack_tcp_timeout_established";
const UNACKNOWLEDGED: &str = "nf_conntrack_tcp_timeout_unacknowledged";
const UDP: &str = "nf_conntrack_udp_timeout_stream";

/// The rules of all programs, as far as the fast path needs them; see the head of the module.
#[derive(Debug, Default)]
pub(crate) struct RulesetWatch {
    requests: Option<RequestSocket>,
    events: Option<EventSocket>,
    /// Generation of the ruleset when [`Self::uses`] was read; `None` before the first reading.
    generation: Option<u32>,
    uses: RuleUses,
    legacy: [LegacyRules; 2],
    seconds_to_retry: u32,
    /// Number of changes.
    changes: u32,
    /// Time of the last change, until the fast path knows the new rules.
    changed_at: Option<Instant>,
    timeouts: [u32; 3],
}

impl RulesetWatch {
    /// Reads events of the kernel. Returns whether the rules have changed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let has_changed = self.events.as_mut().is_some_and(|events| events.poll(cx));
        has_changed && self.check_nftables()
    }

    /// Compares the rules with those of the last reading. The caller calls it each second. Returns whether
    /// the value of [`Self::value`] has changed.
    pub(crate) fn handle_second(&mut self) -> bool {
        let before = self.value();
        self.check_nftables();
        let legacy = legacy::read();
        if legacy != self.legacy {
            self.legacy = legacy;
            self.begin_change();
        }
        self.timeouts = [TCP, UNACKNOWLEDGED, UDP].map(timeout);
        self.timeouts[1] = self.timeouts[1].min(self.timeouts[0]);
        if self.changed_at.is_some_and(|at| at.elapsed() >= SETTLING) {
            self.changed_at = None;
        }
        self.value() != before
    }

    /// Returns what the fast path has to know of the rules.
    pub(crate) fn value(&self) -> RulesetValue {
        let [tcp_timeout, unacknowledged_timeout, udp_timeout] = self.timeouts;
        let has_timeouts = self.timeouts.iter().all(|timeout| *timeout > 0);
        let is_known = self.generation.is_some() && self.changed_at.is_none() && has_timeouts;
        let [ipv4, ipv6] = self.scopes().map(|scope| scope as u32);
        RulesetValue {
            generation: if is_known { self.changes.max(1) } else { 0 },
            ipv4,
            ipv6,
            tcp_timeout,
            unacknowledged_timeout,
            udp_timeout,
        }
    }

    /// Returns rules for which the kernel must see each packet, for the operator.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = &str> {
        let legacy = self.legacy.iter().map(|it| &it.rules);
        [&self.uses.ipv4, &self.uses.ipv6].into_iter().chain(legacy).filter_map(|it| it.reason.as_deref())
    }

    /// Returns what the rules for IPv4 and for IPv6 use.
    fn scopes(&self) -> [RuleScope; 2] {
        if self.generation.is_none() {
            return [RuleScope::Packet; 2];
        }
        let [ipv4, ipv6] = [&self.legacy[0], &self.legacy[1]].map(|it| it.rules.scope);
        [self.uses.ipv4.scope.max(ipv4), self.uses.ipv6.scope.max(ipv6)]
    }

    fn begin_change(&mut self) {
        self.changes = self.changes.wrapping_add(1);
        self.changed_at = Some(Instant::now());
    }

    /// Reads the rules of nftables again if they have changed. Returns whether they have.
    fn check_nftables(&mut self) -> bool {
        match self.read_nftables() {
            Ok(has_changed) => has_changed,
            Err(error) => {
                // Without the rules, the kernel has to see each packet.
                let mut uses = RuleUses::default();
                for rules in [&mut uses.ipv4, &mut uses.ipv6] {
                    rules.add_packet(|| format!("cannot read the rules of nftables: {error}"));
                }
                (self.requests, self.events, self.generation) = (None, None, Some(0));
                let has_changed = self.uses != uses;
                self.uses = uses;
                if has_changed {
                    self.begin_change();
                }
                has_changed
            }
        }
    }

    fn read_nftables(&mut self) -> io::Result<bool> {
        if self.seconds_to_retry > 0 {
            self.seconds_to_retry -= 1;
            return Ok(false);
        }
        let requests = match &mut self.requests {
            Some(requests) => requests,
            None => match RequestSocket::open() {
                Ok(requests) => self.requests.insert(requests),
                Err(error) if is_without_nftables(&error) => return Ok(self.note_absence()),
                Err(error) => return Err(error),
            },
        };
        if self.events.is_none() {
            // Without events, the comparison at each second still finds changes.
            self.events = EventSocket::open().ok();
        }
        // Read the generation first: a change between both readings makes the next comparison read again.
        let generation = match requests.generation() {
            Err(error) if is_without_nftables(&error) => return Ok(self.note_absence()),
            other => other?,
        };
        if self.generation == Some(generation) {
            return Ok(false);
        }
        self.uses = ruleset::read(requests)?;
        self.generation = Some(generation);
        self.begin_change();
        Ok(true)
    }

    /// Notes that the kernel has no nftables, and so no rules.
    fn note_absence(&mut self) -> bool {
        self.seconds_to_retry = PAUSE_S;
        let has_changed = self.generation != Some(0) || self.uses != RuleUses::default();
        (self.generation, self.uses) = (Some(0), RuleUses::default());
        if has_changed {
            self.begin_change();
        }
        has_changed
    }
}

fn is_without_nftables(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EPROTONOSUPPORT | libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EINVAL)
    )
}

/// Returns a timeout of connection tracking in milliseconds; 0 if the kernel does not report it.
fn timeout(name: &str) -> u32 {
    let seconds = std::fs::read_to_string(format!("/proc/sys/net/netfilter/{name}")).ok();
    let seconds = seconds.and_then(|text| text.trim().parse::<u32>().ok());
    seconds.unwrap_or_default().saturating_mul(1000)
}
