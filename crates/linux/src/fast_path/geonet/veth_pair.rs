//! A pair of virtual Ethernet devices that completes packets.
//!
//! The kernel gives super packets (GSO) and packets without a checksum to an interface that can finish them.
//! Packets over GeoNetworking must be finished before the station adds headers. So carnet disables these
//! features at the near device. The kernel cuts super packets and completes checksums before it gives packets
//! to the near device, and the far device delivers complete packets.

use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::AttachedInterface;
use crate::error::{Error, Result};
use crate::kernel_settings;
use crate::netlink::{LinkInfo, NetlinkRequests};

/// Maximum length of an interface name in octets.
const MAX_INTERFACE_NAME_LENGTH: usize = 15;
/// Suffix of the name of the near device.
const NEAR_DEVICE_SUFFIX: &str = "-o";
/// Suffix of the name of the far device.
const FAR_DEVICE_SUFFIX: &str = "-i";
/// Command `ETHTOOL_STXCSUM` of linux/ethtool.h, which no crate defines.
const ETHTOOL_STXCSUM: u32 = 0x17;

/// Returns the common beginning of the names of an interface's two devices.
fn common_name_prefix(interface: &str) -> &str {
    let end = MAX_INTERFACE_NAME_LENGTH - NEAR_DEVICE_SUFFIX.len();
    interface
        .char_indices()
        .find(|(at, c)| at + c.len_utf8() > end)
        .map_or(interface, |(at, _)| &interface[..at])
}

/// Returns the near devices of pairs whose virtual interface is gone.
pub(super) fn devices_without_interface(links: &[LinkInfo]) -> impl Iterator<Item = &LinkInfo> {
    links.iter().filter(|link| {
        let interface = link
            .name
            .strip_suffix(NEAR_DEVICE_SUFFIX)
            .filter(|_| link.device_group == super::super::PAIR_DEVICE_GROUP);
        interface.is_some_and(|name| !links.iter().any(|other| common_name_prefix(&other.name) == name))
    })
}

/// The two virtual Ethernet devices behind a virtual interface.
#[derive(Debug)]
pub(super) struct VethPair {
    pub(super) near_device: AttachedInterface,
    pub(super) far_device: AttachedInterface,
}

impl VethPair {
    /// Creates a pair of virtual Ethernet devices, named after `interface`. If a crash has left a pair with
    /// these names, replaces it.
    pub(super) fn create(
        requests: &mut NetlinkRequests,
        interface: &str,
        group: u32,
        mtu: u32,
    ) -> Result<VethPair> {
        let names =
            [NEAR_DEVICE_SUFFIX, FAR_DEVICE_SUFFIX].map(|end| common_name_prefix(interface).to_owned() + end);
        let [near, far] = names.each_ref();
        if let Some(left) =
            requests.link_requests().find_link(near)?.filter(|link| link.device_group == group)
        {
            requests.link_requests().delete_link(left.index)?;
        }
        requests.link_requests().add_veth_pair([near, far], group, mtu)?;
        let result = configure(requests, near, far);
        if result.is_err()
            && let Ok(Some(link)) = requests.link_requests().find_link(near)
        {
            let _ = requests.link_requests().delete_link(link.index);
        }
        result
    }

    /// Removes both devices.
    pub(super) fn remove(self, requests: &mut NetlinkRequests) {
        if let Err(error) = requests.link_requests().delete_link(self.near_device.index) {
            tracing::warn!("{error}");
        }
    }
}

fn configure(requests: &mut NetlinkRequests, near: &str, far: &str) -> Result<VethPair> {
    disable_checksum_offload(near)?;
    let mut up = |name: &str| -> Result<AttachedInterface> {
        kernel_settings::disable_ipv6(name)?;
        let link: LinkInfo = requests.link_requests().find_link(name)?.ok_or_else(|| {
            Error::from_kernel_refusal(
                format!("look up {name}"),
                std::io::Error::from_raw_os_error(libc::ENODEV),
            )
        })?;
        requests.link_requests().set_up(&link, true)?;
        Ok(AttachedInterface { name: link.name, index: link.index })
    };
    let far = up(far)?;
    Ok(VethPair { near_device: up(near)?, far_device: far })
}

/// Copy of `struct ethtool_value` in C.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Makes the kernel complete checksums before it gives packets to this device.
fn disable_checksum_offload(name: &str) -> Result<()> {
    let failed = |error: std::io::Error| {
        Error::from_kernel_refusal(format!("turn off transmit checksum offload of {name}"), error)
    };
    let socket = socket(AddressFamily::Inet6, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .map_err(|error| failed(error.into()))?;
    let mut value = EthtoolValue { command: ETHTOOL_STXCSUM, data: 0 };
    // SAFETY: `ifreq` is a plain C structure for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the descriptor is open; both structures live until the call returns.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(failed(std::io::Error::last_os_error())) } else { Ok(()) }
}
