//! Captive portals that access networks announce (RFC 8910): a network that redirects web pages and forwards nothing else,
//! until somebody has agreed to its terms.
//!
//! A Router Advertisement names the portal. The announcement alone changes no decision: where somebody has agreed before, the
//! network forwards. Where the home agent does not answer over an uplink, it is the likely reason.
//!
//! Left out: the DHCP options of RFC 8910, which are for the DHCP client to read, the API of RFC 8908, and probes.

use std::net::Ipv6Addr;

use carnet_wire::nd::{NdOption, NdOptions};

/// Captive-Portal option (RFC 8910 2.3).
const CAPTIVE_PORTAL: u8 = 37;
/// The network has no portal (RFC 8910 2).
const UNRESTRICTED: &str = "urn:ietf:params:capport:unrestricted";
/// Octets of the longest URI that is kept.
const LONGEST: usize = 255;

/// The portal that a router announces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CaptivePortal {
    /// Who announces it.
    router: Ipv6Addr,
    /// Its URI.
    pub(super) uri: String,
}

impl CaptivePortal {
    /// What is known after an advertisement of `router`, and was `known` before.
    pub(super) fn after(
        known: Option<CaptivePortal>,
        router: Ipv6Addr,
        mut options: NdOptions<'_>,
    ) -> Option<CaptivePortal> {
        let uri = options.find_map(|option| match option {
            NdOption::Unknown { option_type: CAPTIVE_PORTAL, data } => Some(uri(data)),
            _ => None,
        });
        match uri {
            Some(Some(uri)) => Some(CaptivePortal { router, uri }),
            // It has none any more; that of another router stays.
            Some(None) | None => known.filter(|known| known.router != router),
        }
    }
}

/// The URI of an option, padded with zeros; `None` for what is none or says that there is no portal.
fn uri(data: &[u8]) -> Option<String> {
    let end = data.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
    let text = std::str::from_utf8(&data[..end]).ok()?;
    let is_uri = (1..=LONGEST).contains(&text.len()) && text.bytes().all(|octet| octet.is_ascii_graphic());
    (is_uri && text != UNRESTRICTED).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_padded_and_printable() {
        assert_eq!(uri(b"https://portal.example/\0\0\0").as_deref(), Some("https://portal.example/"));
        for none in [
            &b"\0\0\0\0\0\0"[..],
            b"",
            b"urn:ietf:params:capport:unrestricted\0\0",
            b"a\0b",
            b"a b",
            b"\x1b[2J",
            b"\xff",
        ] {
            assert_eq!(uri(none), None, "{none:?}");
        }
        assert_eq!(uri(&[b'x'; 256]), None);
    }
}
