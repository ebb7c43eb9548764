//! carnet's table of the kernel's packet filter (nftables): `table inet carnet_rules`.
//!
//! The table holds all [`PacketRule`]s of the desired state. After a change of rules, one transaction
//! replaces the whole table, so each packet sees the old rules or the new ones. Connection tracking keeps
//! its state. The table outlives the process: after a crash it stays in force until the next start replaces
//! it. It has no rule of other programs, and other tables stay as they are: a packet passes only if no table
//! drops it.
//!
//! Another program may flush the ruleset, as `nft flush ruleset` does. The kernel reports each change, and
//! carnet then compares its table with the one that it has installed. Events may be lost, so carnet also
//! compares the ruleset's generation every second.
//!
//! The module talks to the kernel by netlink, without the program `nft`: the sandbox forbids executing
//! programs (`docs/decisions/0080-packet-filter-by-netlink.md`).

mod iptables_legacy;
mod message;
mod netfilter_sockets;
mod rule_uses;
mod ruleset_watch;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::task::Context;

use carnet_nemo::forwarding::desired::TUNNEL_DEVICE;
use carnet_nemo::forwarding::packet_rules::{
    CountedTraffic, PacketCount, PacketMatch, PacketRule, RuleChain, RuleVerdict,
};
use ipnet::Ipv6Net;

use crate::error::{Error, Result};
use crate::fast_path::{FilteredInterfaces, RuleScope};
use message::RulesetTransaction;
use netfilter_sockets::{EventSocket, RequestSocket, TableContent};
pub(crate) use ruleset_watch::RulesetWatch;

/// Time after the start for which a table of an earlier run stays, in seconds. The station has its first
/// rules well before.
const LEFTOVER_WAIT_SECONDS: u32 = 5;

/// Maximum number of totals of replaced tables. Beyond it, carnet forgets the totals of rules that are no
/// longer in the config.
const MAX_TRAFFIC_TOTALS: usize = 4096;

/// Installed state of the table.
#[derive(Debug, Default, PartialEq, Eq)]
enum TableState {
    /// The table does not exist.
    #[default]
    Missing,
    /// carnet does not know whether the table exists, or which rules it has.
    Unknown,
    /// The table has the rules of [`RuleTable::wanted_rules`], unless a change is due.
    Installed {
        /// Content of the table directly after its installation.
        content: TableContent,
        /// Generation of the ruleset at the last comparison.
        generation: u32,
        /// For each rule, in order: the total to which its count belongs; `None` for a rule that does not
        /// count.
        totals: Vec<Option<CountedTraffic>>,
    },
}

/// The desired packet rules, and carnet's nftables table in which the kernel has them.
#[derive(Debug, Default)]
pub(crate) struct RuleTable {
    wanted_rules: BTreeSet<PacketRule>,
    state: TableState,
    /// Whether the table differs from [`Self::wanted_rules`], and no attempt to replace it has failed since
    /// the last change.
    is_commit_due: bool,
    requests: Option<RequestSocket>,
    events: Option<EventSocket>,
    /// Seconds until carnet removes a table of an earlier run, if no rule is desired by then.
    seconds_until_leftover_removal: u32,
    /// Traffic that the rules of replaced tables have counted, by total.
    totals_of_replaced_tables: BTreeMap<CountedTraffic, PacketCount>,
    /// Error of the last attempt to replace the table; `None` if it succeeded.
    error: Option<String>,
    /// Whether [`Self::error`] has changed since the caller last fetched it.
    error_changed: bool,
}

impl RuleTable {
    /// Notes that an earlier run may have left a table. It stays in force until rules of this run replace
    /// it.
    pub(crate) fn expect_leftover_table(&mut self) {
        self.state = TableState::Unknown;
        self.seconds_until_leftover_removal = LEFTOVER_WAIT_SECONDS;
    }

    /// Counts one second. Returns whether another program has changed carnet's table.
    pub(crate) fn advance_one_second(&mut self) -> bool {
        if self.seconds_until_leftover_removal > 0 {
            self.seconds_until_leftover_removal -= 1;
            self.is_commit_due |=
                self.seconds_until_leftover_removal == 0 && self.state == TableState::Unknown;
        }
        self.check_foreign_change()
    }

    /// Adds a rule to the desired rules, which the next commit installs.
    pub(crate) fn add_rule(&mut self, rule: &PacketRule) {
        self.is_commit_due |= self.wanted_rules.insert(rule.clone());
    }

    /// Removes a rule from the desired rules. The next commit removes it from the kernel.
    pub(crate) fn remove_rule(&mut self, rule: &PacketRule) {
        self.is_commit_due |= self.wanted_rules.remove(rule);
    }

