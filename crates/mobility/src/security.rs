//! Authentication of Binding Updates and Acknowledgements by a shared key (RFC 4285), or by IPsec (RFC 4877).
//!
//! With IPsec nothing is verified here: the kernel does that, and whoever reads the message from it says that it did
//! ([`crate::MobilityMessage::protected`]). What is here is that a message without that counts for nothing.
//!
//! The MAC is the first 96 bits of HMAC-SHA1 over care-of address, home address and the Mobility Header up
//! to and including the SPI, with a checksum of zero. The care-of address is the one being registered: the
//! Alternate Care-of Address when there is one, else the IPv6 source.
//!
//! It does not cover the home agent's address. Whoever has one key for several home agents therefore takes at one of them
//! what was recorded on the way to another: their sequence numbers have nothing to do with each other, and timestamps keep
//! it out for as long as the window is passed only. RFC 4285 5.1 has one association for a mobile node and a home agent,
//! so [`Authentication::PerAgent`] makes one for each of them from a common key: nothing in the messages is other than in
//! RFC 4285, and there is nothing to negotiate that could be talked down.
//!
//! Left out: the MN-AAA option (subtype 2), which needs a AAA server.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_wire::mobility::authentication::MN_HA_DATA_LEN;
use carnet_wire::mobility::options::MN_HA;
use carnet_wire::mobility::{AuthenticationField, MobilityOption, authentication_field};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

use crate::MobilityDrop;

/// How a mobile node and its home agent know that a message is the other's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    /// Not at all: only where the network itself keeps strangers out.
    None,
    /// By the MN-HA mobility message authentication option, with this key.
    SharedKey(SecurityAssociation),
    /// The same, with a key that is made from this one and the home agent's address; see [`Authentication::with`].
    PerAgent(SecurityAssociation),
    /// By a security association of IPsec between home address and home agent (RFC 4877), which is the kernel's.
    Ipsec,
}

impl Authentication {
    /// The security association, if there is one. Of [`Authentication::PerAgent`] it is one that nobody uses, so that what
    /// was forgotten to be made with [`Self::with`] is refused and not believed.
    pub fn association(&self) -> Option<&SecurityAssociation> {
        match self {
            Authentication::None | Authentication::Ipsec => None,
            Authentication::SharedKey(association) | Authentication::PerAgent(association) => {
                Some(association)
            }
        }
    }

    /// Whether a message of whoever is not the other end is known for that.
    pub fn authenticates(&self) -> bool {
        *self != Authentication::None
    }

    /// Whether a message counts that came in this way.
    ///
    /// # Errors
    /// [`MobilityDrop::NotProtected`] for one that came in the clear where IPsec is wanted.
    pub(crate) fn admit(&self, protected: bool) -> Result<(), MobilityDrop> {
        match self {
            Authentication::Ipsec if !protected => Err(MobilityDrop::NotProtected),
            _ => Ok(()),
        }
    }

    /// What is used with the home agent that has this address.
    #[must_use]
    pub fn with(&self, home_agent: Ipv6Addr) -> Authentication {
        match self {
            Authentication::PerAgent(common) => Authentication::SharedKey(SecurityAssociation {
                key: key_of(&common.key, home_agent),
                ..common.clone()
            }),
            other => other.clone(),
        }
    }

    /// Whether a recording of what was said to one home agent is nothing to another that has the same of the node.
    pub fn tells_agents_apart(&self) -> bool {
        matches!(self, Authentication::PerAgent(_))
    }
}

/// The key for one home agent: the first 128 bits of HMAC-SHA1 over [`AGENT_KEY`] and the address. A MAC of RFC 4285 is
/// over more octets than these 26 (two addresses alone are 32), so that no message has the one for the other.
fn key_of(common: &[u8; 16], home_agent: Ipv6Addr) -> [u8; 16] {
    let mut key = [0; 16];
    if let Ok(mut mac) = <Hmac<Sha1> as KeyInit>::new_from_slice(common) {
        mac.update(AGENT_KEY);
        mac.update(&home_agent.octets());
        let code = mac.finalize().into_bytes();
        key.iter_mut().zip(code).for_each(|(octet, made)| *octet = made);
    }
    key
}

/// What the keys made by [`key_of`] are for.
const AGENT_KEY: &[u8; 10] = b"home agent";

/// How an old message is told from a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayProtection {
    /// By the sequence number, which is remembered for as long as the station's state lasts.
    Sequence,
    /// By the timestamp of the Message-ID option (RFC 4285 6), beside the sequence number.
    Timestamp {
        /// How far the two clocks may be apart.
        window: Duration,
    },
}

/// A shared-key mobility security association (RFC 4285 5.1).
#[derive(Clone, PartialEq, Eq)]
pub struct SecurityAssociation {
    /// Mobility SPI, 256 or above.
    pub spi: u32,
    /// The key.
    pub key: [u8; 16],
    /// Replay protection.
    pub replay: ReplayProtection,
}

impl fmt::Debug for SecurityAssociation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecurityAssociation")
            .field("spi", &self.spi)
            .field("key", &"(secret)")
            .field("replay", &self.replay)
            .finish()
    }
}

