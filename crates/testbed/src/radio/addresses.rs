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

use crate::medium::channel::Mac;

/// Message type `RTM_NEWLINK`.
const NEW_LINK: u16 = 16;
/// Attribute `IFLA_ADDRESS`.
const ADDRESS: u16 = 1;
/// Attribute `IFLA_IFNAME`.
const NAME: u16 = 3;
/// Multicast group `RTMGRP_LINK`.
const LINKS: u32 = 1;
/// Length in octets of `struct nlmsghdr`, and also of `struct ifinfomsg` after it.
const HEADER: usize = 16;
/// Milliseconds between two checks of the thread whether it has to end.
const TICK: u16 = 200;
/// Maximum length of a datagram in octets.
const LONGEST: usize = 32 << 10;

/// The thread that follows addresses.
#[derive(Debug)]
pub(super) struct Addresses {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Addresses {
    /// Follows the addresses in these nodes, each with the name of its radio interface. Calls `set` with the
    /// number of a radio and its address: first with the present address, then after each change.
    pub(super) fn follow(
        radios: Vec<(String, String)>,
        set: impl Fn(usize, Mac) + Send + 'static,
    ) -> anyhow::Result<Addresses> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = mpsc::channel();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("addresses".into()).spawn(move || {
            let opened = radios.iter().map(|(node, interface)| open(node, interface)).collect();
            let sockets: Vec<(OwnedFd, Option<Mac>)> = match opened {
                Ok(sockets) => sockets,
                Err(error) => return drop(ready.send(Err(error))),
            };
            for (number, (_, address)) in sockets.iter().enumerate() {
                address.iter().for_each(|address| set(number, *address));
            }
            let _ = ready.send(Ok(()));
            let mut buffer = vec![0; LONGEST];
            while !stopped.load(Ordering::Relaxed) {
                let mut fds: Vec<PollFd> = sockets
                    .iter()
                    .map(|(socket, _)| PollFd::new(socket.as_fd(), PollFlags::POLLIN))
                    .collect();
                if poll(&mut fds, PollTimeout::from(TICK)).is_err() {
                    continue;
                }
                for (number, (socket, _)) in sockets.iter().enumerate() {
                    while let Ok(length) = receive(socket, &mut buffer) {
                        let name = &radios[number].1;
                        let changed = links(&buffer[..length]);
                        changed.get(name.as_str()).iter().for_each(|address| set(number, **address));
                    }
                }
            }
        })?;
        let addresses = Addresses { stop, thread: Some(thread) };
        is_ready.recv().context("nobody follows the addresses of the radios")??;
        Ok(addresses)
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens a socket in a node that receives changes of its interfaces. Also returns the present address of one
/// interface, if the interface has one.
fn open(node: &str, interface: &str) -> anyhow::Result<(OwnedFd, Option<Mac>)> {
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
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, LINKS))?;
    let present = nix::ifaddrs::getifaddrs()?
        .filter(|found| found.interface_name == interface)
        .find_map(|found| found.address?.as_link_addr()?.addr());
    Ok((socket, present))
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    recv(socket.as_raw_fd(), buffer, MsgFlags::empty())
}

/// Returns name and address of each interface in a datagram of the kernel.
fn links(mut octets: &[u8]) -> BTreeMap<&str, Mac> {
    let mut found = BTreeMap::new();
    while let Some((kind, body, rest)) = message(octets) {
        if kind == NEW_LINK
            && let Some((name, address)) = link(body)
        {
            found.insert(name, address);
        }
        octets = rest;
    }
    found
}

/// Returns the first message's type, its body after both headers, and the remaining octets. `None` if no
/// complete message is left.
fn message(octets: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(*octets.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*octets.get(4..)?.first_chunk()?);
    let body = octets.get(2 * HEADER..length)?;
    Some((kind, body, octets.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

fn link(mut attributes: &[u8]) -> Option<(&str, Mac)> {
    let (mut name, mut address) = (None, None);
    while let (Some(length), Some(kind)) =
        (attributes.first_chunk(), attributes.get(2..).and_then(<[u8]>::first_chunk))
    {
        let length = usize::from(u16::from_ne_bytes(*length));
        let Some(value) = attributes.get(4..length) else { break };
        match u16::from_ne_bytes(*kind) {
            NAME => name = std::str::from_utf8(value).ok().map(|name| name.trim_end_matches('\0')),
            ADDRESS => address = value.try_into().ok(),
            _ => {}
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some((name?, address?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut octets = (4 + value.len() as u16).to_ne_bytes().to_vec();
        octets.extend_from_slice(&kind.to_ne_bytes());
        octets.extend_from_slice(value);
        octets.resize(octets.len().next_multiple_of(4), 0);
        octets
    }

    fn new_link(attributes: &[Vec<u8>]) -> Vec<u8> {
        let body = attributes.concat();
        let mut octets = (32 + body.len() as u32).to_ne_bytes().to_vec();
        octets.extend_from_slice(&NEW_LINK.to_ne_bytes());
        octets.resize(32, 0);
        octets.extend_from_slice(&body);
        octets
    }

    #[test]
    fn datagram_with_two_links_has_both_addresses() {
        let (one, two) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let first = new_link(&[attribute(NAME, b"radio\0"), attribute(13, &[1]), attribute(ADDRESS, &one)]);
        let second = new_link(&[attribute(ADDRESS, &two), attribute(NAME, b"lan\0")]);
        let all = [first.clone(), second].concat();
        assert_eq!(links(&all), BTreeMap::from([("radio", one), ("lan", two)]));
        // The function ignores an address of another length, which is not a radio's, and truncated
        // attributes.
        assert!(links(&new_link(&[attribute(NAME, b"tun0\0"), attribute(ADDRESS, &[0; 16])])).is_empty());
        for end in 0..first.len() {
            assert!(links(&first[..end]).is_empty());
        }
    }
}
