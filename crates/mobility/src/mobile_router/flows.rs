//! Policies: they select uplinks for classes of packets (RFC 6089, with the selectors of RFC 6088).
//!
//! A policy becomes one flow binding for each selector. The home agent stores the list of flow bindings.
//! Every Binding Update names the whole list: new and changed flows in full, the others by number (RFC 6089
//! 5.2). A flow may only name Binding Identifiers that are registered (5.3.2.1, status 131).
//!
//! RFC 6089 copies the packets of a flow to each of its bindings. A Vendor Specific option requests another
//! action. A home agent that does not return this option does not support it. Then each flow has one binding,
//! the best registered one, and the router changes the flow when another binding becomes the best: this is
//! failover. A home agent without flow bindings sends all packets over the best binding. The router itself
//! still applies the policies to the packets that it sends.

use carnet_wire::mobility::flow_identification::{
    EXAMPLE_VENDOR, FLOW_ACTION_SUBTYPE, FlowActionOption, emit_binding_identifiers, emit_sub_options,
    flow_status,
};
use carnet_wire::mobility::{BindingAcknowledgement, MobilityHeaderBuilder, MobilityOption};

use super::uplinks::Uplinks;
use crate::binding_update_list::{BindingUpdateContent, BindingUpdateList, UpdatedBinding};
use crate::flow::{FlowAction, FlowBinding, TrafficSelector};

/// Maximum length of a Binding Update, in octets. With all headers it must fit into an IPv6 packet of 1280
/// octets.
const MAX_FLOW_OPTION_OCTETS: usize = 1000;
/// Maximum number of flow bindings of one router.
pub const MAX_FLOWS: usize = 32;

/// A policy: it says which uplinks certain packets use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Name of the policy.
    pub name: String,
    /// Selectors of the policy's packets; a packet must match one of them. Their source is the correspondent
    /// (RFC 6088).
    pub selectors: Vec<TrafficSelector>,
    /// Action for the packets.
    pub action: FlowAction,
    /// Interface names of the uplinks, the preferred first. Each has a Binding Identifier.
    pub uplinks: Vec<String>,
}

/// State of one flow binding at the home agent.
#[derive(Debug, Clone)]
pub(super) struct FlowState {
    /// Index of the policy from which the flow comes.
    pub policy: usize,
    pub fid: u16,
    selector: TrafficSelector,
    /// Description of the flow that the home agent has acknowledged; `None` without one.
    pub acknowledged_flow: Option<FlowBinding>,
    /// Last description of the flow that was sent to the home agent, with the number of its Binding Update;
    /// `None` if no answer is outstanding. Until the answer the router does not know which description the
    /// home agent uses.
    pub pending_description: Option<(u16, FlowBinding)>,
    /// Status with which the home agent refused the flow, and the Binding Identifiers in the refused
    /// description. `None` if it has not refused the flow.
    pub last_refusal: Option<(u8, Vec<u16>)>,
}

/// State of all flow bindings at the home agent.
#[derive(Debug, Clone, Default)]
pub(super) struct FlowPolicies {
    pub policies: Vec<Policy>,
    pub states: Vec<FlowState>,
    /// Uplinks that the operator has selected for each policy instead of the configured ones.
    pub chosen_uplinks: Vec<Option<Vec<String>>>,
    /// Whether the home agent does not support flow bindings.
    pub are_flows_unsupported: bool,
    /// Whether the home agent supports flow bindings, but only the action of RFC 6089: copies to all
    /// bindings.
    pub supports_only_copies: bool,
    /// Flows that [`super::MobileRouter::flows`] returns.
    pub effective_flows: Vec<FlowBinding>,
}

