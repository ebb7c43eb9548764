//! Watches which interfaces accept frames that XDP redirects to them.
//!
//! Some drivers accept no redirected frames. A virtual Ethernet interface accepts them only while its peer
//! polls, with GRO or an XDP program. The kernel drops frames redirected to any other interface. Since Linux
//! 6.3 the kernel reports which interfaces accept such frames, by the generic netlink family `netdev`
//! (Documentation/netlink/specs/netdev.yaml).

use std::collections::BTreeSet;
use std::task::Context;

use crate::generic_netlink::{
    GenericNetlinkFamily, GenericNetlinkMessage, MulticastEvents, RequestSocket, find_attribute, u32_at,
};

/// Commands of the family `netdev`, `NETDEV_CMD_*`.
const NETDEV_GET_DEVICE: u8 = 1;
const NETDEV_DEVICE_CHANGED: u8 = 4;
/// Attributes of a device, `NETDEV_A_DEV_*`.
const NETDEV_ATTRIBUTE_IFINDEX: u16 = 1;
const NETDEV_ATTRIBUTE_XDP_FEATURES: u16 = 3;
/// Flag in the attribute XDP_FEATURES: the device accepts redirected frames (`NETDEV_XDP_ACT_NDO_XMIT`).
const ACCEPTS_REDIRECTED_FRAMES: u64 = 4;

/// Interfaces that accept frames redirected by XDP; see the head of the module.
#[derive(Debug, Default)]
pub(super) struct RedirectTargets {
    netdev_family: Option<(RequestSocket, GenericNetlinkFamily)>,
    events: MulticastEvents,
}

impl RedirectTargets {
    /// Subscribes to the kernel's reports about XDP features of devices, if the kernel has them.
    pub(super) fn open() -> RedirectTargets {
        let open = || {
            let mut questions = RequestSocket::open()?;
            let family = questions.find_family("netdev")?;
            std::io::Result::Ok((questions, family))
        };
        let kernel = open().ok();
        let group = kernel.as_ref().and_then(|(_, family)| family.multicast_groups.get("mgmt"));
        let events = group.map(|group| MulticastEvents::join_group(*group)).unwrap_or_default();
        RedirectTargets { netdev_family: kernel, events }
    }

    /// Returns the indices of the interfaces that accept redirected frames; `None` if the kernel does not
    /// report them.
    pub(super) fn read_targets(&mut self) -> Option<BTreeSet<u32>> {
        let (questions, family) = self.netdev_family.as_mut()?;
        let devices = questions.dump_objects(family.family_id, NETDEV_GET_DEVICE, &[]).ok()?;
        Some(devices.iter().filter_map(|device| redirect_target_in(&device.attributes)).collect())
    }

    /// Returns whether [`Self::read_targets`] may return another result than before.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let changed = |events: &[GenericNetlinkMessage]| {
            events.iter().any(|event| event.command == NETDEV_DEVICE_CHANGED)
        };
        self.events.poll_matching(cx, changed)
    }
}

/// Returns the index of the device in a report, if the device accepts redirected frames.
fn redirect_target_in(attributes: &[u8]) -> Option<u32> {
    // The value has 64 bits in the machine's byte order.
    let features =
        u64::from_ne_bytes(find_attribute(attributes, NETDEV_ATTRIBUTE_XDP_FEATURES)?.try_into().ok()?);
    (features & ACCEPTS_REDIRECTED_FRAMES != 0)
        .then(|| u32_at(find_attribute(attributes, NETDEV_ATTRIBUTE_IFINDEX)?, 0))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generic_netlink::encode_attribute;

    #[test]
    fn interface_reports_redirect_receive_feature() {
        let device = |features: u64| {
            [
                encode_attribute(NETDEV_ATTRIBUTE_IFINDEX, &7_u32.to_ne_bytes()),
                encode_attribute(NETDEV_ATTRIBUTE_XDP_FEATURES, &features.to_ne_bytes()),
            ]
            .concat()
        };
        assert_eq!(redirect_target_in(&device(0x67)), Some(7));
        assert_eq!(redirect_target_in(&device(0x23)), None);
        assert_eq!(
            redirect_target_in(&encode_attribute(NETDEV_ATTRIBUTE_IFINDEX, &7_u32.to_ne_bytes())),
            None
        );
        assert_eq!(redirect_target_in(&encode_attribute(NETDEV_ATTRIBUTE_XDP_FEATURES, &[4, 0])), None);
    }
}
