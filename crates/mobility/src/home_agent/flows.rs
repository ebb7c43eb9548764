//! Flow bindings at the home agent (RFC 6089 5.3).
//!
//! Each accepted Binding Update names all flows of the node: new and changed flows in Flow Identification
//! options, unchanged flows in Flow Summary options. The home agent removes a flow that the update does not
//! name. If it refuses an option, it answers with a status, and the flow stays unchanged.
//!
//! A Vendor Specific option tells the action of a flow. The home agent copies this option into the
//! acknowledgement if it accepts the action. Without the option the home agent sends a copy of each packet
//! over all bindings of the flow (RFC 6089 5.3.6).

use std::net::Ipv6Addr;

use carnet_wire::mobility::flow_identification::{
    FlowAction, FlowActionOption, FlowSubOptions, SelectorField, flow_status,
};

use super::binding_cache::BindingCache;
use super::request::{BindingUpdateRequest, FlowRequest};
use crate::flow::FlowBinding;

/// Maximum number of flow bindings of one node.
pub const MAX_FLOWS: usize = 32;

/// Answers to flow options in an acknowledgement.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FlowAnswers {
    /// The Flow Identification options with their status.
    pub options: Vec<(FlowRequest, u8)>,
    /// The accepted flow actions, which the acknowledgement repeats.
    pub actions: Vec<FlowActionOption>,
}

/// Applies the flow options of an accepted Binding Update (RFC 6089 5.3.1). The cache already has the
/// bindings of the update.
pub(super) fn update_flows(cache: &mut BindingCache, request: &BindingUpdateRequest) -> FlowAnswers {
    let home_address = request.home_address;
    let before = cache.flows(home_address).to_vec();
    let mut answers = FlowAnswers::default();
    let mut after: Vec<FlowBinding> = before
        .iter()
        .filter(|flow| {
            request.unchanged_flow_ids.contains(&flow.fid)
                || request.flow_requests.iter().any(|asked| asked.fid == flow.fid)
        })
        .cloned()
        .collect();

    // RFC 6089 5.3.3: the home agent answers an unknown flow of the summary with a status.
    for &fid in &request.unchanged_flow_ids {
        let answered = answers.options.iter().any(|(answer, _)| answer.fid == fid);
        if answers.options.len() < MAX_FLOWS && !answered && !before.iter().any(|flow| flow.fid == fid) {
            let missing = FlowRequest { fid, fid_priority: 0, sub_options: Vec::new() };
            answers.options.push((missing, flow_status::FID_NOT_FOUND));
        }
    }
    // RFC 6089 5.3.2: if two options have one FID, "all the flow identification mobility options MUST be
    // rejected".
    let twice = request.flow_requests.iter().enumerate().any(|(index, asked)| {
        request.flow_requests.iter().skip(index + 1).any(|other| other.fid == asked.fid)
    });
    let mut room = MAX_FLOWS.saturating_sub(after.len());
    let mut verdicts: Vec<Result<FlowBinding, u8>> = Vec::new();
    for asked in &request.flow_requests {
        let known = after.iter().find(|flow| flow.fid == asked.fid);
        let verdict = match (twice, known) {
            (true, _) => Err(flow_status::MALFORMED),
            (false, None) if room == 0 => Err(flow_status::UNSPECIFIED),
            (false, _) => judge_flow(cache, home_address, known, asked),
        };
        room -= usize::from(verdict.is_ok() && known.is_none());
        verdicts.push(verdict);
    }
    refuse_equal_priorities(&mut verdicts, &after);
    for (asked, verdict) in request.flow_requests.iter().zip(verdicts) {
        let status = verdict.as_ref().map_or_else(|status| *status, |_| flow_status::SUCCESS);
        if let Ok(flow) = verdict {
            after.retain(|other| other.fid != flow.fid);
            after.push(flow);
        }
        answers.options.push((asked.clone(), status));
    }
    for action in &request.flow_actions {
        let refused = answers
            .options
            .iter()
            .any(|(answer, status)| answer.fid == action.fid && *status != flow_status::SUCCESS);
        if !refused && let Some(flow) = after.iter_mut().find(|flow| flow.fid == action.fid) {
            flow.action = action.action;
            for (bid, weight) in &mut flow.bids {
                let said = action.binding_weights.iter().find(|(other, _)| other == bid);
                *weight = said.map_or(1, |(_, weight)| *weight);
            }
            answers.actions.push(action.clone());
        }
    }
    after.sort_by_key(|flow| (flow.priority, flow.fid));
    if let Some(node) = cache.node_mut(home_address) {
        node.set_flows(after);
    }
    answers
}

