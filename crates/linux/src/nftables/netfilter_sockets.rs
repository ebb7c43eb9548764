//! Sockets to the kernel's nftables: one for requests, and one for events.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use carnet_nemo::forwarding::packet_rules::{PacketCount, RuleChain};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use socket2::SockRef;
use tokio::io::unix::AsyncFd;

use super::message::{
    ATTRIBUTE_GENERATION, CHAIN_HANDLE, CHAIN_HOOK, CHAIN_POLICY, FAMILY_INET, GET_CHAIN, GET_GENERATION,
    GET_RULE, GET_TABLE, RULE_CHAIN, RULE_HANDLE, RulesetTransaction, TABLE_FLAGS, TABLE_HANDLE,
    chain_name_attribute, encode_family_message, parse_rule_count, table_name_attribute,
};
use crate::async_descriptor::watch_readable;
use crate::generic_netlink::{
    FLAG_ACKNOWLEDGE, FLAG_DUMP, MESSAGE_DONE, MESSAGE_ERROR, find_attribute, split_received,
};
use crate::netlink::retry_interrupted;

/// Flag of a list that changed while the kernel sent it.
const FLAG_INTERRUPTED: u16 = 0x10;
/// Multicast group of changes of the ruleset (`NFNLGRP_NFTABLES`).
const GROUP_RULESET_CHANGES: u32 = 7;
/// Longest time to wait for an answer. The kernel answers within the call that sends the request, so only a
/// lost answer takes this time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Size of the receive buffer in octets: the minimum that `netlink(7)` recommends.
const RECEIVE_BUFFER_SIZE: usize = 32 * 1024;
/// Number of attempts to read a list that changes while the kernel sends it.
const MAX_READ_ATTEMPTS: usize = 4;

