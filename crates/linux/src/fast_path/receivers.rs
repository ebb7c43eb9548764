//! Which interfaces take the frames that XDP redirects to them.
//!
//! Not every driver does, and a virtual Ethernet interface only while its peer polls, which it does with GRO
//! or with an XDP program. The kernel drops what is redirected to any other. It tells which they are, and
//! when that changes: the generic netlink family `netdev` (Documentation/netlink/specs/netdev.yaml), since
//! Linux 6.3.

use std::collections::BTreeSet;
use std::task::Context;

use crate::generic_netlink::{Events, Family, Message, Questions, find, u32_at};

/// `NETDEV_CMD_*`.
const GET_DEVICE: u8 = 1;
const DEVICE_CHANGED: u8 = 4;
/// `NETDEV_A_DEV_*`.
const IFINDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_NDO_XMIT`.
const TAKES_FRAMES: u64 = 4;

/// See the head of the module.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    kernel: Option<(Questions, Family)>,
    events: Events,
}

impl Receivers {
    /// Asks the kernel from now on, if it can tell.
    pub(super) fn open() -> Receivers {
        let open = || {
            let mut questions = Questions::open()?;
            let family = questions.family("netdev")?;
            std::io::Result::Ok((questions, family))
        };
        let kernel = open().ok();
        let group = kernel.as_ref().and_then(|(_, family)| family.groups.get("mgmt"));
        let events = group.map(|group| Events::of(*group)).unwrap_or_default();
        Receivers { kernel, events }
    }

    /// Their indices; `None` where the kernel does not tell.
    pub(super) fn look(&mut self) -> Option<BTreeSet<u32>> {
        let (questions, family) = self.kernel.as_mut()?;
        let devices = questions.dump(family.id, GET_DEVICE, &[]).ok()?;
        Some(devices.iter().filter_map(|device| receiver(&device.attributes)).collect())
    }

    /// Whether [`Self::look`] may see something else than before.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let changed = |events: &[Message]| events.iter().any(|event| event.command == DEVICE_CHANGED);
        self.events.poll(cx, changed)
    }
}

/// The index of a device that takes frames.
fn receiver(attributes: &[u8]) -> Option<u32> {
    // 64 bits in the machine's order of octets.
    let features = u64::from_ne_bytes(find(attributes, XDP_FEATURES)?.try_into().ok()?);
    (features & TAKES_FRAMES != 0).then(|| u32_at(find(attributes, IFINDEX)?, 0)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generic_netlink::attribute;

    #[test]
    fn a_receiver_has_the_feature() {
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