/// Refuses flow options that would give two flows one priority. RFC 6089 4.2: "FID-PRI MUST be unique to each
/// of the flows". The rule holds for the result of the whole Binding Update, because the home agent processes
/// its options "in any order" (5.3.2). So one update may exchange the priorities of two flows. A refused flow
/// keeps its old priority; then an option that asks for this priority is refused as well.
fn refuse_equal_priorities(verdicts: &mut [Result<FlowBinding, u8>], before: &[FlowBinding]) {
    let clash = |verdicts: &[Result<FlowBinding, u8>], index: usize| {
        let Some(Ok(flow)) = verdicts.get(index) else { return false };
        let changed = |fid: u16| verdicts.iter().flatten().any(|other| other.fid == fid);
        let earlier = verdicts.iter().take(index).flatten();
        let stays = before.iter().filter(|other| !changed(other.fid));
        earlier.chain(stays).any(|other| other.priority == flow.priority)
    };
    // Each round refuses one option, so the loop ends after at most one round per option.
    while let Some(index) = (0..verdicts.len()).find(|&index| clash(verdicts, index)) {
        verdicts[index] = Err(flow_status::MALFORMED);
    }
}

/// Returns the flow that results from an option and the existing flow (RFC 6089 5.3.2.1, 5.3.2.2); a status
/// if the option is refused.
fn judge_flow(
    cache: &BindingCache,
    home_address: Ipv6Addr,
    known: Option<&FlowBinding>,
    asked: &FlowRequest,
) -> Result<FlowBinding, u8> {
    let read = FlowSubOptions::parse(&asked.sub_options).map_err(|_| flow_status::MALFORMED)?;
    // RFC 6089 4.2: value 0 is reserved in both fields.
    if asked.fid == 0 || asked.fid_priority == 0 {
        return Err(flow_status::MALFORMED);
    }
    let selector = match (read.selector, known) {
        (Some(SelectorField::Known(selector)), _) => selector,
        (Some(_), _) => return Err(flow_status::SELECTOR_NOT_SUPPORTED),
        (None, Some(flow)) => flow.selector,
        (None, None) => return Err(flow_status::MALFORMED),
    };
    let mut bids: Vec<(u16, u16)> = Vec::new();
    match (read.bids, known) {
        (Some(named), _) => {
            for bid in named.iter() {
                if !cache.bids(home_address).any(|known| known == Some(bid)) {
                    return Err(flow_status::BID_NOT_FOUND);
                }
                let weight = known.and_then(|flow| flow.bids.iter().find(|(other, _)| *other == bid));
                if !bids.iter().any(|(other, _)| *other == bid) {
                    bids.push((bid, weight.map_or(1, |(_, weight)| *weight)));
                }
            }
        }
        (None, Some(flow)) => bids.clone_from(&flow.bids),
        (None, None) => return Err(flow_status::MALFORMED),
    }
    let action = match known {
        Some(flow) => flow.action,
        None if bids.len() > 1 => FlowAction::Duplicate,
        None => FlowAction::Failover,
    };
    Ok(FlowBinding { fid: asked.fid, priority: asked.fid_priority, selector, action, bids })
}
