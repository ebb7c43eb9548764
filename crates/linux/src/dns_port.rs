//! Sockets of a DNS forwarder. Hosts on board send their queries to sockets on the interfaces of the mobile
//! network. The forwarder opens a new socket for each query to a server.
//!
//! The sockets for hosts are bound to an interface and one of its addresses, so that no other network reaches
//! the forwarder. The socket of a query to a server has a port that the kernel chooses at random. This socket
//! is connected to the server, so the kernel drops packets of other senders. The caller chooses its source
//! address, and with it the path: through the tunnel, or past it by an uplink.
//!
//! The tasks of this module only read and write messages, and the caller decides about them. The tasks pass
//! messages to the caller over a bounded channel.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// Port of DNS.
const DNS_PORT: u16 = 53;
/// Length in octets of the longest datagram that the module reads.
const MAX_DATAGRAM_LENGTH: usize = 4096;
/// Maximum number of TCP connections of hosts to one address of the forwarder.
const MAX_CONNECTIONS_PER_ADDRESS: usize = 32;
/// Time after which the forwarder closes an idle connection.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of answers that may wait for one TCP connection.
const MAX_WAITING_ANSWERS: usize = 16;
/// Longest time for which the module waits for a server's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after an error of a socket for hosts.
const PAUSE_AFTER_SOCKET_ERROR: Duration = Duration::from_millis(100);

/// A message that the tasks of this module pass to the caller.
#[derive(Debug)]
pub enum DnsMessage {
    /// A query of a host.
    Query {
        /// Address of the host.
        host: IpAddr,
        /// Interface at which the host is.
        interface: Arc<str>,
        /// Socket or connection over which the answer returns to the host.
        back: DnsReply,
        /// The query, a DNS message.
        octets: Vec<u8>,
    },
    /// Result of a query to a server.
    Answer {
        /// Number by which the caller recognises its query.
        query: u64,
        /// Address of the server.
        server: IpAddr,
        /// The answer; `None` if the server cannot be reached.
        octets: Option<Vec<u8>>,
    },
}

/// Socket or connection over which an answer returns to the host that sent the query.
#[derive(Debug, Clone)]
pub enum DnsReply {
    /// The socket that received the query as a datagram, and the address of the host.
    Datagram(Arc<UdpSocket>, SocketAddr),
    /// The TCP connection that the query arrived over.
    Connection(mpsc::Sender<Vec<u8>>),
}

impl DnsReply {
    /// Returns whether the answer goes over a TCP connection.
    pub fn is_connection(&self) -> bool {
        matches!(self, DnsReply::Connection(_))
    }

    /// Sends an answer. Drops the answer if the socket or the connection has no room for it: the host then
    /// asks again.
    pub fn send_answer(&self, octets: Vec<u8>) {
        match self {
            DnsReply::Datagram(socket, host) => {
                let _ = socket.try_send_to(&octets, *host);
            }
            DnsReply::Connection(answers) => {
                let _ = answers.try_send(octets);
            }
        }
    }
}

/// Sockets at one address of an interface. Dropping the value closes them and ends all connections.
#[derive(Debug)]
pub struct DnsPort {
    /// Tasks of the sockets. They end when this value is dropped.
    _tasks: JoinSet<()>,
}

impl DnsPort {
    /// Opens the sockets, and passes queries to `queries`.
    ///
    /// # Errors
    /// Fails if the interface does not have the address, if another program has the port, or if this process
    /// may not bind it.
    pub fn open(interface: &str, address: IpAddr, queries: &mpsc::Sender<DnsMessage>) -> io::Result<DnsPort> {
        let open = |kind: Type, protocol: Protocol| -> io::Result<Socket> {
            let at = SocketAddr::new(address, DNS_PORT);
            let socket = Socket::new(Domain::for_address(at), kind, Some(protocol))?;
            socket.set_nonblocking(true)?;
            socket.bind_device(Some(interface.as_bytes()))?;
            // Allow the port to be used again: otherwise TCP connections that an earlier run has closed
            // (TIME_WAIT) would block it.
            if kind == Type::STREAM {
                socket.set_reuse_address(true)?;
            }
            socket.bind(&at.into())?;
            Ok(socket)
        };
        let datagrams = UdpSocket::from_std(open(Type::DGRAM, Protocol::UDP)?.into())?;
        let listener = open(Type::STREAM, Protocol::TCP)?;
        listener.listen(MAX_CONNECTIONS_PER_ADDRESS as i32)?;
        let listener = TcpListener::from_std(listener.into())?;
        let mut tasks = JoinSet::new();
        let interface: Arc<str> = interface.into();
        tasks.spawn(receive_datagrams(Arc::new(datagrams), Arc::clone(&interface), queries.clone()));
        tasks.spawn(accept_connections(listener, interface, queries.clone()));
        Ok(DnsPort { _tasks: tasks })
    }
}

/// Receives datagrams. Drops a query if the channel to the station is full.
async fn receive_datagrams(socket: Arc<UdpSocket>, interface: Arc<str>, queries: mpsc::Sender<DnsMessage>) {
    let mut buffer = vec![0; MAX_DATAGRAM_LENGTH];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((length, host)) => {
                let back = DnsReply::Datagram(Arc::clone(&socket), host);
                let octets = buffer.get(..length).unwrap_or_default().to_vec();
                let (host, interface) = (host.ip(), Arc::clone(&interface));
                let _ = queries.try_send(DnsMessage::Query { host, interface, back, octets });
            }
            Err(_) => sleep(PAUSE_AFTER_SOCKET_ERROR).await,
        }
    }
}