impl FlowPolicies {
    pub fn new(policies: &[Policy]) -> FlowPolicies {
        let selectors = policies
            .iter()
            .enumerate()
            .flat_map(|(policy, it)| it.selectors.iter().map(move |selector| (policy, *selector)));
        let states = (1..)
            .zip(selectors.take(MAX_FLOWS))
            .map(|(fid, (policy, selector))| FlowState {
                policy,
                fid,
                selector,
                acknowledged_flow: None,
                pending_description: None,
                last_refusal: None,
            })
            .collect();
        FlowPolicies {
            policies: policies.to_vec(),
            states,
            chosen_uplinks: vec![None; policies.len()],
            ..FlowPolicies::default()
        }
    }

    /// Returns the uplinks of a policy, usable ones first. If the operator has selected uplinks, they come
    /// before the configured ones, which remain as a reserve.
    fn policy_uplinks(&self, all: &Uplinks, policy: usize) -> Vec<usize> {
        let Some(configured) = self.policies.get(policy) else { return Vec::new() };
        let chosen = self.chosen_uplinks.get(policy).and_then(Option::as_ref);
        let reserve = configured.uplinks.iter().filter(|_| configured.action == FlowAction::Failover);
        let names: Vec<&String> = match chosen {
            Some(chosen) => chosen.iter().chain(reserve).collect(),
            None => configured.uplinks.iter().collect(),
        };
        let mut uplinks: Vec<usize> = Vec::new();
        for name in names {
            if let Some(uplink) = all.iter().position(|u| u.config.interface == *name)
                && !uplinks.contains(&uplink)
            {
                uplinks.push(uplink);
            }
        }
        uplinks.sort_by_key(|&uplink| all.is_uplink_avoided(uplink));
        if configured.action == FlowAction::Balance {
            // Leave out the uplinks that the router avoids, unless it avoids all of them.
            let good = uplinks.iter().filter(|&&uplink| !all.is_uplink_avoided(uplink)).count();
            uplinks.truncate(if good > 0 { good } else { uplinks.len() });
        }
        uplinks
    }

    /// Returns the flow that the policy requires if these bindings are registered.
    fn wanted_flow(
        &self,
        all: &Uplinks,
        flow: &FlowState,
        registered: impl Fn(usize) -> bool,
    ) -> Option<FlowBinding> {
        let mut uplinks = self.policy_uplinks(all, flow.policy);
        uplinks.retain(|&uplink| registered(uplink));
        let weights = all.balancing_weights(&uplinks);
        let mut bids: Vec<(u16, u16)> = uplinks
            .into_iter()
            .zip(weights)
            .filter_map(|(uplink, weight)| Some((all[uplink].config.bid?, weight)))
            .collect();
        let mut action = self.policies.get(flow.policy)?.action;
        if self.supports_only_copies {
            bids.truncate(1);
            action = FlowAction::Failover;
        }
        (!bids.is_empty()).then_some(FlowBinding {
            fid: flow.fid,
            priority: flow.fid,
            selector: flow.selector,
            action,
            bids,
        })
    }

    /// Returns the change of a flow that a Binding Update must report if these bindings are registered.
    fn is_flow_change_due(
        &self,
        all: &Uplinks,
        flow: &FlowState,
        registered: impl Fn(usize) -> bool,
    ) -> Option<FlowBinding> {
        self.flow_changes(all, flow, flow.acknowledged_flow.as_ref(), &registered).or_else(|| {
            flow.pending_description.as_ref()?;
            self.wanted_flow(all, flow, registered)
        })
    }

    /// Returns the difference between a flow and the last description that the home agent has.
    fn flow_changes(
        &self,
        all: &Uplinks,
        flow: &FlowState,
        known: Option<&FlowBinding>,
        registered: impl Fn(usize) -> bool,
    ) -> Option<FlowBinding> {
        let wanted = self.wanted_flow(all, flow, &registered)?;
        let bids: Vec<u16> = wanted.bids.iter().map(|(bid, _)| *bid).collect();
        if flow.last_refusal.as_ref().is_some_and(|(_, for_bids)| *for_bids == bids) {
            return None;
        }
        let Some(known) = known else { return Some(wanted) };
        // The home agent ignores identifiers that are not registered (RFC 6089 4.3), so the router does not
        // report their changes.
        let live = |bid: u16| all.iter().position(|u| u.config.bid == Some(bid)).is_some_and(&registered);
        let have: Vec<(u16, u16)> = known.bids.iter().copied().filter(|(bid, _)| live(*bid)).collect();
        let same = known.action == wanted.action
            && have.len() == wanted.bids.len()
            && have.iter().zip(&wanted.bids).all(|(a, b)| a.0 == b.0 && are_weights_close(a.1, b.1));
        (!same).then_some(wanted)
    }

