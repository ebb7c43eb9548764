//! Watches the rules of all programs, for the fast path.
//!
//! The kernel reports each change of nftables. Events may be lost, and legacy iptables has none, so the watch
//! also compares the ruleset's generation and the legacy tables every second.

use std::io;
use std::task::Context;
use std::time::{Duration, Instant};

use super::iptables_legacy::{self, LegacyRules};
use super::netfilter_sockets::{EventSocket, RequestSocket};
use super::rule_uses::{self, IpFamilyRules, RuleUses};
use crate::fast_path::{RuleScope, RulesetValue};

/// Time after a change of the rules in which the programs record no flow as accepted. After this time, the
/// packets that the former rules accepted have left the packet filter.
const PAUSE_AFTER_RULE_CHANGE: Duration = Duration::from_millis(200);
/// Seconds between attempts to reach nftables on a kernel without it. An attempt may load a kernel module.
const NFTABLES_RETRY_PAUSE_S: u32 = 60;

const TCP_TIMEOUT_SYSCTL: &str = "nf_conntrack_tcp_timeout_established";
const UNACKNOWLEDGED_TIMEOUT_SYSCTL: &str = "nf_conntrack_tcp_timeout_unacknowledged";
const UDP_TIMEOUT_SYSCTL: &str = "nf_conntrack_udp_timeout_stream";

/// The rules of all programs, as far as the fast path needs them; see the head of the module.
#[derive(Debug, Default)]
pub(crate) struct RulesetWatch {
    requests: Option<RequestSocket>,
    events: Option<EventSocket>,
    /// Generation of the ruleset when [`Self::rule_uses`] was read; `None` before the first reading.
    ruleset_generation: Option<u32>,
    rule_uses: RuleUses,
    legacy_rules: [LegacyRules; 2],
    seconds_to_retry: u32,
    /// Number of changes of the rules since the start.
    change_count: u32,
    /// Time of the last change of the rules; `None` once the fast path has the new rules.
    changed_at: Option<Instant>,
    conntrack_timeouts: [u32; 3],
}

/// Returns the reasons of the rules for IPv4 and IPv6, with the IP versions to which each applies.
fn reasons_by_ip_version<'r>(
    ipv4: &'r IpFamilyRules,
    ipv6: &'r IpFamilyRules,
) -> Vec<(&'r str, &'static str)> {
    match [ipv4, ipv6].map(|rules| rules.slow_path_reason.as_deref()) {
        [Some(reason), Some(of_ipv6)] if reason == of_ipv6 => vec![(reason, "IPv4 and IPv6")],
        [of_ipv4, of_ipv6] => {
            let all = [of_ipv4.zip(Some("IPv4")), of_ipv6.zip(Some("IPv6"))];
            all.into_iter().flatten().collect()
        }
    }
}

impl RulesetWatch {
    /// Reads events of the kernel. Returns whether the rules have changed.
    pub(crate) fn poll_changes(&mut self, cx: &mut Context<'_>) -> bool {
        let has_changed = self.events.as_mut().is_some_and(|events| events.poll_changes(cx));
        has_changed && self.check_nftables()
    }

    /// Compares the rules with those of the last reading. The caller calls this function each second. Returns
    /// whether the value of [`Self::ruleset_value`] has changed.
    pub(crate) fn advance_one_second(&mut self) -> bool {
        let before = self.ruleset_value();
        self.check_nftables();
        let legacy = iptables_legacy::read_legacy_rules();
        if legacy != self.legacy_rules {
            self.legacy_rules = legacy;
            self.begin_change();
        }
        self.conntrack_timeouts =
            [TCP_TIMEOUT_SYSCTL, UNACKNOWLEDGED_TIMEOUT_SYSCTL, UDP_TIMEOUT_SYSCTL].map(conntrack_timeout_ms);
        self.conntrack_timeouts[1] = self.conntrack_timeouts[1].min(self.conntrack_timeouts[0]);
        if self.changed_at.is_some_and(|at| at.elapsed() >= PAUSE_AFTER_RULE_CHANGE) {
            self.changed_at = None;
        }
        self.ruleset_value() != before
    }

