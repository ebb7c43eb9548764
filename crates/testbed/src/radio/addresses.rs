//! Follows the link-layer addresses of the radio interfaces. The kernel reports in each node when a station
//! sets another address: a configured one, an anonymous one, or the next pseudonym.
//!
//! One thread listens to `RTNLGRP_LINK` of all nodes (`rtnetlink(7)`) and passes each address on.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use anyhow::Context;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

use crate::medium::channel::MacAddress;

/// Message type `RTM_NEWLINK`.
const RTM_NEWLINK: u16 = 16;
/// Attribute `IFLA_ADDRESS`.
const IFLA_ADDRESS: u16 = 1;
/// Attribute `IFLA_IFNAME`.
const IFLA_IFNAME: u16 = 3;
/// Multicast group `RTMGRP_LINK`.
const RTMGRP_LINK: u32 = 1;
/// Length in octets of `struct nlmsghdr`, and also of `struct ifinfomsg` after it.
const LINK_MESSAGE_HEADER_LENGTH: usize = 16;
/// Milliseconds between two checks of the thread whether it has to end.
const POLL_INTERVAL_MS: u16 = 200;
/// Maximum length of a datagram in octets.
const MAX_DATAGRAM_LENGTH: usize = 32 << 10;

/// The thread that follows addresses.
#[derive(Debug)]
pub(super) struct AddressFollower {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AddressFollower {
    /// Follows the addresses in these nodes, each with the name of its radio interface. Calls `set` with the
    /// number of a radio and its address: first with the present address, then after each change.
    pub(super) fn follow_addresses(
        radios: Vec<(String, String)>,
        set: impl Fn(usize, MacAddress) + Send + 'static,
    ) -> anyhow::Result<AddressFollower> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("addresses".into()).spawn(move || {
            let opened = radios.iter().map(|(node, interface)| open_link_socket(node, interface)).collect();
            let sockets: Vec<(OwnedFd, Option<MacAddress>)> = match opened {
                Ok(sockets) => sockets,
                Err(error) => return drop(ready.send(Err(error))),
            };
            for (number, (_, address)) in sockets.iter().enumerate() {
                address.iter().for_each(|address| set(number, *address));
            }
            let _ = ready.send(Ok(()));
            let mut buffer = vec![0; MAX_DATAGRAM_LENGTH];
            while !stopped.load(Ordering::Relaxed) {
                let mut fds: Vec<PollFd> = sockets
                    .iter()
                    .map(|(socket, _)| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
                    .collect();
                if poll(&mut fds, PollTimeout::from(POLL_INTERVAL_MS)).is_err() {
                    continue;
                }
                for (number, (socket, _)) in sockets.iter().enumerate() {
                    while let Ok(length) = receive_datagram(socket, &mut buffer) {
                        let name = &radios[number].1;
                        let changed = addresses_in_datagram(&buffer[..length]);
                        changed.get(name.as_str()).iter().for_each(|address| set(number, **address));
                    }
                }
            }
        })?;
        let addresses = AddressFollower { stop, thread: Some(thread) };
        is_ready.recv().context("nobody follows the addresses of the radios")??;
        Ok(addresses)
    }
}

impl Drop for AddressFollower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens a socket in a node that receives changes of its interfaces. Also returns the present address of one
/// interface, if the interface has one.
fn open_link_socket(node: &str, interface: &str) -> anyhow::Result<(OwnedFd, Option<MacAddress>)> {
    let path = format!("/run/netns/{node}");
    let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    setns(&namespace, CloneFlags::CLONE_NEWNET).with_context(|| format!("cannot enter node {node}"))?;
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
        SockProtocol::NetlinkRoute,
    )
    .with_context(|| format!("cannot open a socket of rtnetlink in node {node}"))?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, RTMGRP_LINK))?;
    let present = nix::ifaddrs::getifaddrs()?
        .filter(|found| found.interface_name == interface)
        .find_map(|found| found.address?.as_link_addr()?.addr());
    Ok((socket, present))
}

fn receive_datagram(socket: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    recv(socket.as_raw_fd(), buffer, MsgFlags::empty())
}

/// Returns name and address of each interface in a datagram of the kernel.
fn addresses_in_datagram(mut octets: &[u8]) -> BTreeMap<&str, MacAddress> {
    let mut found = BTreeMap::new();
    while let Some((kind, body, rest)) = parse_message(octets) {
        if kind == RTM_NEWLINK
            && let Some((name, address)) = parse_link(body)
        {
            found.insert(name, address);
        }
        octets = rest;
    }
    found
}

/// Returns the first message's type, its body after both headers, and the remaining octets. `None` if no
/// complete message is left.
fn parse_message(octets: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*octets.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*octets.get(4..)?.first_chunk()?);
    let body = octets.get(2 * LINK_MESSAGE_HEADER_LENGTH..length)?;
    Some((kind, body, octets.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn parse_link(mut attributes: &[u8]) -> Option<(&str, MacAddress)> {
    let (mut name, mut address) = (None, None);
    while let (Some(length), Some(kind)) =
        (attributes.first_chunk(), attributes.get(2..).and_then(<[u8]>::first_chunk))
    {
        let length = usize::from(u16::from_ne_bytes(*length));
        let Some(value) = attributes.get(4..length) else { break };
        match u16::from_ne_bytes(*kind) {
            IFLA_IFNAME => name = std::str::from_utf8(value).ok().map(|name| name.trim_end_matches('\0')),
            IFLA_ADDRESS => address = value.try_into().ok(),
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some((name?, address?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode_attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut octets = (4 + value.len() as u16).to_ne_bytes().to_vec();
        octets.extend_from_slice(&kind.to_ne_bytes());
        octets.extend_from_slice(value);
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    }

    fn encode_new_link(attributes: &[Vec<u8>]) -> Vec<u8> {
        let body = attributes.concat();
        let mut octets = (32 + body.len() as u32).to_ne_bytes().to_vec();
        octets.extend_from_slice(&RTM_NEWLINK.to_ne_bytes());
        octets.resize(32, 0);
        octets.extend_from_slice(&body);
        octets
    }

    #[test]
    fn netlink_datagram_with_two_links_gives_both_mac_addresses() {
        let (one, two) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let first = encode_new_link(&[
            encode_attribute(IFLA_IFNAME, b"radio\0"),
            encode_attribute(13, &[1]),
            encode_attribute(IFLA_ADDRESS, &one),
        ]);
        let second =
            encode_new_link(&[encode_attribute(IFLA_ADDRESS, &two), encode_attribute(IFLA_IFNAME, b"lan\0")]);
        let all = [first.clone(), second].concat();
        assert_eq!(addresses_in_datagram(&all), BTreeMap::from([("radio", one), ("lan", two)]));
        // The function ignores an address of another length, which is not a radio's, and truncated
        // attributes.
        assert!(
            addresses_in_datagram(&encode_new_link(&[
                encode_attribute(IFLA_IFNAME, b"tun0\0"),
                encode_attribute(IFLA_ADDRESS, &[0; 16])
            ]))
            .is_empty()
        );
        for end in 0..first.len() {
            assert!(addresses_in_datagram(&first[..end]).is_empty());
        }
    }
}
