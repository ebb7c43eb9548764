//! Watches which interfaces accept frames that XDP redirects to them.
//!
//! Some drivers accept no redirected frames. A virtual Ethernet interface accepts them only while its peer
//! polls, with GRO or an XDP program. The kernel drops frames redirected to any other interface. Since Linux
//! 6.3 the kernel reports which interfaces accept such frames, by the generic netlink family `netdev`
//! (Documentation/netlink/specs/netdev.yaml).

use std::collections::BTreeSet;
use std::task::Context;

use crate::generic_netlink::{Events, Family, Message, RequestSocket, find_attribute, u32_at};

/// Commands of the family `netdev`, `NETDEV_CMD_*`.
const GET_DEVICE: u8 = 1;
const DEVICE_CHANGED: u8 = 4;
/// Attributes of a device, `NETDEV_A_DEV_*`.
const IFINDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
/// Flag in the attribute XDP_FEATURES: the device accepts redirected frames (`NETDEV_XDP_ACT_NDO_XMIT`).
const ACCEPTS_REDIRECTED_FRAMES: u64 = 4;

/// Interfaces that accept frames redirected by XDP; see the head of the module.
#[derive(Debug, Default)]
pub(super) struct RedirectTargets {
    kernel: Option<(RequestSocket, Family)>,
    events: Events,
}

impl RedirectTargets {
    /// Subscribes to the kernel's reports about XDP features of devices, if the kernel has them.
    pub(super) fn open() -> RedirectTargets {
        let open = || {
            let mut questions = RequestSocket::open()?;
            let family = questions.family("netdev")?;
            std::io::Result::Ok((questions, family))
        };
        let kernel = open().ok();
        let group = kernel.as_ref().and_then(|(_, family)| family.groups.get("mgmt"));
        let events = group.map(|group| Events::of(*group)).unwrap_or_default();
        RedirectTargets { kernel, events }
    }

    /// Returns the indices of the interfaces that accept redirected frames; `None` if the kernel does not
    /// report them.
    pub(super) fn read_targets(&mut self) -> Option<BTreeSet<u32>> {
        let (questions, family) = self.kernel.as_mut()?;
        let devices = questions.dump(family.id, GET_DEVICE, &[]).ok()?;
        Some(devices.iter().filter_map(|device| receiver(&device.attributes)).collect())
    }

    /// Returns whether [`Self::read_targets`] may return another result than before.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let changed = |events: &[Message]| events.iter().any(|event| event.command == DEVICE_CHANGED);
        self.events.poll(cx, changed)
    }
}

/// Returns the index of the device in a report, if the device accepts redirected frames.
fn receiver(attributes: &[u8]) -> Option<u32> {
    // The value has 64 bits in the machine's byte order.
    let features = u64::from_ne_bytes(find_attribute(attributes, XDP_FEATURES)?.try_into().ok()?);
    (features & ACCEPTS_REDIRECTED_FRAMES != 0)
        .then(|| u32_at(find_attribute(attributes, IFINDEX)?, 0))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generic_netlink::attribute;

    #[test]
    fn interface_reports_redirect_receive_feature() {
        let device = |features: u64| {
            [attribute(IFINDEX, &7_u32.to_ne_bytes()), attribute(XDP_FEATURES, &features.to_ne_bytes())]
                .concat()
        };
        assert_eq!(receiver(&device(0x67)), Some(7));
        assert_eq!(receiver(&device(0x23)), None);
        assert_eq!(receiver(&attribute(IFINDEX, &7_u32.to_ne_bytes())), None);
        assert_eq!(receiver(&attribute(XDP_FEATURES, &[4, 0])), None);
    }
}
