//! Sends requests to rtnetlink, and receives its events.
//!
//! [`NetlinkRequests`] is a blocking socket. The kernel answers each request before the call returns, so
//! asynchronous waiting would gain nothing. A change of the forwarding state is in force when the call
//! returns. [`NetlinkMonitor`] is a second, non-blocking socket that receives events. Each submodule handles
//! one kind of object and translates between the kernel's messages and plain structures. Only this module and
//! its submodules use the packet crates, because the interface of these crates changes every few months.
//!
//! The kernel filters dumps if it can (`NETLINK_GET_STRICT_CHK`, Linux 4.20), and this module filters them in
//! any case.

mod addresses;
mod channel;
mod events;
mod filters;
mod ipv4_state;
mod ipv4_tables;
mod links;
mod message;
mod monitor;
mod neighbours;
mod next_hops;
mod octets_at;
mod own_routes;
mod queueing_disciplines;
mod referred_objects;
mod routes;
mod routing_fields;
mod rule_lookups;
mod rules;
mod solicited_node_groups;

use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::RouteMessage;

pub(crate) use addresses::AddressInfo;
pub(crate) use channel::NetlinkChannel;
pub(crate) use events::{
    FrameDeviceWatcher, GROUP_IPV6_ADDRESSES, GROUP_LINKS, KernelEvents, usable_addresses,
};
pub(crate) use ipv4_state::{Ipv4AddressInfo, Ipv4DefaultRoute};
pub(crate) use ipv4_tables::Ipv4RouteInfo;

pub(crate) use rule_lookups::{TableLookup, prefix_intersection, table_lookups};

pub(crate) use links::{IPV6_MINIMUM_MTU, LinkInfo, NewIp6Tunnel};
pub(crate) use monitor::{ChangedParts, NetlinkChanges, NetlinkMonitor};
#[cfg(test)]
pub(crate) use routes::NextHop;
pub(crate) use routes::{RouteInfo, effective_metric};
pub(crate) use routing_fields::{
    MAX_UPPER_HALVES_OF_LONG_PREFIXES, RoutingFields, use_only_interface_and_destination,
};
pub(crate) use rules::{KernelRuleAction, RuleInfo, is_ipv4 as is_ipv4_rule};

use crate::error::{Error, Result};
use addresses::AddressRequests;
use channel::KernelNetlinkSocket;
use filters::FilterRequests;
use ipv4_state::Ipv4StateRequests;
use ipv4_tables::Ipv4TableRequests;
use links::LinkRequests;
use message::RtnetlinkMessage;
use neighbours::NeighbourRequests;
use queueing_disciplines::QueueingDisciplineRequests;
use routes::RouteRequests;
use rules::RuleRequests;

/// Number of attempts to read a list that changes while the kernel sends it.
const DUMP_ATTEMPTS: usize = 8;

/// Size of the receive buffer in octets: the minimum that `netlink(7)` recommends. A dump's datagram is never
/// longer.
const RECEIVE_BUFFER_SIZE: usize = 32 * 1024;

/// A socket for requests to the kernel. It carries requests and answers. For each kind of object it returns a
/// view whose methods make the requests, for example [`NetlinkRequests::route_requests`].
pub(crate) struct NetlinkRequests {
    netlink_channel: Box<dyn NetlinkChannel>,
    sequence: u32,
    receive_buffer: Vec<u8>,
    /// Number of requests that only read.
    pub(crate) read_requests: u64,
    /// Number of requests that change, or try to change, the kernel's state.
    pub(crate) write_requests: u64,
    /// Number of answers that carnet could not parse.
    pub(crate) unparsed_answers: u64,
}

impl std::fmt::Debug for NetlinkRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").field("port", &self.port_id()).finish_non_exhaustive()
    }
}

/// Treats these errors as success, because they say that the kernel already has the requested state.
fn ignore_errors(result: Result<()>, errors: &[i32]) -> Result<()> {
    match result {
        Err(error) if error.raw_os_error().is_some_and(|number| errors.contains(&number)) => Ok(()),
        other => other,
    }
}

impl NetlinkRequests {
    /// Opens the socket in the network namespace of the calling thread.
    pub(crate) fn open() -> Result<NetlinkRequests> {
        let socket = KernelNetlinkSocket::open()
            .map_err(|e| Error::from_kernel_refusal("open a netlink socket", e))?;
        Ok(NetlinkRequests::over_channel(Box::new(socket)))
    }

    /// Creates requests over another channel than a socket, for example to a simulated kernel.
    pub(crate) fn over_channel(channel: Box<dyn NetlinkChannel>) -> NetlinkRequests {
        let buffer = Vec::with_capacity(RECEIVE_BUFFER_SIZE);
        NetlinkRequests {
            netlink_channel: channel,
            sequence: 0,
            receive_buffer: buffer,
            read_requests: 0,
            write_requests: 0,
            unparsed_answers: 0,
        }
    }

