//! Configures the queueing discipline of an interface.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::NetlinkRequests;
use crate::error::Result;

/// Parent of the root queueing discipline, `TC_H_ROOT` of linux/pkt_sched.h.
const ROOT_PARENT: u32 = 0xffff_ffff;

/// Requests about queueing disciplines.
pub(crate) struct QueueingDisciplineRequests<'a>(pub(super) &'a mut NetlinkRequests);

impl QueueingDisciplineRequests<'_> {
    /// Lets an interface send packets without a queueing discipline. The interface must have a queue of its
    /// own. A queueing discipline before this queue would never delay a packet, but would take a lock for
    /// each packet.
    pub(crate) fn disable_queueing(&mut self, index: u32) -> Result<()> {
        let mut message = TcMessage::default();
        message.header.index = i32::try_from(index).unwrap_or_default();
        message.header.parent = TcHandle::from(ROOT_PARENT);
        message.attributes.push(TcAttribute::Kind("noqueue".to_owned()));
        self.0.request_change(
            RouteNetlinkMessage::NewQueueDiscipline(message),
            NLM_F_CREATE | NLM_F_REPLACE,
            || format!("remove the queueing discipline of interface {index}"),
        )
    }
}
