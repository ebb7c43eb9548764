//! Sends one plain HTTP request over an uplink, to find out whether a captive portal answers in place of the
//! server (RFC 8952).
//!
//! The server answers with status 204 without a body. A portal answers with a redirection, with status 511
//! (RFC 6585 6) or with its own page. Other errors are inconclusive, because the server itself may have
//! caused them.
//!
//! The socket is bound to the uplink's interface and care-of address. The configured URL has an address and
//! no name. The system's resolver would resolve a name over any uplink, and could delay the station. The
//! module reads only the first octets of the answer, and follows no redirection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use carnet_station::io::PortalProbe;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::timeout;

/// Longest time for the whole probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of octets of the answer that the module reads.
const MAX_ANSWER_LENGTH: usize = 4096;
/// Maximum length in octets of a reported URL, as in the option of RFC 8910.
const MAX_URL_LENGTH: usize = 255;

/// Destination of the HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeTarget {
    /// Address of the server.
    pub address: SocketAddr,
    /// Authority of the URL, for the Host field.
    pub url_authority: String,
    /// Path of the URL, beginning with `/`.
    pub path: String,
}

impl ProbeTarget {
    /// Sends the request over an interface, from the first of `sources` that has the server's address family.
    pub async fn request_probe(&self, interface: &str, sources: &[IpAddr]) -> PortalProbe {
        match timeout(PROBE_TIMEOUT, self.exchange_http(interface, sources)).await {
            Ok(Ok(answer)) => self.judge_answer(&answer),
            Ok(Err(error)) => {
                tracing::debug!("cannot test whether {interface} is behind a captive portal: {error}");
                PortalProbe::Unanswered
            }
            Err(_) => PortalProbe::Unanswered,
        }
    }