    /// Returns the socket's port. Events about changes by this socket carry the port.
    pub(crate) fn port_id(&self) -> u32 {
        self.netlink_channel.port_id()
    }

    /// Returns whether the kernel stores the mark of an address that [`AddressInfo::is_own_address`] reads.
    pub(crate) fn kernel_stores_address_protocol(&self) -> bool {
        self.netlink_channel.kernel_stores_address_protocol()
    }

    /// Returns the requests about network interfaces.
    pub(crate) fn link_requests(&mut self) -> LinkRequests<'_> {
        LinkRequests(self)
    }

    /// Returns the requests about IPv6 addresses of interfaces.
    pub(crate) fn address_requests(&mut self) -> AddressRequests<'_> {
        AddressRequests(self)
    }

    /// Returns the requests about IPv6 routes.
    pub(crate) fn route_requests(&mut self) -> RouteRequests<'_> {
        RouteRequests(self)
    }

    /// Returns the requests about IPv6 policy routing rules.
    pub(crate) fn rule_requests(&mut self) -> RuleRequests<'_> {
        RuleRequests(self)
    }

    /// Returns the requests about neighbours.
    pub(crate) fn neighbour_requests(&mut self) -> NeighbourRequests<'_> {
        NeighbourRequests(self)
    }

    /// Returns the requests about tc filters.
    pub(crate) fn filter_requests(&mut self) -> FilterRequests<'_> {
        FilterRequests(self)
    }

    /// Returns the requests about queueing disciplines.
    pub(crate) fn queueing_discipline_requests(&mut self) -> QueueingDisciplineRequests<'_> {
        QueueingDisciplineRequests(self)
    }

    /// Returns the requests about the IPv4 addresses and routes of other programs.
    pub(crate) fn ipv4_requests(&mut self) -> Ipv4StateRequests<'_> {
        Ipv4StateRequests(self)
    }

    /// Returns the requests about carnet's own IPv4 routes and rules.
    pub(crate) fn ipv4_table_requests(&mut self) -> Ipv4TableRequests<'_> {
        Ipv4TableRequests(self)
    }

    /// Sends a request that changes the kernel's state, and waits for its acknowledgement.
    fn request_change(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        operation: impl Fn() -> String,
    ) -> Result<()> {
        self.write_requests += 1;
        self.exchange_request(
            &mut encode_request(RtnetlinkMessage::Route(message), NLM_F_REQUEST | NLM_F_ACK | flags),
            &operation,
        )
        .map(|_| ())
    }

    /// Requests one object and returns the kernel's answers.
    fn request_object(
        &mut self,
        message: RouteNetlinkMessage,
        operation: impl Fn() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        self.read_requests += 1;
        let mut request = encode_request(RtnetlinkMessage::Route(message), NLM_F_REQUEST | NLM_F_ACK);
        self.exchange_request(&mut request, &operation).map(|(answers, _)| route_messages_of(answers))
    }

    /// Requests all objects of a kind. Sends the request again if the list changed while the kernel sent it.
    fn dump_objects(
        &mut self,
        message: RouteNetlinkMessage,
        operation: impl Fn() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        let request = encode_request(RtnetlinkMessage::Route(message), NLM_F_REQUEST | NLM_F_DUMP);
        self.dump_encoded(request, operation).map(route_messages_of)
    }

    /// Requests the routes that `question` selects. Returns an empty list if the table does not exist.
    fn dump_routes(
        &mut self,
        question: RouteMessage,
        operation: impl Fn() -> String,
    ) -> Result<Vec<RouteNetlinkMessage>> {
        match self.dump_objects(RouteNetlinkMessage::GetRoute(question), operation) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
            other => other,
        }
    }

    /// Requests all objects of a kind. Sends the request again if the list changed while the kernel sent it.
    fn dump_encoded(
        &mut self,
        mut request: Vec<u8>,
        operation: impl Fn() -> String,
    ) -> Result<Vec<RtnetlinkMessage>> {
        for _ in 1..DUMP_ATTEMPTS {
            self.read_requests += 1;
            let (answers, interrupted) = self.exchange_request(&mut request, &operation)?;
            if !interrupted {
                return Ok(answers);
            }
        }
        self.read_requests += 1;
        // The list has changed during the last attempt, too. Use the inconsistent list: an event will follow,
        // and carnet then reads the list again.
        self.exchange_request(&mut request, &operation).map(|(answers, _)| answers)
    }

    /// Sends one request and returns all of its answers, and whether the kernel marked them as inconsistent.
    fn exchange_request(
        &mut self,
        request: &mut [u8],
        operation: &dyn Fn() -> String,
    ) -> Result<(Vec<RtnetlinkMessage>, bool)> {
        self.sequence = self.sequence.wrapping_add(1);
        NetlinkBuffer::new(&mut *request).set_sequence_number(self.sequence);
        retry_interrupted(|| self.netlink_channel.send(request))
            .map_err(|e| Error::from_kernel_refusal(operation(), e))?;

        let mut answers = Vec::new();
        let mut interrupted = false;
        loop {
            self.receive_buffer.clear();
            retry_interrupted(|| self.netlink_channel.receive(&mut self.receive_buffer))
                .map_err(|e| Error::from_kernel_refusal(operation(), e))?;
            let mut rest = self.receive_buffer.as_slice();
            while !rest.is_empty() {
                let (this, next) = split_first_message(rest).ok_or_else(|| Error::Protocol {
                    operation: operation(),
                    detail: format!("{} octets that are no netlink message", rest.len()),
                })?;
                rest = next;
                let buffer = NetlinkBuffer::new(this);
                if buffer.sequence_number() != self.sequence {
                    continue; // A message of an earlier request whose answer was abandoned.
                }
                interrupted |= buffer.flags() & NLM_F_DUMP_INTR != 0;
                match NetlinkMessage::<RtnetlinkMessage>::deserialize(this).map(|m| m.payload) {
                    Ok(NetlinkPayload::InnerMessage(answer)) => answers.push(answer),
                    Ok(NetlinkPayload::Error(error)) if error.code.is_none() => {
                        return Ok((answers, interrupted));
                    }
                    Ok(NetlinkPayload::Error(error)) => {
                        return Err(Error::Kernel {
                            operation: operation(),
                            detail: kernel_explanation(&error.header),
                            answer: error.to_io(),
                        });
                    }
                    Ok(NetlinkPayload::Done(done)) if done.code < 0 => {
                        return Err(Error::from_kernel_refusal(
                            operation(),
                            io::Error::from_raw_os_error(-done.code),
                        ));
                    }
                    Ok(NetlinkPayload::Done(_)) => return Ok((answers, interrupted)),
                    Ok(_) => {}
                    Err(error) => {
                        self.unparsed_answers += 1;
                        tracing::debug!(%error, "skipped a netlink message that cannot be decoded");
                    }
                }
            }
        }
    }
}