    /// Returns the binding whose Binding Update reports changed flows to the home agent: `best`, the first
    /// binding that traffic may use. Returns `None` if there is no change to report.
    pub(super) fn binding_for_flow_changes(
        &self,
        all: &Uplinks,
        list: &BindingUpdateList,
        best: Option<usize>,
    ) -> Option<usize> {
        if self.are_flows_unsupported || !list.multiple_care_of_support.are_agent_bindings_exact {
            return None;
        }
        // An outstanding Binding Update already describes the flows, so no further update is necessary.
        let under_way = list
            .identified_entries
            .iter()
            .any(|b| b.outstanding_request().is_some() || b.removal_exchange.is_some());
        let due = self.states.iter().any(|flow| {
            let said =
                flow.pending_description.as_ref().map(|(_, flow)| flow).or(flow.acknowledged_flow.as_ref());
            self.flow_changes(all, flow, said, |u| list.is_registered(u)).is_some()
                || (flow.pending_description.is_some() && !under_way)
        });
        best.filter(|_| due)
    }

    /// Returns the flows that a Binding Update for these bindings describes in full, and the identifiers of
    /// the flows that it only names.
    pub(super) fn flows_to_describe(
        &self,
        all: &Uplinks,
        list: &BindingUpdateList,
        (members, removal): (&[UpdatedBinding], bool),
        prefixes: usize,
    ) -> (Vec<FlowBinding>, Vec<u16>) {
        if self.are_flows_unsupported {
            return (Vec::new(), Vec::new());
        }
        let about =
            |uplink: usize| members.iter().any(|m| list.identified_entries[m.binding_index].uplink == uplink);
        let registered = |uplink: usize| {
            if removal {
                list.is_registered(uplink) && !about(uplink)
            } else {
                list.is_registered(uplink) || about(uplink)
            }
        };
        let mut described = Vec::new();
        let mut named = Vec::new();
        let mut length = 24 * members.len() + 24 * prefixes + 60;
        for flow in &self.states {
            let due = self.is_flow_change_due(all, flow, registered);
            let cost = due.as_ref().map_or(2, |flow| 24 + flow_option_length(flow));
            match due {
                Some(flow) if length + cost <= MAX_FLOW_OPTION_OCTETS => described.push(flow),
                // This update has no room for the description, so it only names the flow; the next update
                // describes it.
                _ if flow.acknowledged_flow.is_some() => named.push(flow.fid),
                _ => continue,
            }
            length += cost;
        }
        (described, named)
    }

    /// Adds the flow options to a message (RFC 6089 4.2, RFC 5094).
    pub(super) fn add_options(
        &self,
        mut builder: MobilityHeaderBuilder,
        described: &[FlowBinding],
        named: &[u16],
    ) -> MobilityHeaderBuilder {
        for flow in described {
            let bids: Vec<u16> = flow.bids.iter().map(|(bid, _)| *bid).collect();
            builder = builder.option(&MobilityOption::FlowIdentification {
                fid: flow.fid,
                priority: flow.priority,
                status: 0,
                sub_options: &emit_sub_options(Some(&flow.selector), &bids),
            });
            if !self.supports_only_copies {
                let action = FlowActionOption {
                    fid: flow.fid,
                    action: flow.action,
                    binding_weights: flow.bids.clone(),
                };
                builder = builder.option(&MobilityOption::VendorSpecific {
                    vendor: EXAMPLE_VENDOR,
                    sub_type: FLOW_ACTION_SUBTYPE,
                    data: &action.emit(),
                });
            }
        }
        if !named.is_empty()
            && let Ok(fids) = carnet_wire::mobility::flow_identification::BindingIdentifiers::parse(
                &emit_binding_identifiers(named),
                "flow summary",
            )
        {
            builder = builder.option(&MobilityOption::FlowSummary(fids));
        }
        builder
    }

