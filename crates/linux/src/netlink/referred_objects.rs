//! Reads the next-hop objects to which routes refer.

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST};
use netlink_packet_route::RouteNetlinkMessage;

use super::message::RtnetlinkMessage;
use super::next_hops::{NextHopObjects, next_hop_object_of};
use super::{NetlinkRequests, encode_request};
use crate::error::Result;

/// Reads all next-hop objects if one of these routes refers to an object.
pub(super) fn read_referred_objects(
    requests: &mut NetlinkRequests,
    answers: &[RouteNetlinkMessage],
) -> Result<NextHopObjects> {
    let refers = |answer: &RouteNetlinkMessage| match answer {
        RouteNetlinkMessage::NewRoute(route) => next_hop_object_of(route).is_some(),
        _ => false,
    };
    if !answers.iter().any(refers) {
        return Ok(NextHopObjects::default());
    }
    let request = encode_request(RtnetlinkMessage::GetNextHops, NLM_F_REQUEST | NLM_F_DUMP);
    let answers = requests.dump_encoded(request, || "list the next-hop objects".to_owned())?;
    let objects = answers.into_iter().filter_map(|answer| match answer {
        RtnetlinkMessage::NextHop(object) => Some(object),
        _ => None,
    });
    Ok(NextHopObjects(objects.collect()))
}