/// Accepts connections, at most [`MAX_CONNECTIONS_PER_ADDRESS`] at once.
async fn accept_connections(listener: TcpListener, interface: Arc<str>, queries: mpsc::Sender<DnsMessage>) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS_PER_ADDRESS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, host)) => {
                let (interface, queries) = (Arc::clone(&interface), queries.clone());
                connections.spawn(async move {
                    serve_connection(stream, (host.ip(), interface), &queries).await;
                    drop(place);
                });
            }
            Err(_) => sleep(PAUSE_AFTER_SOCKET_ERROR).await,
        }
    }
}

/// Reads queries from a connection, and writes the answers (RFC 7766), until the host closes or is idle.
async fn serve_connection(
    stream: TcpStream,
    (host, interface): (IpAddr, Arc<str>),
    queries: &mpsc::Sender<DnsMessage>,
) {
    let (mut input, mut output) = stream.into_split();
    let (answers, mut waiting) = mpsc::channel::<Vec<u8>>(MAX_WAITING_ANSWERS);
    let write = async {
        while let Some(answer) = waiting.recv().await {
            if !matches!(
                timeout(IDLE_CONNECTION_TIMEOUT, output.write_all(&prepend_length(&answer))).await,
                Ok(Ok(()))
            ) {
                return;
            }
        }
    };
    let read = async {
        while let Ok(Ok(octets)) = timeout(IDLE_CONNECTION_TIMEOUT, read_message(&mut input)).await {
            let back = DnsReply::Connection(answers.clone());
            let interface = Arc::clone(&interface);
            if queries.send(DnsMessage::Query { host, interface, back, octets }).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = write => {}
        () = read => {}
    }
}

/// Reads a DNS message from a TCP connection: its length in two octets, then the message (RFC 1035 4.2.2).
async fn read_message(input: &mut (impl AsyncReadExt + Unpin)) -> io::Result<Vec<u8>> {
    let length = input.read_u16().await?;
    let mut octets = vec![0; length.into()];
    input.read_exact(&mut octets).await?;
    Ok(octets)
}

/// Returns a DNS message with its length in two octets before it, for a TCP connection.
fn prepend_length(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes()[..], message.get(..length.into()).unwrap_or_default()].concat()
}

/// Sends a query to a DNS server and passes the answer to `answers`. `source` is the address on board from
/// which the query leaves. With the returned handle, the caller can abort the query.
pub fn query_server(
    query: u64,
    (source, server): (IpAddr, IpAddr),
    over_connection: bool,
    octets: Vec<u8>,
    answers: mpsc::Sender<DnsMessage>,
) -> AbortHandle {
    let task = tokio::spawn(async move {
        let (from, to) = (SocketAddr::new(source, 0), SocketAddr::new(server, DNS_PORT));
        let asked = async {
            if over_connection {
                let answer = query_over_tcp(from, to, &octets).await?;
                let _ = answers.send(DnsMessage::Answer { query, server, octets: Some(answer) }).await;
                return Ok(());
            }
            query_by_udp(from, to, &octets, |answer| {
                let message = DnsMessage::Answer { query, server, octets: Some(answer) };
                answers.try_send(message).is_ok()
            })
            .await
        };
        if let Ok(Err(error)) = timeout(ANSWER_TIMEOUT, asked).await {
            tracing::debug!("the DNS server {server} cannot be reached: {error}");
            let _ = answers.send(DnsMessage::Answer { query, server, octets: None }).await;
        }
    });
    task.abort_handle()
}

/// Sends a query in a datagram. Passes every datagram that comes back to `take`, because the first datagram
/// may be forged. If the ID of a datagram is not the query's, `take` gets an empty answer. So an attacker
/// cannot use the ID of one attempt at the port of another attempt (RFC 5452 9.1).
async fn query_by_udp(
    from: SocketAddr,
    to: SocketAddr,
    octets: &[u8],
    mut take: impl FnMut(Vec<u8>) -> bool,
) -> io::Result<()> {
    let socket = UdpSocket::bind(from).await?;
    socket.connect(to).await?;
    socket.send(octets).await?;
    let mut buffer = vec![0; MAX_DATAGRAM_LENGTH];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let answer = buffer.get(..length).unwrap_or_default();
        let has_id = answer.get(..2) == octets.get(..2);
        take(if has_id { answer.to_vec() } else { Vec::new() });
    }
}

async fn query_over_tcp(from: SocketAddr, to: SocketAddr, octets: &[u8]) -> io::Result<Vec<u8>> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(from)?;
    let mut stream = socket.connect(to).await?;
    stream.write_all(&prepend_length(octets)).await?;
    read_message(&mut stream).await
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[tokio::test]
    async fn datagram_with_wrong_query_id_is_reported_without_its_octets() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a socket");
        let to = server.local_addr().expect("an address");
        let (sender, mut answers) = mpsc::channel(4);
        tokio::spawn(async move {
            let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            query_by_udp(from, to, b"\x12\x34query", |answer| sender.try_send(answer).is_ok()).await
        });
        let mut buffer = [0; 16];
        let (_, asker) = server.recv_from(&mut buffer).await.expect("a query");
        for answer in [&b"\x12\x35forged"[..], b"\x12", b"\x12\x34answer"] {
            server.send_to(answer, asker).await.expect("sent");
        }
        assert_eq!(answers.recv().await, Some(Vec::new()));
        assert_eq!(answers.recv().await, Some(Vec::new()));
        assert_eq!(answers.recv().await, Some(b"\x12\x34answer".to_vec()));
    }
}
