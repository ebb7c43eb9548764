//! Sets up NAT in nodes by nftables rules, and makes a NAT lose all its mappings.
//!
//! To make a NAT lose all mappings, the lab flushes the connection table of a node by netlink
//! (`IPCTNL_MSG_CT_DELETE` without a tuple), as `conntrack -F` does. A NAT that chooses ports at random
//! (`masquerade fully-random`) then maps the next packet to another port: a NAT rebinding.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::Stdio;

use anyhow::{Context, bail};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

use crate::process::command_in_node;
use crate::tools;

/// Loads nftables rules into a node.
pub fn load_nat_rules(node: &str, rules: &str) -> anyhow::Result<()> {
    let mut child = command_in_node(node, tools::path_of_program("nft"))
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start nft (Debian package nftables)")?;
    if let Some(mut input) = child.stdin.take() {
        // Ignore a broken pipe: if nft stops early, its error output says more.
        let _ = input.write_all(rules.as_bytes());
    }
    let result = child.wait_with_output()?;
    if !result.status.success() {
        bail!("node {node}: nft said: {}", String::from_utf8_lossy(&result.stderr).trim());
    }
    Ok(())
}

/// Deletes all NAT mappings in a node.
pub fn delete_nat_mappings(node: &str) -> anyhow::Result<()> {
    let namespace = File::open(format!("/run/netns/{node}"))
        .with_context(|| format!("cannot open the namespace {node}"))?;
    let flush = || -> anyhow::Result<()> {
        setns(&namespace, CloneFlags::CLONE_NEWNET)?;
        flush_tracked_connections()
    };
    let done = std::thread::scope(|scope| scope.spawn(flush).join());
    let done = done.unwrap_or_else(|_| bail!("bug: the thread in the namespace of the node panicked"));
    done.with_context(|| format!("cannot flush the connection table of node {node}"))
}

/// Flushes the connection table of this thread's namespace.
fn flush_tracked_connections() -> anyhow::Result<()> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    // The message is a struct nlmsghdr with length, type (subsystem 1, message 2), flags (request,
    // acknowledge), number and port. A struct nfgenmsg follows, with any family, version 0 and resource 0.
    let mut message = Vec::new();
    message.extend(20_u32.to_ne_bytes());
    message.extend(0x0102_u16.to_ne_bytes());
    message.extend(5_u16.to_ne_bytes());
    message.extend(1_u32.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend([0; 4]);
    sendto(socket.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    let mut answer = [0; 256];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // The kernel's answer is a header of type 2 and a struct nlmsgerr, whose error number 0 means success.
    let word = |at: usize| {
        answer[..length].get(at..at + 4).and_then(|w| Some(i32::from_ne_bytes(w.try_into().ok()?)))
    };
    match word(16) {
        Some(0) => Ok(()),
        Some(error) => Err(std::io::Error::from_raw_os_error(-error).into()),
        None => bail!("expected an answer of 20 octets or more from the kernel, found {length}"),
    }
}