    /// Returns whether the table must be replaced by a table with rules. If so, the installer replaces the
    /// table before it changes anything else.
    pub(crate) fn has_urgent_rules(&self) -> bool {
        self.is_commit_due && !self.wanted_rules.is_empty()
    }

    /// Returns whether any rule is desired.
    pub(crate) fn has_rules(&self) -> bool {
        !self.wanted_rules.is_empty()
    }

    /// Returns the source prefixes of packets from tunnels whose addresses the rules change by NAT.
    pub(crate) fn nat_sources(&self) -> Vec<Ipv6Net> {
        let rules = self.wanted_rules.iter().filter(|rule| is_nat_of_tunnels(rule));
        rules.filter_map(|rule| rule.packets.source).collect()
    }

    /// Returns whether the table must be replaced.
    pub(crate) fn is_commit_due(&self) -> bool {
        self.is_commit_due
    }

    /// Returns the interfaces whose packets the rules must see, and what the rules use of these packets. A
    /// rule that names no interface must see the packets of all interfaces.
    ///
    /// Rules of [`Self::nat_sources`] are left out: the fast path recognises their packets by the source
    /// address. It leaves these packets and their answers to the kernel. So rules that count such packets are
    /// left out, too. Rules about marks of carnet are left out, because the fast path knows the conditions of
    /// a flow policy. Rules about the link-layer address of a host are not left out.
    pub(crate) fn filtered_interfaces(&self) -> FilteredInterfaces {
        let mut interfaces = FilteredInterfaces::default();
        let is_of_forwarded =
            |rule: &&PacketRule| !matches!(rule.chain, RuleChain::Input | RuleChain::Output);
        let is_about_marks = |rule: &&PacketRule| {
            let PacketRule { chain, packets, .. } = rule;
            let has_mark = packets.mark.is_some() || packets.connection_mark.is_some();
            packets.link_source.is_none() && (*chain == RuleChain::Early || has_mark)
        };
        let counts_nat =
            |rule: &PacketRule| rule.total.as_ref().is_some_and(|total| total.kind.is_nat_of_tunnels());
        let is_of_nat = |rule: &&PacketRule| is_nat_of_tunnels(rule) || counts_nat(rule);
        let rules = self.wanted_rules.iter().filter(is_of_forwarded).filter(|rule| !is_of_nat(rule));
        let rules = rules.filter(|rule| !is_about_marks(rule) && !is_nat_into_tunnels(rule));
        for rule @ PacketRule { packets, .. } in rules {
            let names = packets.input_interface.iter().chain(&packets.output_interface);
            let scope = rule_scope_of(rule);
            if names.clone().next().is_none() {
                interfaces.scope_of_all_interfaces = interfaces.scope_of_all_interfaces.max(scope);
            }
            for name in names {
                let known = interfaces.scope_by_interface.entry(name.clone()).or_default();
                *known = scope.max(*known);
            }
        }
        interfaces
    }

    /// Makes the next commit try again after an error.
    pub(crate) fn retry_at_next_commit(&mut self) {
        self.is_commit_due |= self.error.is_some();
    }

    /// Returns why the rules are not in force; `None` if they are.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// Returns [`Self::error`] if it has changed since the last call, otherwise the outer `None`. The inner
    /// `None` means that the rules are in force.
    pub(crate) fn take_state_change(&mut self) -> Option<Option<String>> {
        std::mem::take(&mut self.error_changed).then(|| self.error.clone())
    }