    /// Sends the HTTP request, and returns the beginning of the answer.
    async fn exchange_http(&self, interface: &str, sources: &[IpAddr]) -> io::Result<Vec<u8>> {
        let socket = Socket::new(Domain::for_address(self.address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.bind_device(Some(interface.as_bytes()))?;
        if let Some(source) = sources.iter().find(|source| source.is_ipv4() == self.address.is_ipv4()) {
            socket.bind(&SocketAddr::new(*source, 0).into())?;
        }
        let mut stream = TcpSocket::from_std_stream(socket.into()).connect(self.address).await?;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: carnet\r\nAccept: */*\r\nConnection: close\r\n\r\n",
            self.path, self.url_authority
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        let mut buffer = [0; 1024];
        while answer.len() < MAX_ANSWER_LENGTH && !answer.windows(4).any(|octets| octets == b"\r\n\r\n") {
            match stream.read(&mut buffer).await? {
                0 => break,
                length => answer.extend_from_slice(&buffer[..length]),
            }
        }
        Ok(answer)
    }

    /// Decides by the answer whether a captive portal has intercepted the probe.
    fn judge_answer(&self, answer: &[u8]) -> PortalProbe {
        let mut lines = answer.split(|octet| *octet == b'\n').map(|line| line.trim_ascii_end());
        match lines.next().and_then(parse_status_code) {
            Some(204) => PortalProbe::Passed,
            Some(300..=399) => {
                let location = lines.take_while(|line| !line.is_empty()).find_map(parse_location_field);
                PortalProbe::Redirected(
                    location.and_then(|it| self.resolve_location(it)).unwrap_or_else(|| self.probe_url()),
                )
            }
            Some(200..=299 | 511) => PortalProbe::Redirected(self.probe_url()),
            _ => PortalProbe::Unanswered,
        }
    }

    /// Returns the absolute URL of a Location field; `None` if it is no plain HTTP or HTTPS URL. Cuts the
    /// query off a URL that is longer than [`MAX_URL_LENGTH`].
    fn resolve_location(&self, location: &[u8]) -> Option<String> {
        let text = std::str::from_utf8(location).ok()?;
        let absolute = match text.strip_prefix('/') {
            _ if text.starts_with("//") => format!("http:{text}"),
            Some(path) => format!("http://{}/{path}", self.url_authority),
            None if text.starts_with("http://") || text.starts_with("https://") => text.to_owned(),
            None => return None,
        };
        let short = match absolute.find(['?', '#']) {
            Some(end) if absolute.len() > MAX_URL_LENGTH => &absolute[..end],
            _ => &absolute,
        };
        let is_url = short.len() <= MAX_URL_LENGTH && short.bytes().all(|octet| octet.is_ascii_graphic());
        is_url.then(|| short.to_owned())
    }

    fn probe_url(&self) -> String {
        format!("http://{}{}", self.url_authority, self.path)
    }
}

/// Returns the status code in the first line of an HTTP answer (RFC 9112 4); `None` if the line is invalid.
fn parse_status_code(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let [_, b' ', code @ ..] = rest else { return None };
    let (code, rest) = code.split_at_checked(3)?;
    let is_code = code.iter().all(u8::is_ascii_digit) && rest.first().is_none_or(|octet| *octet == b' ');
    is_code.then(|| std::str::from_utf8(code).ok()?.parse().ok())?
}

/// Returns the value of a header line if it is a Location field, otherwise `None`.
fn parse_location_field(line: &[u8]) -> Option<&[u8]> {
    const LOCATION_FIELD: &[u8] = b"location:";
    let (name, value) = line.split_at_checked(LOCATION_FIELD.len())?;
    name.eq_ignore_ascii_case(LOCATION_FIELD).then(|| value.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe_target() -> ProbeTarget {
        let address = "192.0.2.80:8080".parse().expect("an address");
        ProbeTarget { address, url_authority: "192.0.2.80:8080".into(), path: "/generate_204".into() }
    }

    #[test]
    fn portal_probe_result_follows_http_status_and_location() {
        let own = "http://192.0.2.80:8080/generate_204";
        let long = format!("https://portal.example/{}?mac=1", "x".repeat(230));
        let redirected = |to: &str| PortalProbe::Redirected(to.into());
        for (answer, expected) in [
            ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), PortalProbe::Passed),
            ("HTTP/1.0 204\r\n\r\n".to_owned(), PortalProbe::Passed),
            (
                "HTTP/1.1 302 Found\r\nServer: x\r\nLOCATION:  https://portal.example/?a=b \r\n\r\n"
                    .to_owned(),
                redirected("https://portal.example/?a=b"),
            ),
            ("HTTP/1.1 307 T\nLocation: /terms\n\n".to_owned(), redirected("http://192.0.2.80:8080/terms")),
            (
                "HTTP/1.1 302 F\r\nLocation: //portal.example/\r\n\r\n".to_owned(),
                redirected("http://portal.example/"),
            ),
            (
                format!("HTTP/1.1 302 F\r\nLocation: {long}\r\n\r\n"),
                redirected(long.split('?').next().expect("a part")),
            ),
            ("HTTP/1.1 302 Found\r\n\r\nLocation: http://body.example/".to_owned(), redirected(own)),
            ("HTTP/1.1 302 F\r\nLocation: javascript:alert(1)\r\n\r\n".to_owned(), redirected(own)),
            ("HTTP/1.1 302 F\r\nLocation: http://a\x1b[2J/\r\n\r\n".to_owned(), redirected(own)),
            (format!("HTTP/1.1 302 F\r\nLocation: http://{}/\r\n\r\n", "x".repeat(300)), redirected(own)),
            ("HTTP/1.1 200 OK\r\n\r\n<html>".to_owned(), redirected(own)),
            ("HTTP/1.1 511 Network Authentication Required\r\n\r\n".to_owned(), redirected(own)),
            ("HTTP/1.1 404 Not Found\r\n\r\n".to_owned(), PortalProbe::Unanswered),
            ("HTTP/1.1 503 Busy\r\n\r\n".to_owned(), PortalProbe::Unanswered),
            ("HTTP/1.1 2044 No\r\n\r\n".to_owned(), PortalProbe::Unanswered),
            ("SSH-2.0-OpenSSH_9.2\r\n".to_owned(), PortalProbe::Unanswered),
            ("HTTP/1.".to_owned(), PortalProbe::Unanswered),
            (String::new(), PortalProbe::Unanswered),
        ] {
            assert_eq!(probe_target().judge_answer(answer.as_bytes()), expected, "{answer:?}");
        }
        let octets: Vec<u8> = (0..=255).cycle().take(MAX_ANSWER_LENGTH).collect();
        assert_eq!(probe_target().judge_answer(&octets), PortalProbe::Unanswered);
        assert_eq!(
            probe_target().judge_answer(b"HTTP/1.1 302 F\r\nLocation: http://\xff/\r\n\r\n"),
            redirected(own)
        );
    }
}