    /// Records that the Binding Update with this number described these flows in full.
    pub(super) fn record_sent_flows(&mut self, sequence: u16, flows: &[FlowBinding]) {
        for sent in flows {
            if let Some(flow) = self.states.iter_mut().find(|flow| flow.fid == sent.fid) {
                flow.pending_description = Some((sequence, sent.clone()));
            }
        }
    }

    /// Returns whether a flow waits for the answer to the Binding Update with this number.
    pub(super) fn awaits_answer_to(&self, sequence: u16) -> bool {
        self.states
            .iter()
            .any(|flow| flow.pending_description.as_ref().is_some_and(|(last, _)| *last == sequence))
    }

    /// Clears the state of all flows, because the home agent has lost them.
    pub(super) fn forget_flow_states(&mut self) {
        for flow in &mut self.states {
            flow.acknowledged_flow = None;
            flow.pending_description = None;
            flow.last_refusal = None;
        }
        self.are_flows_unsupported = false;
        self.supports_only_copies = false;
    }

    fn handle_flow_answer(&mut self, sequence: u16, sent: &FlowBinding, status: u8) -> Option<String> {
        let flow = self.states.iter_mut().find(|flow| flow.fid == sent.fid)?;
        let latest = flow.pending_description.as_ref().is_none_or(|(last, _)| *last == sequence);
        if latest {
            flow.pending_description = None;
        } else if status >= 128 {
            return None;
        }
        if status < 128 {
            flow.acknowledged_flow = Some(sent.clone());
            flow.last_refusal = None;
            return None;
        }
        let bids: Vec<u16> = sent.bids.iter().map(|(bid, _)| *bid).collect();
        flow.acknowledged_flow = None;
        flow.last_refusal = Some((status, bids));
        let policy = self.policies.get(flow.policy).map_or("", |policy| policy.name.as_str());
        let what = match status {
            flow_status::PROHIBITED => "administratively prohibited",
            flow_status::MALFORMED => "malformed",
            flow_status::BID_NOT_FOUND => "an uplink of it is not registered; to be tried again when it is",
            flow_status::FID_NOT_FOUND => "not found",
            flow_status::SELECTOR_NOT_SUPPORTED => "its traffic selector is not supported",
            _ => "reason unspecified",
        };
        Some(format!("policy {policy}: the home agent refuses flow {} (status {status}): {what}", sent.fid))
    }

