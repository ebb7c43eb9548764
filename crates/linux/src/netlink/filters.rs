//! Removes tc filters at ingress and egress of an interface, and the `clsact` qdisc that holds them.
//!
//! All filters of carnet have the same priority. On kernels without BPF links for tc (before Linux 6.6),
//! carnet finds the filters that a crash has left by this priority.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcHandle, TcMessage};

use super::{Requests, tolerate};
use crate::error::Result;

/// Handle of a `clsact` qdisc, `TC_H_CLSACT` of linux/pkt_sched.h.
const CLSACT: u32 = 0xffff_fff1;
/// Parent of filters at the ingress, `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`; the next constant is the
/// parent at the egress.
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;

fn message(index: u32, parent: u32) -> TcMessage {
    let mut message = TcMessage::default();
    message.header.index = i32::try_from(index).unwrap_or_default();
    message.header.parent = TcHandle::from(parent);
    message
}

/// Requests about tc filters.
pub(crate) struct Filters<'a>(pub(super) &'a mut Requests);

impl Filters<'_> {
    /// Removes the tc filters of this priority from an interface. Returns whether the interface had such a
    /// filter.
    pub(crate) fn delete(&mut self, index: u32, priority: u16) -> Result<bool> {
        let ingress = self.delete_at(index, INGRESS, priority)?;
        Ok(self.delete_at(index, EGRESS, priority)? || ingress)
    }

    fn delete_at(&mut self, index: u32, parent: u32, priority: u16) -> Result<bool> {
        let mut message = message(index, parent);
        // The upper half of `info` is the priority. The lower half is the protocol; 0 matches any protocol.
        message.header.info = u32::from(priority) << 16;
        let result = self.0.change(RouteNetlinkMessage::DelTrafficFilter(message), 0, || {
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
        for parent in [INGRESS, EGRESS] {
            let question = RouteNetlinkMessage::GetTrafficFilter(message(index, parent));
            if !self.0.dump(question, || format!("list the tc filters of interface {index}"))?.is_empty() {
                return Ok(());
            }
        }
        let result =
            self.0.change(RouteNetlinkMessage::DelQueueDiscipline(message(index, CLSACT)), 0, || {
                format!("remove the clsact qdisc of interface {index}")
            });
        tolerate(result, &[libc::ENOENT, libc::EINVAL, libc::ENODEV])
    }
}
