//! Status of the policies, as the API shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::flows::FlowPolicies;
use super::uplinks::Uplinks;
use crate::flow::FlowAction;

/// A policy of a mobile router: it selects the uplinks of its packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Name of the policy.
    pub name: String,
    /// Action: `failover`, `duplicate` or `balance`; `breakout` for packets that leave without the tunnel.
    pub action: String,
    /// Number of traffic selectors.
    pub selectors: usize,
    /// The uplinks of the config, the preferred first.
    pub uplinks: Vec<String>,
    /// The uplink that an operator has selected (`carnet handover --policy`), or `null`.
    pub wanted_uplink: Option<String>,
    /// Uplinks that the policy's packets use now; if empty, they use the uplinks of packets without a policy,
    /// in the tunnel.
    pub takes: Vec<String>,
    /// Answer of the home agent: `agreed` to all flows, `asked`, `refused` (some of the flows), `unknown` or
    /// `failover`. With `unknown` it does not support flow bindings, with `failover` only this action. With
    /// the action `breakout` it is `not_asked`.
    pub home_agent: String,
    /// Packets that have left by each uplink without the tunnel, and their answers, since the start of
    /// carnet; empty without the action `breakout`. The program fills this field.
    #[serde(default)]
    pub outside: BTreeMap<String, OutsideCount>,
}

/// Packets of hosts on board without the tunnel, as the packet filter has counted them. Octets are those of
/// the packets with the IP header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutsideCount {
    /// Packets that have left by the uplink.
    pub packets_out: u64,
    /// Octets in these packets.
    pub octets_out: u64,
    /// Answers that have come in by the uplink.
    pub packets_in: u64,
    /// Octets in these answers.
    pub octets_in: u64,
}

impl FlowPolicies {
    /// Returns the status of the policies in the order of the configuration.
    pub(super) fn status(&self, all: &Uplinks) -> Vec<Policy> {
        let policies = self.policies.iter().enumerate();
        policies
            .map(|(index, policy)| {
                let flows = || self.states.iter().filter(|flow| flow.policy == index);
                let bids = flows()
                    .filter_map(|flow| {
                        self.effective_flows.iter().find(|effective| effective.fid == flow.fid)
                    })
                    .flat_map(|effective| {
                        let all = if effective.action == FlowAction::Failover { 1 } else { usize::MAX };
                        effective.bids.iter().take(all).map(|(bid, _)| *bid)
                    });
                let mut takes: Vec<&str> = Vec::new();
                for bid in bids {
                    let uplink = all.iter().find(|uplink| uplink.config.bid == Some(bid));
                    let name = uplink.map(|uplink| uplink.config.interface.as_str());
                    takes.extend(name.filter(|name| !takes.contains(name)));
                }
                let chosen = self.chosen_uplinks.get(index).and_then(Option::as_ref);
                let is_agreed = flows()
                    .all(|flow| flow.acknowledged_flow.is_some() && flow.pending_description.is_none());
                let home_agent = if self.are_flows_unsupported {
                    "unknown"
                } else if flows().any(|flow| flow.last_refusal.is_some()) {
                    "refused"
                } else if !is_agreed {
                    "asked"
                } else if self.supports_only_copies {
                    "failover"
                } else {
                    "agreed"
                };
                Policy {
                    name: policy.name.clone(),
                    action: match policy.action {
                        FlowAction::Failover => "failover",
                        FlowAction::Duplicate => "duplicate",
                        FlowAction::Balance => "balance",
                    }
                    .into(),
                    selectors: policy.selectors.len(),
                    uplinks: policy.uplinks.clone(),
                    wanted_uplink: chosen.and_then(|chosen| chosen.first().cloned()),
                    takes: takes.into_iter().map(str::to_owned).collect(),
                    home_agent: home_agent.into(),
                    outside: BTreeMap::new(),
                }
            })
            .collect()
    }
}
