//! Status of the policies.

use super::flows::Flows;
use super::uplinks::Uplinks;
use crate::flow::FlowAction;

/// State of a policy at the home agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// The home agent has acknowledged all flows of the policy.
    Agreed,
    /// The router has not sent the flows yet, or the home agent has not answered.
    Asked,
    /// The home agent has refused some of the flows.
    Refused,
    /// The home agent does not support flow bindings (RFC 6089).
    Unknown,
    /// The home agent supports only the action of RFC 6089, which copies packets. So each flow has only one
    /// uplink.
    Failover,
}

/// Status of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyStatus<'a> {
    /// Name of the policy.
    pub name: &'a str,
    /// Configured action for its packets.
    pub action: FlowAction,
    /// Number of its traffic selectors.
    pub selectors: usize,
    /// Configured uplinks.
    pub uplinks: &'a [String],
    /// Uplinks that the operator has selected instead of the configured ones.
    pub chosen: Option<&'a [String]>,
    /// Uplinks that its packets use now.
    pub takes: Vec<&'a str>,
    /// State of the policy at the home agent.
    pub agreement: Agreement,
}

impl Flows {
    /// Returns the status of the policies in the order of the configuration.
    pub(super) fn status<'a>(&'a self, all: &'a Uplinks) -> Vec<PolicyStatus<'a>> {
        let policies = self.policies.iter().enumerate();
        policies
            .map(|(index, policy)| {
                let flows = || self.states.iter().filter(|flow| flow.policy == index);
                let bids = flows()
                    .filter_map(|flow| self.effective.iter().find(|effective| effective.fid == flow.fid))
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
                let chosen = self.overrides.get(index).and_then(Option::as_ref);
                let is_agreed = flows().all(|flow| flow.acknowledged.is_some() && flow.pending.is_none());
                let agreement = if self.is_unsupported {
                    Agreement::Unknown
                } else if flows().any(|flow| flow.refused.is_some()) {
                    Agreement::Refused
                } else if !is_agreed {
                    Agreement::Asked
                } else if self.copies {
                    Agreement::Failover
                } else {
                    Agreement::Agreed
                };
                PolicyStatus {
                    name: &policy.name,
                    action: policy.action,
                    selectors: policy.selectors.len(),
                    uplinks: &policy.uplinks,
                    chosen: chosen.map(Vec::as_slice),
                    takes,
                    agreement,
                }
            })
            .collect()
    }
}
