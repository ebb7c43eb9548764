//! Sockets to the kernel's nftables: one for requests, and one for events.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use carnet_nemo::forwarding::packet_rules::{Chain, PacketCount};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use socket2::SockRef;
use tokio::io::unix::AsyncFd;

use super::message::{
    CHAIN_HANDLE, CHAIN_HOOK, CHAIN_POLICY, FAMILY_INET, GENERATION, GET_CHAIN, GET_GENERATION, GET_RULE,
    GET_TABLE, RULE_CHAIN, RULE_HANDLE, TABLE_FLAGS, TABLE_HANDLE, Transaction, chain_name, count,
    message_about, table_name,
};
use crate::generic_netlink::{ACKNOWLEDGE, DONE, DUMP, ERROR, find_attribute, received};
use crate::netlink::retry;
use crate::readable::watch;

/// Flag of a list that changed while the kernel sent it.
const INTERRUPTED: u16 = 0x10;
/// Multicast group of changes of the ruleset (`NFNLGRP_NFTABLES`).
const CHANGES: u32 = 7;
/// Longest time to wait for an answer. The kernel answers within the call that sends the request, so only a
/// lost answer takes this time.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Size of the receive buffer in octets: the minimum that `netlink(7)` recommends.
const BUFFER: usize = 32 * 1024;
/// Number of attempts to read a list that changes while the kernel sends it.
const ATTEMPTS: usize = 4;

/// Everything about carnet's table that changes if another program changes the table. The kernel gives each
/// table, chain and rule a handle of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TableContent {
    /// Handle and flags of the table.
    table: Vec<Vec<u8>>,
    /// Handle, hook and policy of each chain.
    chains: Vec<Vec<u8>>,
    /// Chain and handle of each rule.
    pub(super) rules: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Address family of an object's table, and the attributes of the object.
pub(super) type FamilyObject = (u8, Vec<u8>);

/// Socket for requests to the kernel's nftables.
pub(super) struct RequestSocket {
    socket: Socket,
    sequence: u32,
}

impl std::fmt::Debug for RequestSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestSocket").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

