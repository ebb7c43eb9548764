//! Tests the probe for captive portals against hostile web servers, over the loopback interface.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use carnet_linux::ProbeTarget;
use carnet_station::io::PortalProbe;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Starts a server for one request, and returns the target of that request.
fn serve_once<T: Send + 'static>(
    serve: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> (ProbeTarget, JoinHandle<T>) {
    let listener = TcpListener::bind((LOOPBACK, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let target = ProbeTarget { address, url_authority: address.to_string(), path: "/generate_204".into() };
    let running = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut request = [0; 1024];
        let length = stream.read(&mut request).expect("a request");
        assert!(request[..length].starts_with(b"GET /generate_204 HTTP/1.1\r\n"));
        serve(stream)
    });
    (target, running)
}

/// Returns the probe's result if the server sends this answer and then closes the connection.
async fn probe_server_with_answer(answer: Vec<u8>) -> PortalProbe {
    let (target, running) = serve_once(move |mut stream| stream.write_all(&answer).expect("an answer"));
    let found = target.request_probe("lo", &[LOOPBACK]).await;
    running.join().expect("it has answered");
    found
}

#[tokio::test]
async fn endless_http_header_is_not_read_to_its_end() {
    for line in ["X: 1\r\n".to_owned(), "x".repeat(1 << 16)] {
        let (target, running) = serve_once(move |mut stream| {
            stream.write_all(b"HTTP/1.1 302 Found\r\n").expect("a first line");
            // The probe closes the connection before it has read everything, so a write fails at some point.
            while stream.write_all(line.as_bytes()).is_ok() {}
        });
        let own = PortalProbe::Redirected(format!("http://{}/generate_204", target.url_authority));
        assert_eq!(target.request_probe("lo", &[LOOPBACK]).await, own);
        running.join().expect("the connection has ended");
    }
}

#[tokio::test]
async fn portal_redirection_is_reported_and_not_followed() {
    let here = TcpListener::bind((LOOPBACK, 0)).expect("a port");
    let url = format!("http://{}/shutdown", here.local_addr().expect("an address"));
    let answer = format!("HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(probe_server_with_answer(answer.into_bytes()).await, PortalProbe::Redirected(url));
    here.set_nonblocking(true).expect("a socket");
    assert_eq!(here.accept().expect_err("no connection").kind(), ErrorKind::WouldBlock);
}

#[tokio::test]
async fn unusable_http_answer_counts_as_no_answer() {
    let octets: Vec<u8> = (0..=255).cycle().take(2048).collect();
    for answer in [&b""[..], b"\r\n\r\n", b"HTTP/1.1 2", b"HTTP/1.1 100 Continue\r\n\r\n", &octets] {
        assert_eq!(probe_server_with_answer(answer.to_vec()).await, PortalProbe::Unanswered);
    }
    let (mut target, running) = serve_once(|_| ());
    assert_eq!(target.request_probe("no such", &[LOOPBACK]).await, PortalProbe::Unanswered);
    assert_eq!(target.request_probe("lo", &[LOOPBACK]).await, PortalProbe::Unanswered);
    running.join().expect("it has closed the connection");
    // The server has ended, so no program listens at this port.
    assert_eq!(target.request_probe("lo", &[LOOPBACK]).await, PortalProbe::Unanswered);
    target.address.set_ip("::1".parse().expect("an address"));
    assert_eq!(target.request_probe("lo", &[LOOPBACK]).await, PortalProbe::Unanswered);
}