    /// Handles the home agent's answers about the flows of a Binding Update.
    pub(super) fn handle_flow_answers(
        &mut self,
        update: &BindingUpdateContent,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) -> Vec<String> {
        if acknowledgement.status >= 128
            || (update.described_flows.is_empty() && update.unchanged_flow_ids.is_empty())
        {
            return Vec::new();
        }
        let mut statuses: Vec<(u16, u8)> = Vec::new();
        let mut actions: Vec<FlowActionOption> = Vec::new();
        for option in acknowledgement.options.iter().flatten() {
            match option {
                MobilityOption::FlowIdentification { fid, status, .. } => statuses.push((fid, status)),
                other => actions.extend(FlowActionOption::from_mobility_option(&other).and_then(Result::ok)),
            }
        }
        // RFC 6089 5.2.6: if the acknowledgement has no flow options, the home agent does not support
        // them.
        if !update.described_flows.is_empty() && statuses.is_empty() {
            self.are_flows_unsupported = true;
            let warning =
                "the home agent knows no flow bindings (RFC 6089): policies hold for what this router sends";
            return vec![warning.to_owned()];
        }
        let mut warnings = Vec::new();
        for sent in &update.described_flows {
            let status = statuses.iter().find(|(fid, _)| *fid == sent.fid).map(|(_, status)| *status);
            let echoed = actions.iter().find(|action| action.fid == sent.fid);
            let status = status.unwrap_or(flow_status::UNSPECIFIED);
            let plain = sent.action == FlowAction::Failover && sent.bids.len() == 1;
            if status < 128
                && !self.supports_only_copies
                && !plain
                && echoed.is_none_or(|e| e.action != sent.action)
            {
                self.supports_only_copies = true;
                for flow in &mut self.states {
                    flow.acknowledged_flow = None;
                    flow.pending_description = None;
                }
                warnings.push(
                    "the home agent can only copy packets (RFC 6089): policies fail over from uplink to \
                     uplink"
                        .to_owned(),
                );
                return warnings;
            }
            warnings.extend(self.handle_flow_answer(update.sequence, sent, status));
        }
        // RFC 6089 5.3.3: the home agent answers a flow of the summary only if it has lost the flow.
        for (fid, status) in statuses {
            if status >= 128
                && update.unchanged_flow_ids.contains(&fid)
                && let Some(flow) = self.states.iter_mut().find(|flow| flow.fid == fid)
            {
                flow.acknowledged_flow = None;
            }
        }
        warnings
    }

    /// Computes the flows for the data path from the registrations.
    pub(super) fn update_effective_flows(&mut self, all: &Uplinks, transmit: &[usize]) {
        let effective = self
            .states
            .iter()
            .filter_map(|flow| {
                let mut wanted = self.wanted_flow(all, flow, |uplink| transmit.contains(&uplink))?;
                // Only a home agent that has accepted the action removes duplicates, so the router sends
                // copies only then.
                let taken =
                    flow.acknowledged_flow.as_ref().is_some_and(|known| known.action == wanted.action);
                if wanted.action == FlowAction::Duplicate && !taken {
                    wanted.action = FlowAction::Failover;
                }
                Some(wanted)
            })
            .collect();
        self.effective_flows = effective;
    }

    /// Sets the operator's choice of uplinks for a policy; `None` restores the configured ones.
    ///
    /// # Errors
    /// Returns a message for the operator if the policy or an uplink does not exist.
    pub(super) fn choose_uplinks(
        &mut self,
        all: &Uplinks,
        name: &str,
        uplinks: Option<&[String]>,
    ) -> Result<(), String> {
        let policies = &self.policies;
        let index = policies.iter().position(|policy| policy.name == name).ok_or_else(|| {
            let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
            match names.as_slice() {
                [] => format!("cannot find the policy {name}: the config has none"),
                names => format!("cannot find the policy {name}, expected one of: {}", names.join(", ")),
            }
        })?;
        for interface in uplinks.unwrap_or_default() {
            let uplink = all.iter().find(|uplink| uplink.config.interface == *interface);
            if uplink.is_none_or(|uplink| uplink.config.bid.is_none()) {
                return Err(format!("cannot find an uplink with a bid: {interface}"));
            }
        }
        if uplinks.is_some_and(<[String]>::is_empty) {
            return Err("at least one uplink is expected".into());
        }
        if let Some(choice) = self.chosen_uplinks.get_mut(index) {
            *choice = uplinks.map(<[String]>::to_vec);
        }
        for flow in self.states.iter_mut().filter(|flow| flow.policy == index) {
            flow.last_refusal = None;
        }
        Ok(())
    }
}

/// Returns whether two weights differ by at most a quarter. Such a change needs no Binding Update.
fn are_weights_close(a: u16, b: u16) -> bool {
    u32::from(a.abs_diff(b)) * 4 <= u32::from(a.max(b))
}

/// Returns the approximate length of a flow's options in octets.
fn flow_option_length(flow: &FlowBinding) -> usize {
    emit_sub_options(Some(&flow.selector), &[]).len() + 6 * flow.bids.len() + 16
}
