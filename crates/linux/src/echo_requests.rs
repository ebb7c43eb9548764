//! Tests whether neighbours answer ICMPv6 Echo Requests (RFC 4443 4.1, 4.2), which every node answers.
//!
//! A reply must come from one of the neighbours. It must have the random data of this socket and the sequence
//! number of one of the [`ACCEPTED_LATEST_REQUESTS`] requests. So an attacker who does not see the requests
//! cannot answer for a neighbour. The socket needs `CAP_NET_RAW`. The kernel computes and checks the ICMPv6
//! checksums.
//!
//! Neighbor Discovery alone would not suffice: the kernel checks a neighbour only while it sends packets to
//! this neighbour. The requests are such packets.

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;

use carnet_wire::icmpv6::message_type;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{SockaddrIn6, recvfrom};
use socket2::{Domain, Protocol, SockFilter, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::async_descriptor::watch_readable;
use crate::clock::random_octets;
use crate::error::{Error, Result};

/// Octets of data in a request.
const REQUEST_DATA_LENGTH: usize = 16;
/// Octets of type, code, checksum, identifier and sequence number.
const ECHO_HEADER_LENGTH: usize = 8;
/// Number of the latest requests whose replies count. carnet ignores replies to earlier requests.
const ACCEPTED_LATEST_REQUESTS: u16 = 8;

/// A neighbour to which carnet sends Echo Requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbedNeighbour {
    /// Address of the neighbour.
    pub address: Ipv6Addr,
    /// Name of the interface, if the address is link-local.
    pub interface: Option<String>,
}

/// A socket that sends Echo Requests to all neighbours and receives their replies.
#[derive(Debug)]
pub struct EchoRequests {
    neighbours: Vec<ProbedNeighbour>,
    socket: AsyncFd<socket2::Socket>,
    echo_identifier: [u8; 2],
    echo_data: [u8; REQUEST_DATA_LENGTH],
    /// Sequence number of the latest request to each neighbour.
    latest_sequence_number: u16,
}

impl EchoRequests {
    /// Opens a socket for Echo Requests to these neighbours, in the network namespace of the calling thread.
    /// This thread must belong to a tokio runtime.
    ///
    /// # Errors
    ///
    /// Fails if the kernel creates no such socket.
    pub fn open(neighbours: Vec<ProbedNeighbour>) -> Result<EchoRequests> {
        let failed = |error: io::Error| {
            Error::from_kernel_refusal("open a socket for ICMPv6 Echo (needs CAP_NET_RAW)", error)
        };
        let identifier = random_octets::<2>().map_err(failed)?;
        let socket = socket2::Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6)).map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        socket.attach_filter(&echo_reply_filter(identifier)).map_err(failed)?;
        Ok(EchoRequests {
            neighbours,
            socket: watch_readable(socket).map_err(failed)?,
            echo_identifier: identifier,
            echo_data: random_octets().map_err(failed)?,
            latest_sequence_number: 0,
        })
    }

    /// Sends an Echo Request to each neighbour. If the kernel refuses a request, this neighbour will not
    /// reply; the function reports no error.
    pub fn send_requests(&mut self) {
        self.latest_sequence_number = self.latest_sequence_number.wrapping_add(1);
        let mut request = [0; ECHO_HEADER_LENGTH + REQUEST_DATA_LENGTH];
        request[0] = message_type::ECHO_REQUEST;
        request[4..6].copy_from_slice(&self.echo_identifier);
        request[6..8].copy_from_slice(&self.latest_sequence_number.to_be_bytes());
        request[ECHO_HEADER_LENGTH..].copy_from_slice(&self.echo_data);
        for neighbour in &self.neighbours {
            // Look up the index each time: an interface that was deleted and created again has another index.
            let index = match &neighbour.interface {
                None => Some(0),
                Some(name) => if_nametoindex(name.as_str()).ok(),
            };
            if let Some(index) = index {
                let to = SocketAddrV6::new(neighbour.address, 0, 0, index);
                let _ = self.socket.get_ref().send_to(&request, &to.into());
            }
        }
    }

    /// Waits for a reply to one of the latest requests. Safe to cancel.
    ///
    /// # Errors
    /// Fails if the socket fails.
    pub async fn wait_for_reply(&self) -> io::Result<()> {
        let mut message = [0; ECHO_HEADER_LENGTH + REQUEST_DATA_LENGTH + 1];
        loop {
            let read = self.socket.async_io(Interest::READABLE, |socket| {
                // The buffer is one octet longer than a valid reply, so that a longer message does not look
                // like one.
                let (length, from) = recvfrom::<SockaddrIn6>(socket.as_raw_fd(), &mut message)?;
                Ok((length, from.map(|from| from.ip())))
            });
            match read.await {
                Ok((length, Some(from))) => {
                    if message.get(..length).is_some_and(|message| self.is_expected_reply(from, message)) {
                        return Ok(());
                    }
                }
                Ok((_, None)) => {}
                // Ignore an ICMPv6 error about a request and keep waiting, because the error is no reply of
                // the neighbour.
                Err(error) if reports_undelivered_request(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn is_expected_reply(&self, from: Ipv6Addr, message: &[u8]) -> bool {
        let Some((&[kind, code, _, _, a, b, c, d], data)) = message.split_first_chunk::<ECHO_HEADER_LENGTH>()
        else {
            return false;
        };
        (kind, code) == (message_type::ECHO_REPLY, 0)
            && [a, b] == self.echo_identifier
            && self.latest_sequence_number.wrapping_sub(u16::from_be_bytes([c, d])) < ACCEPTED_LATEST_REQUESTS
            && data == self.echo_data
            && self.neighbours.iter().any(|neighbour| neighbour.address == from)
    }
}

fn reports_undelivered_request(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::ECONNREFUSED
                | libc::EACCES
                | libc::EPROTO
                | libc::EMSGSIZE
        )
    )
}

/// Returns a socket filter that accepts only Echo Replies with this identifier. Other packets do not wake the
/// program.
fn echo_reply_filter(identifier: [u8; 2]) -> [SockFilter; 6] {
    const BPF_LOAD_OCTET: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
    const BPF_LOAD_HALF_WORD: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const BPF_JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const BPF_RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    [
        SockFilter::new(BPF_LOAD_OCTET, 0, 0, 0),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 0, 3, u32::from(message_type::ECHO_REPLY)),
        SockFilter::new(BPF_LOAD_HALF_WORD, 0, 0, 4),
        SockFilter::new(BPF_JUMP_IF_EQUAL, 0, 1, u32::from(u16::from_be_bytes(identifier))),
        SockFilter::new(BPF_RETURN, 0, 0, u32::MAX),
        SockFilter::new(BPF_RETURN, 0, 0, 0),
    ]
}