    /// Replaces the kernel's table, if it differs from the desired rules.
    pub(crate) fn commit_rules(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.is_commit_due) {
            return Ok(());
        }
        if self.wanted_rules.is_empty() && self.state == TableState::Missing {
            self.set_error(None);
            return Ok(());
        }
        let Err(error) = self.replace_kernel_table() else {
            self.set_error(None);
            return Ok(());
        };
        self.state = TableState::Unknown;
        let rules = if self.wanted_rules.is_empty() { "remove" } else { "install" };
        let operation =
            format!("{rules} the nftables table `inet carnet_rules`{}", hint_for_operator(&error));
        let error = Error::from_kernel_refusal(operation, error);
        self.set_error(Some(error.to_string()));
        Err(error)
    }

    /// Returns the traffic that rules have counted since the start.
    pub(crate) fn counted_traffic(&mut self) -> BTreeMap<CountedTraffic, PacketCount> {
        let mut totals = self.totals_of_replaced_tables.clone();
        add_counts(&mut totals, self.read_counts());
        totals
    }

    /// Returns the counts of the present table; none if another program has changed the table.
    fn read_counts(&mut self) -> Vec<(CountedTraffic, PacketCount)> {
        let (Some(requests), TableState::Installed { content, totals, .. }) =
            (&mut self.requests, &self.state)
        else {
            return Vec::new();
        };
        if totals.iter().all(Option::is_none) {
            return Vec::new();
        }
        let counts = match requests.rule_counts(content) {
            Ok(counts) => counts.unwrap_or_default(),
            Err(error) => {
                tracing::debug!("cannot read the counters of the nftables table: {error}");
                Vec::new()
            }
        };
        let counted = totals.iter().zip(counts);
        counted.filter_map(|(total, count)| Some((total.clone()?, count?))).collect()
    }

    fn set_error(&mut self, error: Option<String>) {
        if self.error != error {
            (self.error, self.error_changed) = (error, true);
        }
    }

    fn replace_kernel_table(&mut self) -> io::Result<()> {
        let chains = self.used_chains();
        // Packets that pass between this reading and the replacement are missing in the totals.
        let counts = self.read_counts();
        let requests = match &mut self.requests {
            Some(requests) => requests,
            None => self.requests.insert(RequestSocket::open()?),
        };
        let transaction =
            RulesetTransaction::replace_table(self.wanted_rules.iter(), requests.next_sequence());
        requests.execute_transaction(&transaction)?;
        add_counts(&mut self.totals_of_replaced_tables, counts);
        let totals: Vec<Option<CountedTraffic>> =
            self.wanted_rules.iter().map(|rule| rule.total.as_deref().cloned()).collect();
        if self.totals_of_replaced_tables.len() > MAX_TRAFFIC_TOTALS {
            self.totals_of_replaced_tables
                .retain(|traffic, _| totals.iter().flatten().any(|wanted| wanted == traffic));
        }
        if self.wanted_rules.is_empty() {
            (self.state, self.events) = (TableState::Missing, None);
            return Ok(());
        }
        if self.events.is_none() {
            // Without the socket for events, the comparison at each second still finds changes.
            self.events = EventSocket::open().ok();
        }
        // Read the generation before the content. If the ruleset changes in between, the next comparison
        // finds an outdated generation and reads the content again.
        let generation = requests.ruleset_generation()?;
        let content = requests.table_content(&chains)?.filter(|it| it.rules.len() == self.wanted_rules.len());
        let content = content.ok_or_else(|| io::Error::other("another program has changed the table"))?;
        self.state = TableState::Installed { content, generation, totals };
        Ok(())
    }

    fn used_chains(&self) -> Vec<RuleChain> {
        RuleChain::ALL_CHAINS
            .into_iter()
            .filter(|role| self.wanted_rules.iter().any(|rule| rule.chain == *role))
            .collect()
    }

    /// Reads the kernel's events. Returns whether another program has changed carnet's table; then the next
    /// commit replaces it.
    pub(crate) fn poll_foreign_change(&mut self, cx: &mut Context<'_>) -> bool {
        self.events.as_mut().is_some_and(|events| events.poll_changes(cx)) && self.check_foreign_change()
    }

    /// Returns whether another program has changed carnet's table since the last call; then the next commit
    /// replaces it.
    fn check_foreign_change(&mut self) -> bool {
        let chains = self.used_chains();
        let (Some(requests), TableState::Installed { content, generation, .. }) =
            (&mut self.requests, &mut self.state)
        else {
            return false;
        };
        let Ok(now) = requests.ruleset_generation() else { return false };
        if now == *generation {
            return false;
        }
        match requests.table_content(&chains) {
            Ok(Some(found)) if found == *content => {
                *generation = now;
                false
            }
            Ok(_) => {
                (self.state, self.is_commit_due) = (TableState::Unknown, true);
                true
            }
            // After an error, assume that the rules are unchanged. One second later, the function compares
            // them again.
            Err(error) => {
                tracing::debug!("cannot read carnet's nftables table: {error}; carnet will try again");
                false
            }
        }
    }

    /// Removes all rules, and the table.
    pub(crate) fn remove_table(&mut self) -> Result<()> {
        self.wanted_rules.clear();
        self.is_commit_due = true;
        self.commit_rules()
    }
}

/// Returns what a rule uses of a packet. A rule that drops packets and counts them needs to see only the
/// packets that it drops.
fn rule_scope_of(rule: &PacketRule) -> RuleScope {
    let PacketMatch { link_source, mark, connection_mark, dscp, over_rate, .. } = &rule.packets;
    let counts_passing = rule.counts && rule.verdict == RuleVerdict::Continue;
    match (link_source, mark, connection_mark, dscp, over_rate) {
        (None, None, None, None, None) if !counts_passing => RuleScope::Flow,
        _ => RuleScope::Packet,
    }
}