/// Returns the rtnetlink messages out of decoded answers; it omits ends and acknowledgements.
fn route_messages_of(answers: Vec<RtnetlinkMessage>) -> Vec<RouteNetlinkMessage> {
    let known = answers.into_iter().filter_map(|answer| match answer {
        RtnetlinkMessage::Route(message) => Some(message),
        _ => None,
    });
    known.collect()
}

/// Returns a request in its wire format, without its sequence number.
fn encode_request(message: RtnetlinkMessage, flags: u16) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    request.finalize();
    let mut octets = vec![0; request.buffer_len()];
    request.serialize(&mut octets);
    octets
}

/// Repeats a system call that a signal interrupted.
pub(crate) fn retry_interrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Returns the first netlink message and the octets after it. `None` if the length in its header is invalid.
fn split_first_message(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32::from_ne_bytes(octets.get(..4)?.try_into().ok()?) as usize;
    if length < 16 {
        return None;
    }
    let this = octets.get(..length)?;
    Some((this, octets.get(length.next_multiple_of(4)..).unwrap_or_default()))
}

/// Returns the kernel's explanation of an error (`NLMSGERR_ATTR_MSG`) with a leading colon, or an empty text.
///
/// In an error message, the error code is followed by the request's header without its payload
/// (`NETLINK_CAP_ACK`), and then by the attributes.
fn kernel_explanation(octets: &[u8]) -> String {
    const NLMSGERR_ATTR_MSG: u16 = 1;
    const NETLINK_HEADER_LENGTH: usize = 16;
    let attributes = NlasIterator::new(octets.get(NETLINK_HEADER_LENGTH..).unwrap_or_default());
    attributes
        .map_while(|a| a.ok())
        .find(|a| a.kind() == NLMSGERR_ATTR_MSG)
        .map(|a| format!(": {}", String::from_utf8_lossy(a.value()).trim_end_matches('\0')))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagram_is_split_into_messages_and_invalid_ones_are_refused() {
        let mut octets = 17u32.to_ne_bytes().to_vec();
        octets.resize(20, 0);
        octets.extend(16u32.to_ne_bytes());
        octets.resize(36, 0);
        let (first, rest) = split_first_message(&octets).expect("first");
        assert_eq!((first.len(), rest.len()), (17, 16));
        let (second, rest) = split_first_message(rest).expect("second");
        assert_eq!((second.len(), rest.len()), (16, 0));
        assert!(split_first_message(&15u32.to_ne_bytes()).is_none());
        assert!(split_first_message(&[0; 3]).is_none());
        assert!(split_first_message(&99u32.to_ne_bytes()).is_none());
    }

    #[test]
    fn extended_error_text_of_kernel_is_found() {
        let mut octets = vec![0; 16];
        octets.extend([10, 0, 1, 0]);
        octets.extend(b"why?!\0\0\0");
        assert_eq!(kernel_explanation(&octets), ": why?!");
        assert_eq!(kernel_explanation(&[]), "");
        assert_eq!(kernel_explanation(&octets[..17]), "");
    }
}
