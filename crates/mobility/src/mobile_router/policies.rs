//! How the policies do, for people to see.

use super::flows::Flows;
use super::uplinks::Uplinks;
use crate::flow::FlowAction;

/// What the home agent does about a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agreement {
    /// It has acknowledged all flows of it.
    Agreed,
    /// It has not been told yet, or has not answered.
    Asked,
    /// It has refused some of them.
    Refused,
    /// It knows no flow bindings (RFC 6089).
    Unknown,
    /// It can only copy packets: each flow has one uplink.
    Failover,
}

/// A policy, and what has come of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyStatus<'a> {
    /// Its name.
    pub name: &'a str,
    /// What shall become of its packets.
    pub action: FlowAction,
    /// Number of its traffic selectors.
    pub selectors: usize,
    /// The configured uplinks.
    pub uplinks: &'a [String],
    /// The operator's uplinks in place of these.
    pub chosen: Option<&'a [String]>,
    /// The uplinks that its packets take now.
    pub takes: Vec<&'a str>,
    /// What the home agent does.
    pub agreement: Agreement,
}

impl Flows {
    /// The policies in the order of the configuration.
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
                let agreement = if self.unknown {
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