impl SecurityAssociation {
    /// The option to be put last into a message that [`Self::sign`] completes.
    pub fn blank_option(&self) -> MobilityOption<'static> {
        MobilityOption::Authentication { subtype: MN_HA, spi: self.spi, data: &[0; MN_HA_DATA_LEN] }
    }

    /// Fills in the MAC of a finished message that ends in [`Self::blank_option`].
    pub fn sign(&self, message: &mut [u8], care_of_address: Ipv6Addr, home_address: Ipv6Addr) {
        let Ok(Some(field)) = authentication_field(message) else { return };
        let Some(mac) = self.mac(&field, message, care_of_address, home_address) else { return };
        let code = mac.finalize().into_bytes();
        if let (Some(data), Some(code)) = (message.get_mut(field.data), code.get(..MN_HA_DATA_LEN))
            && data.len() == MN_HA_DATA_LEN
        {
            data.copy_from_slice(code);
        }
    }

    /// Checks the MAC of a received message, in constant time.
    ///
    /// # Errors
    /// [`MobilityDrop::AuthenticationMissing`] without an MN-HA option, [`MobilityDrop::UnknownSpi`] with another SPI,
    /// [`MobilityDrop::AuthenticationFailed`] when the MAC is another,
    /// [`MobilityDrop::Malformed`] when the option is not where it must be.
    pub fn verify(
        &self,
        message: &[u8],
        care_of_address: Ipv6Addr,
        home_address: Ipv6Addr,
    ) -> Result<(), MobilityDrop> {
        let field = authentication_field(message)
            .map_err(|_| MobilityDrop::Malformed)?
            .ok_or(MobilityDrop::AuthenticationMissing)?;
        if field.spi != self.spi {
            return Err(MobilityDrop::UnknownSpi);
        }
        let data = message.get(field.data.clone()).ok_or(MobilityDrop::Malformed)?;
        if data.len() != MN_HA_DATA_LEN {
            return Err(MobilityDrop::AuthenticationFailed);
        }
        self.mac(&field, message, care_of_address, home_address)
            .ok_or(MobilityDrop::Malformed)?
            .verify_truncated_left(data)
            .map_err(|_| MobilityDrop::AuthenticationFailed)
    }

    fn mac(
        &self,
        field: &AuthenticationField,
        message: &[u8],
        care_of_address: Ipv6Addr,
        home_address: Ipv6Addr,
    ) -> Option<Hmac<Sha1>> {
        let mut mac = <Hmac<Sha1> as KeyInit>::new_from_slice(&self.key).ok()?;
        mac.update(&care_of_address.octets());
        mac.update(&home_address.octets());
        for octets in field.covered_octets(message)? {
            mac.update(octets);
        }
        Some(mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The golden Binding Update of the reference notes, SPI 300, key 00..0f.
    const GOLDEN: &str = "3b0605000f810003c400003c0612004020010db80002000000000000000000000009110100\
                          00012c99119f05ec6abd2b938bc15101020000";

    fn association() -> SecurityAssociation {
        SecurityAssociation {
            spi: 300,
            key: std::array::from_fn(|i| i as u8),
            replay: ReplayProtection::Sequence,
        }
    }

    fn golden() -> Vec<u8> {
        let hex: String = GOLDEN.split_whitespace().collect();
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits"))
            .collect()
    }

    fn addresses() -> (Ipv6Addr, Ipv6Addr) {
        ("2001:db8:f1::10".parse().expect("address"), "2001:db8:1::1234".parse().expect("address"))
    }

    #[test]
    fn the_golden_packet_verifies_and_is_what_signing_gives() {
        let (care_of, home) = addresses();
        assert_eq!(association().verify(&golden(), care_of, home), Ok(()));
        let mut blank = golden();
        let field = authentication_field(&blank).expect("parses").expect("present");
        blank[field.data].fill(0);
        association().sign(&mut blank, care_of, home);
        assert_eq!(blank, golden());
    }

    #[test]
    fn every_changed_bit_that_is_covered_is_noticed() {
        let (care_of, home) = addresses();
        let field = authentication_field(&golden()).expect("parses").expect("present");
        for at in field.covered.start..field.data.end {
            if (4..6).contains(&at) {
                continue; // not covered: the checksum is filled in later
            }
            let mut changed = golden();
            changed[at] ^= 1;
            assert!(association().verify(&changed, care_of, home).is_err(), "octet {at}");
        }
        assert_eq!(association().verify(&golden(), home, care_of), Err(MobilityDrop::AuthenticationFailed));
        let other = SecurityAssociation { spi: 301, ..association() };
        assert_eq!(other.verify(&golden(), care_of, home), Err(MobilityDrop::UnknownSpi));
    }

    #[test]
    fn each_home_agent_has_a_key_of_its_own() {
        let agent = |text: &str| text.parse::<Ipv6Addr>().expect("address");
        let common = Authentication::PerAgent(association());
        let of = |text| common.with(agent(text)).association().expect("a key").clone();
        // printf 'home agent\x20\x01\x0d\xb8\0\1\0\0\0\0\0\0\0\0\0\1' |
        //   openssl dgst -sha1 -mac HMAC -macopt hexkey:000102030405060708090a0b0c0d0e0f | the first 32 digits
        let hex: String = of("2001:db8:1::1").key.iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(hex, "20553b8f1d4cd6e0e61441e44ffb349d");
        assert_ne!(of("2001:db8:1::1").key, of("2001:db8:1::2").key);
        assert_ne!(of("2001:db8:1::1").key, association().key);
        let (care_of, home) = addresses();
        let mut octets = golden();
        let field = authentication_field(&octets).expect("parses").expect("present");
        octets[field.data].fill(0);
        of("2001:db8:1::1").sign(&mut octets, care_of, home);
        assert_eq!(of("2001:db8:1::1").verify(&octets, care_of, home), Ok(()));
        for other in [of("2001:db8:1::2"), association()] {
            assert_eq!(other.verify(&octets, care_of, home), Err(MobilityDrop::AuthenticationFailed));
        }
        // A plain key is the same everywhere, as RFC 4285 has it.
        let plain = Authentication::SharedKey(association());
        assert_eq!(plain.with(agent("2001:db8:1::1")), plain);
    }

    #[test]
    fn the_key_is_not_printed() {
        assert!(!format!("{:?}", association()).contains("15"));
    }
}