    /// Returns the data about the rules that the fast path needs.
    pub(crate) fn ruleset_value(&self) -> RulesetValue {
        let [tcp_timeout, unacknowledged_timeout, udp_timeout] = self.conntrack_timeouts;
        let has_timeouts = self.conntrack_timeouts.iter().all(|timeout| *timeout > 0);
        let is_known = self.ruleset_generation.is_some() && self.changed_at.is_none() && has_timeouts;
        let [ipv4, ipv6] = self.rule_scopes().map(|scope| scope as u32);
        RulesetValue {
            ruleset_generation: if is_known { self.change_count.max(1) } else { 0 },
            ipv4_scope: ipv4,
            ipv6_scope: ipv6,
            tcp_timeout_ms: tcp_timeout,
            unacknowledged_timeout_ms: unacknowledged_timeout,
            udp_timeout_ms: udp_timeout,
        }
    }

    /// Returns texts for the operator about rules for which the kernel must see each packet, each with the IP
    /// versions of these packets.
    pub(crate) fn slow_path_reasons(&self) -> Vec<(&str, &'static str)> {
        let [ipv4, ipv6] = &self.legacy_rules;
        [
            reasons_by_ip_version(&self.rule_uses.ipv4_rules, &self.rule_uses.ipv6_rules),
            reasons_by_ip_version(&ipv4.rules, &ipv6.rules),
        ]
        .concat()
    }

    /// Returns what the rules for IPv4 and for IPv6 use.
    fn rule_scopes(&self) -> [RuleScope; 2] {
        if self.ruleset_generation.is_none() {
            return [RuleScope::Packet; 2];
        }
        let [ipv4, ipv6] = [&self.legacy_rules[0], &self.legacy_rules[1]].map(|it| it.rules.rule_scope);
        [self.rule_uses.ipv4_rules.rule_scope.max(ipv4), self.rule_uses.ipv6_rules.rule_scope.max(ipv6)]
    }

    fn begin_change(&mut self) {
        self.change_count = self.change_count.wrapping_add(1);
        self.changed_at = Some(Instant::now());
    }

    /// Reads the rules of nftables again if they have changed. Returns whether they have.
    fn check_nftables(&mut self) -> bool {
        match self.read_nftables() {
            Ok(has_changed) => has_changed,
            Err(error) => {
                // carnet does not know the rules, so the kernel has to see each packet.
                let mut uses = RuleUses::default();
                for rules in [&mut uses.ipv4_rules, &mut uses.ipv6_rules] {
                    rules.note_packet_use(|| format!("cannot read the rules of nftables: {error}"));
                }
                (self.requests, self.events, self.ruleset_generation) = (None, None, Some(0));
                let has_changed = self.rule_uses != uses;
                self.rule_uses = uses;
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
                Err(error) if is_without_nftables(&error) => return Ok(self.note_missing_nftables()),
                Err(error) => return Err(error),
            },
        };
        if self.events.is_none() {
            // Without the socket for events, the comparison at each second still finds changes.
            self.events = EventSocket::open().ok();
        }
        // Read the generation before the rules. If the rules change in between, the next comparison finds an
        // outdated generation and reads them again.
        let generation = match requests.ruleset_generation() {
            Err(error) if is_without_nftables(&error) => return Ok(self.note_missing_nftables()),
            other => other?,
        };
        if self.ruleset_generation == Some(generation) {
            return Ok(false);
        }
        self.rule_uses = rule_uses::read_rule_uses(requests)?;
        self.ruleset_generation = Some(generation);
        self.begin_change();
        Ok(true)
    }

    /// Notes that the kernel has no nftables, and so no rules. Returns whether this is new to carnet.
    fn note_missing_nftables(&mut self) -> bool {
        self.seconds_to_retry = NFTABLES_RETRY_PAUSE_S;
        let has_changed = self.ruleset_generation != Some(0) || self.rule_uses != RuleUses::default();
        (self.ruleset_generation, self.rule_uses) = (Some(0), RuleUses::default());
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
fn conntrack_timeout_ms(name: &str) -> u32 {
    let seconds = std::fs::read_to_string(format!("/proc/sys/net/netfilter/{name}")).ok();
    let seconds = seconds.and_then(|text| text.trim().parse::<u32>().ok());
    seconds.unwrap_or_default().saturating_mul(1000)
}
