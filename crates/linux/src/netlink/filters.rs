//! Removes tc filters at ingress and egress of an interface, and the `clsact` qdisc that holds them.
//!
//! All filters of carnet have the same priority. On kernels without BPF links for tc (before Linux 6.6),
//! carnet finds the filters that a crash has left by this priority.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcHandle, TcMessage};

use super::{NetlinkRequests, ignore_errors};
use crate::error::Result;

/// Handle of a `clsact` qdisc, `TC_H_CLSACT` of linux/pkt_sched.h.
const CLSACT_HANDLE: u32 = 0xffff_fff1;
/// Parent of filters at the ingress, `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`.
const INGRESS_PARENT: u32 = 0xffff_fff2;
/// Parent of filters at the egress, `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_EGRESS)`.
const EGRESS_PARENT: u32 = 0xffff_fff3;

fn filter_message(index: u32, parent: u32) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(index).unwrap_or_default();
    message.header.parent = TcHandle::from(parent);
    message
}

/// Requests about tc filters.
pub(crate) struct FilterRequests<'a>(pub(super) &'a mut NetlinkRequests);

impl FilterRequests<'_> {
    /// Removes the tc filters of this priority from an interface. Returns whether the interface had such a
    /// filter.
    pub(crate) fn delete_filters(&mut self, index: u32, priority: u16) -> Result<bool> {
        let ingress = self.delete_filters_at(index, INGRESS_PARENT, priority)?;
        Ok(self.delete_filters_at(index, EGRESS_PARENT, priority)? || ingress)
    }

    fn delete_filters_at(&mut self, index: u32, parent: u32, priority: u16) -> Result<bool> {
        let mut message = filter_message(index, parent);
        // The upper half of `info` is the priority. The lower half is the protocol; 0 matches any protocol.
        message.header.info = u32::from(priority) << 16;
        let result = self.0.request_change(RouteNetlinkMessage::DelTrafficFilter(message), 0, || {
            format!("remove tc filters of priority {priority} from interface {index}")
        });
        match result {
            Ok(()) => Ok(true),
            // The filter, its qdisc or the interface does not exist, or the kernel has no tc filters.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ENOENT | libc::EINVAL | libc::ENODEV | libc::EOPNOTSUPP)
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes an interface's `clsact` qdisc if it has no filter.
    pub(crate) fn delete_idle_clsact(&mut self, index: u32) -> Result<()> {
        for parent in [INGRESS_PARENT, EGRESS_PARENT] {
            let question = RouteNetlinkMessage::GetTrafficFilter(filter_message(index, parent));
            if !self
                .0
                .dump_objects(question, || format!("list the tc filters of interface {index}"))?
                .is_empty()
            {
                return Ok(());
            }
        }
        let result = self.0.request_change(
            RouteNetlinkMessage::DelQueueDiscipline(filter_message(index, CLSACT_HANDLE)),
            0,
            || format!("remove the clsact qdisc of interface {index}"),
        );
        ignore_errors(result, &[libc::ENOENT, libc::EINVAL, libc::ENODEV])
    }
}