/// The parts of carnet's table that show whether another program has changed it. The kernel gives each table,
/// chain and rule a handle of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TableContent {
    /// Handle and flags of the table.
    table: Vec<Vec<u8>>,
    /// Handle, hook and policy of each chain.
    chain_descriptions: Vec<Vec<u8>>,
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
        SockRef::from(&socket).set_read_timeout(Some(ANSWER_TIMEOUT))?;
        // Make the kernel send error messages without the failed request, so that they are short. Old kernels
        // lack the option.
        let _ = socket.set_cap_ack(true);
        Ok(RequestSocket { socket, sequence: 0 })
    }

    /// Returns the sequence number of the next transaction.
    pub(super) fn next_sequence(&self) -> u32 {
        self.sequence.wrapping_add(1)
    }

    /// Executes a transaction, and returns its first error.
    pub(super) fn execute_transaction(&mut self, transaction: &RulesetTransaction) -> io::Result<()> {
        self.sequence = transaction.last_sequence.wrapping_add(1);
        retry_interrupted(|| self.socket.send(&transaction.octets, 0))?;
        let mine = |sequence: u32| {
            sequence.wrapping_sub(transaction.first_sequence)
                <= transaction.last_sequence.wrapping_sub(transaction.first_sequence)
        };
        let mut buffer = Vec::with_capacity(RECEIVE_BUFFER_SIZE);
        loop {
            self.receive_datagram(&mut buffer)?;
            for answer in
                split_received(&buffer).filter(|answer| mine(answer.sequence) && answer.kind == MESSAGE_ERROR)
            {
                answer.check_error()?;
                if answer.sequence == transaction.last_sequence {
                    return Ok(());
                }
            }
        }
    }

    /// Returns the number of the ruleset's generation: it grows with each change of any table.
    pub(super) fn ruleset_generation(&mut self) -> io::Result<u32> {
        let found = self.request_objects(GET_GENERATION, FLAG_ACKNOWLEDGE, &[])?;
        let number = found.first().and_then(|attributes| find_attribute(attributes, ATTRIBUTE_GENERATION));
        let number = number.and_then(|octets| octets.first_chunk()).map(|octets| u32::from_be_bytes(*octets));
        number.ok_or_else(|| io::Error::other("the kernel sent no generation"))
    }

    /// Returns the content of carnet's table, which has these chains; `None` if table or chain is missing.
    pub(super) fn table_content(&mut self, chains: &[RuleChain]) -> io::Result<Option<TableContent>> {
        let is_missing = |error: &io::Error| error.raw_os_error() == Some(libc::ENOENT);
        let table = match self.request_objects(GET_TABLE, FLAG_ACKNOWLEDGE, &table_name_attribute()) {
            Err(error) if is_missing(&error) => return Ok(None),
            other => other?,
        };
        let mut content = TableContent {
            table: table.iter().map(|it| pick_attributes(it, &[TABLE_HANDLE, TABLE_FLAGS])).collect(),
            ..TableContent::default()
        };
        for chain in chains {
            match self.request_objects(GET_CHAIN, FLAG_ACKNOWLEDGE, &chain_name_attribute(*chain)) {
                Err(error) if is_missing(&error) => return Ok(None),
                other => content.chain_descriptions.extend(
                    other?.iter().map(|it| pick_attributes(it, &[CHAIN_HANDLE, CHAIN_HOOK, CHAIN_POLICY])),
                ),
            }
        }
        let rules = self.request_objects(GET_RULE, FLAG_DUMP, &table_name_attribute())?;
        content.rules = rules
            .iter()
            .map(|it| (pick_attributes(it, &[RULE_CHAIN]), pick_attributes(it, &[RULE_HANDLE])))
            .collect();
        Ok(Some(content))
    }

    /// Returns the count of each rule of the table, in their order; `None` if the table is no longer the one
    /// with this content.
    pub(super) fn rule_counts(
        &mut self,
        content: &TableContent,
    ) -> io::Result<Option<Vec<Option<PacketCount>>>> {
        let rules = self.request_objects(GET_RULE, FLAG_DUMP, &table_name_attribute())?;
        let identity =
            rules.iter().map(|it| (pick_attributes(it, &[RULE_CHAIN]), pick_attributes(it, &[RULE_HANDLE])));
        let is_same = identity.eq(content.rules.iter().cloned());
        Ok(is_same.then(|| rules.iter().map(|rule| parse_rule_count(rule)).collect()))
    }

    /// Sends a request about tables of the family `inet`, and returns the attributes of each answer.
    fn request_objects(&mut self, kind: u16, flags: u16, attributes: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let answers = self.request_about(kind, FAMILY_INET, flags, attributes)?;
        Ok(answers.into_iter().map(|(_, attributes)| attributes).collect())
    }

    /// Returns all objects of a kind in tables of a family, or of all families if it is 0. Each has the
    /// family of its table, and its attributes.
    pub(super) fn list_objects(
        &mut self,
        kind: u16,
        family: u8,
        attributes: &[u8],
    ) -> io::Result<Vec<FamilyObject>> {
        self.request_about(kind, family, FLAG_DUMP, attributes)
    }

    fn request_about(
        &mut self,
        kind: u16,
        family: u8,
        flags: u16,
        attributes: &[u8],
    ) -> io::Result<Vec<FamilyObject>> {
        for _ in 1..MAX_READ_ATTEMPTS {
            let (answers, is_interrupted) = self.request_once(kind, family, flags, attributes)?;
            if !is_interrupted {
                return Ok(answers);
            }
        }
        // The list has changed during the last attempt, too. An event will follow, and carnet then reads the
        // list again.
        Ok(self.request_once(kind, family, flags, attributes)?.0)
    }

    fn request_once(
        &mut self,
        kind: u16,
        family: u8,
        flags: u16,
        attributes: &[u8],
    ) -> io::Result<(Vec<FamilyObject>, bool)> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = encode_family_message(kind, family, flags, self.sequence, attributes);
        retry_interrupted(|| self.socket.send(&request, 0))?;
        let (mut found, mut is_interrupted) = (Vec::new(), false);
        let mut buffer = Vec::with_capacity(RECEIVE_BUFFER_SIZE);
        loop {
            self.receive_datagram(&mut buffer)?;
            for answer in split_received(&buffer).filter(|answer| answer.sequence == self.sequence) {
                is_interrupted |= answer.flags & FLAG_INTERRUPTED != 0;
                match answer.kind {
                    MESSAGE_DONE => return Ok((found, is_interrupted)),
                    MESSAGE_ERROR => return answer.check_error().map(|()| (found, is_interrupted)),
                    _ => found.extend(answer.attributes().map(|it| (answer.address_family(), it.to_vec()))),
                }
            }
        }
    }

    fn receive_datagram(&self, buffer: &mut Vec<u8>) -> io::Result<()> {
        buffer.clear();
        retry_interrupted(|| self.socket.recv(buffer, 0)).map(drop)
    }
}

/// Returns the values of attributes of these kinds, one after another.
fn pick_attributes(attributes: &[u8], kinds: &[u16]) -> Vec<u8> {
    kinds.iter().flat_map(|kind| find_attribute(attributes, *kind).unwrap_or_default()).copied().collect()
}

/// Socket for the kernel's events about changes of the ruleset.
#[derive(Debug)]
pub(super) struct EventSocket {
    socket: AsyncFd<Socket>,
    /// Receive buffer. It is not allocated for each poll, because the platform polls the socket often.
    receive_buffer: Vec<u8>,
}

impl EventSocket {
    pub(super) fn open() -> io::Result<EventSocket> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.set_non_blocking(true)?;
        socket.add_membership(GROUP_RULESET_CHANGES)?;
        Ok(EventSocket {
            socket: watch_readable(socket)?,
            receive_buffer: Vec::with_capacity(RECEIVE_BUFFER_SIZE),
        })
    }

    /// Reads all events and registers a wake-up for more. Returns whether any events had arrived.
    pub(super) fn poll_changes(&mut self, cx: &mut Context<'_>) -> bool {
        let mut has_changed = false;
        while let Poll::Ready(Ok(mut guard)) = self.socket.poll_read_ready(cx) {
            loop {
                self.receive_buffer.clear();
                match guard.get_inner().recv(&mut self.receive_buffer, 0) {
                    Ok(_) => has_changed = true,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // The kernel has dropped events, so assume that the ruleset has changed.
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