/// Adds counts to totals.
fn add_counts(
    totals: &mut BTreeMap<CountedTraffic, PacketCount>,
    counts: impl IntoIterator<Item = (CountedTraffic, PacketCount)>,
) {
    for (traffic, PacketCount { packets, octets }) in counts {
        let total = totals.entry(traffic).or_default();
        total.packets = total.packets.saturating_add(packets);
        total.octets = total.octets.saturating_add(octets);
    }
}

/// Returns whether a rule changes the source address of packets out of tunnels that have certain sources.
fn is_nat_of_tunnels(rule: &PacketRule) -> bool {
    rule.chain == RuleChain::SourceNat
        && rule.packets.input_interface.as_deref() == Some(TUNNEL_DEVICE)
        && rule.packets.source.is_some()
}

/// Returns whether a rule gives packets from outside a destination in mobile networks. No tunnel has the
/// former destination, so the fast path leaves these packets to the kernel.
fn is_nat_into_tunnels(rule: &PacketRule) -> bool {
    matches!(rule.verdict, RuleVerdict::DestinationPrefix(_)) && rule.packets.destination.is_some()
}

/// Returns what the operator can do about an error of the kernel.
fn hint_for_operator(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPROTONOSUPPORT | libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::ENOENT) => {
            " (the kernel needs nf_tables with nft_ct and nft_nat; on OpenWrt the package kmod-nft-nat)"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_rule_for_a_link_layer_address_keeps_its_interface_off_the_fast_path() {
        let packets = PacketMatch { input_interface: Some("lan0".into()), ..PacketMatch::default() };
        let mark = carnet_nemo::forwarding::packet_rules::Mark { mask: 1, value: 1 };
        let (chain, verdict) = (RuleChain::Early, RuleVerdict::SetMark(mark));
        let mut table = RuleTable::default();
        table.add_rule(&PacketRule {
            chain,
            order: 1,
            packets: packets.clone(),
            counts: false,
            total: None,
            verdict,
        });
        assert_eq!(table.filtered_interfaces(), Default::default());
        let packets = PacketMatch { link_source: Some([2, 0, 0, 0, 0, 9]), mark: Some(mark), ..packets };
        table.add_rule(&PacketRule { chain, order: 2, packets, counts: false, total: None, verdict });
        assert_eq!(table.filtered_interfaces().scope_by_interface.get("lan0"), Some(&RuleScope::Packet));
    }

    #[test]
    fn nat_rule_of_mobile_networks_keeps_other_packets_on_the_fast_path() {
        let unique_local: Ipv6Net = "fc00::/7".parse().expect("a prefix");
        let packets = PacketMatch {
            input_interface: Some(TUNNEL_DEVICE.into()),
            output_interface: Some("wan0".into()),
            source: Some(unique_local),
            ..PacketMatch::default()
        };
        let (chain, verdict) = (RuleChain::SourceNat, RuleVerdict::Masquerade);
        let mut table = RuleTable::default();
        table.add_rule(&PacketRule {
            chain,
            order: 1,
            packets: packets.clone(),
            counts: true,
            total: None,
            verdict,
        });
        let kind = carnet_nemo::forwarding::packet_rules::TrafficKind::Ipv6Nat;
        table.add_rule(&PacketRule {
            chain: RuleChain::Forward,
            order: 1,
            packets: packets.clone(),
            counts: true,
            total: Some(Box::new(CountedTraffic { kind, interface: "wan0".into(), is_outgoing: true })),
            verdict: RuleVerdict::Continue,
        });
        assert_eq!(
            (table.nat_sources(), table.filtered_interfaces()),
            (vec![unique_local], Default::default())
        );
        // A rule that changes the destination of packets from outside does not matter: no tunnel has their
        // former destination.
        let packets = PacketMatch {
            input_interface: Some("wan0".into()),
            destination: Some("2001:db8:42::/48".parse().expect("a prefix")),
            ..PacketMatch::default()
        };
        let verdict = RuleVerdict::DestinationPrefix("fd00:42::/48".parse().expect("a prefix"));
        let chain = RuleChain::DestinationNat;
        table.add_rule(&PacketRule { chain, order: 1, packets, counts: true, total: None, verdict });
        assert_eq!(table.filtered_interfaces(), Default::default());
        let (chain, verdict) = (RuleChain::SourceNat, RuleVerdict::Masquerade);
        let packets = PacketMatch {
            input_interface: Some(TUNNEL_DEVICE.into()),
            output_interface: Some("wan0".into()),
            ..PacketMatch::default()
        };
        // If a rule of NAT has no source prefix, the fast path cannot recognise its packets.
        let packets = PacketMatch { source: None, ..packets };
        table.add_rule(&PacketRule { chain, order: 2, packets, counts: true, total: None, verdict });
        assert!(
            table.filtered_interfaces().scope_by_interface.contains_key("wan0")
                && table.nat_sources() == [unique_local]
        );
    }
}