impl RequestSocket {
    /// Opens the socket in the network namespace of the calling thread.
    pub(super) fn open() -> io::Result<RequestSocket> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        SockRef::from(&socket).set_read_timeout(Some(TIMEOUT))?;
        // Make the kernel leave the request out of its error messages, which are shorter then. Old kernels
        // lack the option.
        let _ = socket.set_cap_ack(true);
        Ok(RequestSocket { socket, sequence: 0 })
    }

    /// Returns the sequence number of the next transaction.
    pub(super) fn next_sequence(&self) -> u32 {
        self.sequence.wrapping_add(1)
    }

    /// Executes a transaction, and returns its first error.
    pub(super) fn execute(&mut self, transaction: &Transaction) -> io::Result<()> {
        self.sequence = transaction.last.wrapping_add(1);
        retry(|| self.socket.send(&transaction.octets, 0))?;
        let mine = |sequence: u32| {
            sequence.wrapping_sub(transaction.first) <= transaction.last.wrapping_sub(transaction.first)
        };
        let mut buffer = Vec::with_capacity(BUFFER);
        loop {
            self.receive(&mut buffer)?;
            for answer in received(&buffer).filter(|answer| mine(answer.sequence) && answer.kind == ERROR) {
                answer.result()?;
                if answer.sequence == transaction.last {
                    return Ok(());
                }
            }
        }
    }

    /// Returns the number of the ruleset's generation: it grows with each change of any table.
    pub(super) fn generation(&mut self) -> io::Result<u32> {
        let found = self.ask(GET_GENERATION, ACKNOWLEDGE, &[])?;
        let number = found.first().and_then(|attributes| find_attribute(attributes, GENERATION));
        let number = number.and_then(|octets| octets.first_chunk()).map(|octets| u32::from_be_bytes(*octets));
        number.ok_or_else(|| io::Error::other("the kernel sent no generation"))
    }

    /// Returns the content of carnet's table, which has these chains; `None` if table or chain is missing.
    pub(super) fn content(&mut self, chains: &[Chain]) -> io::Result<Option<TableContent>> {
        let is_missing = |error: &io::Error| error.raw_os_error() == Some(libc::ENOENT);
        let table = match self.ask(GET_TABLE, ACKNOWLEDGE, &table_name()) {
            Err(error) if is_missing(&error) => return Ok(None),
            other => other?,
        };
        let mut content = TableContent {
            table: table.iter().map(|it| pick(it, &[TABLE_HANDLE, TABLE_FLAGS])).collect(),
            ..TableContent::default()
        };
        for chain in chains {
            match self.ask(GET_CHAIN, ACKNOWLEDGE, &chain_name(*chain)) {
                Err(error) if is_missing(&error) => return Ok(None),
                other => content
                    .chains
                    .extend(other?.iter().map(|it| pick(it, &[CHAIN_HANDLE, CHAIN_HOOK, CHAIN_POLICY]))),
            }
        }
        let rules = self.ask(GET_RULE, DUMP, &table_name())?;
        content.rules = rules.iter().map(|it| (pick(it, &[RULE_CHAIN]), pick(it, &[RULE_HANDLE]))).collect();
        Ok(Some(content))
    }

    /// Returns the count of each rule of the table, in their order; `None` if the table is no longer the one
    /// with this content.
    pub(super) fn counts(&mut self, content: &TableContent) -> io::Result<Option<Vec<Option<PacketCount>>>> {
        let rules = self.ask(GET_RULE, DUMP, &table_name())?;
        let identity = rules.iter().map(|it| (pick(it, &[RULE_CHAIN]), pick(it, &[RULE_HANDLE])));
        let is_same = identity.eq(content.rules.iter().cloned());
        Ok(is_same.then(|| rules.iter().map(|rule| count(rule)).collect()))
    }

    /// Sends a request about tables of the family `inet`, and returns the attributes of each answer.
    fn ask(&mut self, kind: u16, flags: u16, attributes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let answers = self.ask_about(kind, FAMILY_INET, flags, attributes)?;
        Ok(answers.into_iter().map(|(_, attributes)| attributes).collect())
    }

    /// Returns all objects of a kind in tables of a family, or of all families if it is 0. Each has the
    /// family of its table, and its attributes.
    pub(super) fn list(&mut self, kind: u16, family: u8, attributes: &[u8]) -> io::Result<Vec<FamilyObject>> {
        self.ask_about(kind, family, DUMP, attributes)
    }

    fn ask_about(
        &mut self,
        kind: u16,
        family: u8,
        flags: u16,
        attributes: &[u8],
    ) -> io::Result<Vec<FamilyObject>> {
        for _ in 1..ATTEMPTS {
            let (answers, is_interrupted) = self.ask_once(kind, family, flags, attributes)?;
            if !is_interrupted {
                return Ok(answers);
            }
        }
        // The list has changed during the last attempt, too. An event will follow, and carnet reads it again.
        Ok(self.ask_once(kind, family, flags, attributes)?.0)
    }

    fn ask_once(
        &mut self,
        kind: u16,
        family: u8,
        flags: u16,
        attributes: &[u8],
    ) -> io::Result<(Vec<FamilyObject>, bool)> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = message_about(kind, family, flags, self.sequence, attributes);
        retry(|| self.socket.send(&request, 0))?;
        let (mut found, mut is_interrupted) = (Vec::new(), false);
        let mut buffer = Vec::with_capacity(BUFFER);
        loop {
            self.receive(&mut buffer)?;
            for answer in received(&buffer).filter(|answer| answer.sequence == self.sequence) {
                is_interrupted |= answer.flags & INTERRUPTED != 0;
                match answer.kind {
                    DONE => return Ok((found, is_interrupted)),
                    ERROR => return answer.result().map(|()| (found, is_interrupted)),
                    _ => found.extend(answer.attributes().map(|it| (answer.address_family(), it.to_vec()))),
                }
            }
        }
    }

    fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        retry(|| self.socket.recv(buffer, 0)).map(drop)
    }
}

/// Returns the values of attributes of these kinds, one after another.
fn pick(attributes: &[u8], kinds: &[u16]) -> Vec<u8> {
    kinds.iter().flat_map(|kind| find_attribute(attributes, *kind).unwrap_or_default()).copied().collect()
}

/// Socket for the kernel's events about changes of the ruleset.
#[derive(Debug)]
pub(super) struct EventSocket {
    socket: AsyncFd<Socket>,
    /// Receive buffer, kept because each turn of the platform polls the socket.
    buffer: Vec<u8>,
}

impl EventSocket {
    pub(super) fn open() -> io::Result<EventSocket> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        socket.add_membership(CHANGES)?;
        Ok(EventSocket { socket: watch(socket)?, buffer: Vec::with_capacity(BUFFER) })
    }

    /// Reads all events and registers a wake-up for more. Returns whether any events had arrived.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_changed = false;
        while let Poll::Ready(Ok(mut guard)) = self.socket.poll_read_ready(cx) {
            loop {
                self.buffer.clear();
                match guard.get_inner().recv(&mut self.buffer, 0) {
                    Ok(_) => has_changed = true,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // The kernel has dropped events, so suppose that the ruleset has changed.
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => has_changed = true,
                    Err(_) => {
                        guard.clear_ready();
                        break;
                    }
                }
            }
        }
        has_changed
    }
}
