//! Attaches a tc program to an interface.
//!
//! If the kernel supports BPF links for tc (since 6.6), the program vanishes with this process, however it
//! ends. On an older kernel the program is in a `clsact` qdisc, with the priority [`TC_FILTER_PRIORITY`]. The
//! station removes the program at its end, or after a crash at the next start.

use aya::programs::SchedClassifier;
use aya::programs::links::LinkOrder;
use aya::programs::tc::{self, NlOptions, SchedClassifierLinkId, TcAttachOptions, TcAttachType};
use aya::util::KernelVersion;

use super::error_text::format_error_with_causes;
use crate::netlink::NetlinkRequests;

/// Priority of tc filters, on kernels without BPF links for tc. By this number carnet recognises its filters,
/// like its routes by their protocol number.
pub(crate) const TC_FILTER_PRIORITY: u16 = crate::ROUTE_PROTOCOL as u16;

/// A BPF program that is attached to tc ingress or egress of an interface; see the head of the module.
#[derive(Debug)]
pub(super) struct ProgramHook {
    link_id: SchedClassifierLinkId,
    /// Index of the interface, if carnet gave it a `clsact` qdisc; otherwise `None`.
    qdisc_interface: Option<u32>,
}

impl ProgramHook {
    /// Attaches a loaded program to an interface.
    pub(super) fn attach(
        program: &mut SchedClassifier,
        name: &str,
        index: u32,
        at: TcAttachType,
    ) -> Result<ProgramHook, String> {
        let mut qdisc = None;
        let options = if has_tcx() {
            TcAttachOptions::TcxOrder(LinkOrder::default())
        } else {
            // If the interface has a clsact qdisc of another program, carnet uses that qdisc.
            if tc::qdisc_add_clsact(name).is_ok() {
                qdisc = Some(index);
            }
            TcAttachOptions::Netlink(NlOptions { priority: TC_FILTER_PRIORITY, ..NlOptions::default() })
        };
        let id = program
            .attach_with_options(name, at, options)
            .map_err(|error| format_error_with_causes(&error))?;
        Ok(ProgramHook { link_id: id, qdisc_interface: qdisc })
    }

    /// Detaches the program; works also after the interface has vanished.
    pub(super) fn detach(self, program: &mut SchedClassifier) {
        let _ = program.detach(self.link_id);
        if let Some(index) = self.qdisc_interface {
            let removed = NetlinkRequests::open()
                .and_then(|mut requests| requests.filter_requests().delete_idle_clsact(index));
            if let Err(error) = removed {
                tracing::debug!("{error}");
            }
        }
    }
}

fn has_tcx() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(6, 6, 0))
}
