//! Authentication of Binding Updates and Acknowledgements by a shared key (RFC 4285), or by IPsec (RFC 4877).
//!
//! With IPsec the kernel verifies messages. The reader of a message reports whether IPsec protected it
//! ([`crate::MobilityMessage::is_ipsec_protected`]), and this module drops unprotected messages.
//!
//! The MAC is the first 96 bits of HMAC-SHA1 over care-of address, home address and Mobility Header. It
//! covers the header up to and including the SPI, with a checksum of zero. The care-of address is the one
//! that the update registers: the Alternate Care-of Address if there is one, otherwise the IPv6 source.
//!
//! The MAC does not cover the home agent's address. So if several home agents have one key, an attacker can
//! record messages to one home agent and replay them to another. The sequence numbers at both are
//! independent, and timestamps protect only after their window has passed. RFC 4285 5.1 has one association
//! for each pair of mobile node and home agent. So [`Authentication::PerAgent`] derives one for each home
//! agent from a common key. The format of the messages is that of RFC 4285. There is no negotiation, so an
//! attacker cannot force a weaker method.
//!
//! An operator changes a key without interruption in three steps ([`Authentication::SharedKeys`]). The home
//! agent first accepts the new key beside the old one. Then the node gets the new key. Finally the home agent
//! drops the old key. The SPI of a message names its key. All keys of a node share the replay protection: a
//! message that is old under one key is old under the others.
//!
//! Left out: the MN-AAA option (subtype 2), which needs a AAA server.

use std::net::Ipv6Addr;
use std::slice;
use std::time::Duration;

use carnet_base::Key;
use carnet_wire::mobility::authentication::MN_HA_DATA_LEN;
use carnet_wire::mobility::options::MN_HA;
use carnet_wire::mobility::{AuthenticationField, MobilityOption, authentication_field};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha1::Sha1;
use zeroize::Zeroizing;

use crate::MobilityDrop;

/// Authentication of messages between a mobile node and its home agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authentication {
    /// Messages are not verified: only for a network that no attacker can reach.
    None,
    /// The MN-HA mobility message authentication option (RFC 4285 5.1) authenticates messages with this key.
    SharedKey(SecurityAssociation),
    /// The MN-HA option authenticates messages with a key derived from this key and the home agent's address;
    /// see [`Authentication::for_home_agent`].
    PerAgent(SecurityAssociation),
    /// The MN-HA option authenticates messages with one of several keys, while a new key replaces an old one.
    /// Also used for one key that must not move in memory.
    SharedKeys(Box<SharedKeys>),
    /// An IPsec security association between home address and home agent (RFC 4877) authenticates messages.
    /// The kernel applies it.
    Ipsec,
    /// An encrypted session of this remote key authenticates messages, and refuses repetitions
    /// (`docs/tunnel.md`).
    Session(SessionPeer),
}

/// Number of a remote public key with which this station has encrypted sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionPeer(pub u32);

/// Several security associations of a node, distinguished by their SPIs (RFC 4285 5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedKeys {
    /// The association that signs the mobile node's messages, followed by other accepted associations. Each
    /// has its own SPI, and all have the same replay protection.
    pub associations: Vec<SecurityAssociation>,
    /// Whether each home agent has its own keys, derived from these, as in [`Authentication::PerAgent`].
    pub derives_key_per_agent: bool,
}

impl Authentication {
    /// Returns the security associations, the signing one first; an empty list without a key. For
    /// [`Authentication::PerAgent`] it returns associations with unusable keys. So if the program forgets to
    /// call [`Self::for_home_agent`], it refuses every message.
    pub fn associations(&self) -> &[SecurityAssociation] {
        match self {
            Authentication::None | Authentication::Ipsec | Authentication::Session(_) => &[],
            Authentication::SharedKey(association) | Authentication::PerAgent(association) => {
                slice::from_ref(association)
            }
            Authentication::SharedKeys(keys) => &keys.associations,
        }
    }

    /// Returns the security association that signs; `None` without a key.
    pub fn signing_association(&self) -> Option<&SecurityAssociation> {
        self.associations().first()
    }

    /// Returns the security association with this SPI. If no association has it, returns the one that signs;
    /// `None` without a key.
    pub(crate) fn association_of(&self, spi: Option<u32>) -> Option<&SecurityAssociation> {
        let named = self.associations().iter().find(|association| Some(association.spi) == spi);
        named.or(self.signing_association())
    }

    /// Returns the fingerprint of the security association with this SPI, unless it is the signing one.
    pub(crate) fn fingerprint_of_other_key(&self, spi: Option<u32>) -> Option<u64> {
        let association = self.association_of(spi)?;
        (self.signing_association()?.spi != association.spi).then(|| association.fingerprint())
    }

    /// Returns whether the node has several keys; the operator will remove the old one.
    pub fn has_several_keys(&self) -> bool {
        self.associations().len() > 1
    }

    /// Verifies the MAC of a received message, in constant time, by the association with the message's SPI.
    /// Without a key every message is accepted.
    ///
    /// # Errors
    /// Returns the errors of [`SecurityAssociation::verify`].
    pub fn verify(
        &self,
        message: &[u8],
        care_of_address: Ipv6Addr,
        home_address: Ipv6Addr,
    ) -> Result<(), MobilityDrop> {
        match self.associations() {
            [] => Ok(()),
            associations => verify(associations, message, care_of_address, home_address),
        }
    }

    /// Returns whether this method detects forged messages.
    pub fn detects_forgery(&self) -> bool {
        *self != Authentication::None
    }

    /// Checks that a message came under IPsec or through the session of the node's key, if one of them is
    /// required. `ipsec` says whether IPsec protected the message.
    ///
    /// # Errors
    /// Returns [`MobilityDrop::NotProtected`] for a message without the required protection.
    pub(crate) fn check_ipsec_protection(
        &self,
        ipsec: bool,
        session: Option<SessionPeer>,
    ) -> Result<(), MobilityDrop> {
        match self {
            Authentication::Ipsec if !ipsec => Err(MobilityDrop::NotProtected),
            Authentication::Session(peer) if session != Some(*peer) => Err(MobilityDrop::NotProtected),
            _ => Ok(()),
        }
    }

    /// Returns the remote key of the node's encrypted sessions; `None` without sessions.
    pub fn session(&self) -> Option<SessionPeer> {
        match self {
            Authentication::Session(peer) => Some(*peer),
            _ => None,
        }
    }

    /// Returns whether messages that have no authentication by RFC 4285 or RFC 4877 need the session, too:
    /// heartbeats and Binding Errors.
    pub(crate) fn requires_session_for_all(&self) -> bool {
        matches!(self, Authentication::Session(_))
    }

    /// Returns the authentication for the home agent with this address.
    #[must_use]
    pub fn for_home_agent(&self, home_agent: Ipv6Addr) -> Authentication {
        match self {
            Authentication::PerAgent(common) => {
                Authentication::SharedKey(common.derive_for_agent(home_agent))
            }
            Authentication::SharedKeys(keys) if keys.derives_key_per_agent => {
                let made = keys.associations.iter().map(|common| common.derive_for_agent(home_agent));
                let made = SharedKeys { associations: made.collect(), derives_key_per_agent: false };
                Authentication::SharedKeys(Box::new(made))
            }
            other => other.clone(),
        }
    }

    /// Returns whether several home agents share the key. Then each of them accepts messages that an attacker
    /// has recorded on the way to another.
    pub fn is_shared_by_all_agents(&self) -> bool {
        match self {
            Authentication::SharedKey(_) => true,
            Authentication::SharedKeys(keys) => !keys.derives_key_per_agent,
            Authentication::None
            | Authentication::PerAgent(_)
            | Authentication::Ipsec
            | Authentication::Session(_) => false,
        }
    }
}

/// Derives the key for one home agent: the first 128 bits of HMAC-SHA1 over [`AGENT_KEY_LABEL`] and the
/// address, 26 octets. A MAC of RFC 4285 covers at least 32 octets (two addresses), so no message has the
/// derived key as its MAC.
fn derive_agent_key(common: &Key, home_agent: Ipv6Addr) -> Key {
    let mut key = Key::new([0; Key::LENGTH]);
    if let Ok(mut mac) = <Hmac<Sha1> as KeyInit>::new_from_slice(common.octets()) {
        mac.update(AGENT_KEY_LABEL);
        mac.update(&home_agent.octets());
        let code = Zeroizing::new(<[u8; 20]>::from(mac.finalize().into_bytes()));
        key.octets_mut().iter_mut().zip(code.iter()).for_each(|(octet, made)| *octet = *made);
    }
    key
}

/// Label of the keys that [`derive_agent_key`] derives.
const AGENT_KEY_LABEL: &[u8; 10] = b"home agent";
/// Label of [`SecurityAssociation::fingerprint`].
const FINGERPRINT_LABEL: &[u8; 11] = b"fingerprint";

/// Default for the largest permitted difference between a timestamp and the clock. RFC 4285 5.1: "A default
/// value of 7 seconds SHOULD be used".
pub(crate) const DEFAULT_TIMESTAMP_WINDOW: Duration = Duration::from_secs(7);
/// Maximum difference between the timestamp of an unsolicited message and the home agent's time, which the
/// router knows from the last acknowledgement. It allows for a round trip, retransmissions over another path,
/// and the drift of two clocks within a lifetime.
pub(crate) const NOTICE_TIMESTAMP_WINDOW: Duration = Duration::from_secs(60);

/// Protection against replays of old messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayProtection {
    /// Replays are detected by the sequence number, which the station stores. After the key has used up its
    /// sequence numbers, messages also need timestamps.
    Sequence,
    /// Replays are detected by the timestamp of the Message-ID option (RFC 4285 6), and by the sequence
    /// number.
    Timestamp {
        /// Largest permitted difference between the clocks of node and home agent.
        window: Duration,
    },
}

/// A shared-key mobility security association (RFC 4285 5.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityAssociation {
    /// Mobility SPI, 256 or above.
    pub spi: u32,
    /// The shared key.
    pub key: Key,
    /// Method of protection against replays.
    pub replay: ReplayProtection,
}

impl SecurityAssociation {
    /// Derives the association with one home agent from this common association.
    fn derive_for_agent(&self, home_agent: Ipv6Addr) -> SecurityAssociation {
        SecurityAssociation {
            spi: self.spi,
            key: derive_agent_key(&self.key, home_agent),
            replay: self.replay,
        }
    }

    /// Returns the name of this association in the stored state: the first 64 bits of HMAC-SHA1 with its key
    /// over [`FINGERPRINT_LABEL`] and the SPI. An authenticated message has at least 32 octets, so no message
    /// has this MAC.
    pub(crate) fn fingerprint(&self) -> u64 {
        let Ok(mut mac) = <Hmac<Sha1> as KeyInit>::new_from_slice(self.key.octets()) else { return 0 };
        mac.update(FINGERPRINT_LABEL);
        mac.update(&self.spi.to_be_bytes());
        let code = mac.finalize().into_bytes();
        code.iter().take(8).fold(0, |bits, octet| bits << 8 | u64::from(*octet))
    }

    /// Returns an MN-HA option without MAC, as the last option of a message; [`Self::sign`] fills in the MAC.
    pub fn empty_authentication_option(&self) -> MobilityOption<'static> {
        MobilityOption::Authentication { subtype: MN_HA, spi: self.spi, data: &[0; MN_HA_DATA_LEN] }
    }

    /// Fills in the MAC of a finished message that ends with [`Self::empty_authentication_option`].
    pub fn sign(&self, message: &mut [u8], care_of_address: Ipv6Addr, home_address: Ipv6Addr) {
        let Ok(Some(field)) = authentication_field(message) else { return };
        let Some(mac) = self.compute_mac(&field, message, care_of_address, home_address) else { return };
        let code = mac.finalize().into_bytes();
        if let (Some(data), Some(code)) = (message.get_mut(field.data_range), code.get(..MN_HA_DATA_LEN))
            && data.len() == MN_HA_DATA_LEN
        {
            data.copy_from_slice(code);
        }
    }

    /// Verifies the MAC of a received message, in constant time.
    ///
    /// # Errors
    /// Returns [`MobilityDrop::AuthenticationMissing`] without an MN-HA option, [`MobilityDrop::UnknownSpi`]
    /// with another SPI, [`MobilityDrop::AuthenticationFailed`] with a wrong MAC, [`MobilityDrop::Malformed`]
    /// if the option is not in its place.
    pub fn verify(
        &self,
        message: &[u8],
        care_of_address: Ipv6Addr,
        home_address: Ipv6Addr,
    ) -> Result<(), MobilityDrop> {
        verify(slice::from_ref(self), message, care_of_address, home_address)
    }

    fn compute_mac(
        &self,
        field: &AuthenticationField,
        message: &[u8],
        care_of_address: Ipv6Addr,
        home_address: Ipv6Addr,
    ) -> Option<Hmac<Sha1>> {
        let mut mac = <Hmac<Sha1> as KeyInit>::new_from_slice(self.key.octets()).ok()?;
        mac.update(&care_of_address.octets());
        mac.update(&home_address.octets());
        for octets in field.covered_octets(message)? {
            mac.update(octets);
        }
        Some(mac)
    }
}

/// Verifies the MAC of a received message by the association with the message's SPI.
fn verify(
    associations: &[SecurityAssociation],
    message: &[u8],
    care_of_address: Ipv6Addr,
    home_address: Ipv6Addr,
) -> Result<(), MobilityDrop> {
    let field = authentication_field(message)
        .map_err(|_| MobilityDrop::Malformed)?
        .ok_or(MobilityDrop::AuthenticationMissing)?;
    let named = associations.iter().find(|association| association.spi == field.spi);
    let association = named.ok_or(MobilityDrop::UnknownSpi)?;
    let data = message.get(field.data_range.clone()).ok_or(MobilityDrop::Malformed)?;
    if data.len() != MN_HA_DATA_LEN {
        return Err(MobilityDrop::AuthenticationFailed);
    }
    association
        .compute_mac(&field, message, care_of_address, home_address)
        .ok_or(MobilityDrop::Malformed)?
        .verify_truncated_left(data)
        .map_err(|_| MobilityDrop::AuthenticationFailed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Binding Update that another program made, SPI 300, key 00..0f.
    const RECORDED_BINDING_UPDATE: &str = "3b0605000f810003c400003c0612004020010db80002\
                          000000000000000000000009110100\
                          00012c99119f05ec6abd2b938bc15101020000";

    fn association() -> SecurityAssociation {
        SecurityAssociation {
            spi: 300,
            key: Key::new(std::array::from_fn(|i| i as u8)),
            replay: ReplayProtection::Sequence,
        }
    }

    fn recorded_binding_update() -> Vec<u8> {
        let hex: String = RECORDED_BINDING_UPDATE.split_whitespace().collect();
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits"))
            .collect()
    }

    fn addresses() -> (Ipv6Addr, Ipv6Addr) {
        ("2001:db8:f1::10".parse().expect("address"), "2001:db8:1::1234".parse().expect("address"))
    }

    #[test]
    fn recorded_packet_verifies_and_equals_signed_packet() {
        let (care_of, home) = addresses();
        assert_eq!(association().verify(&recorded_binding_update(), care_of, home), Ok(()));
        let mut blank = recorded_binding_update();
        let field = authentication_field(&blank).expect("parses").expect("present");
        blank[field.data_range].fill(0);
        association().sign(&mut blank, care_of, home);
        assert_eq!(blank, recorded_binding_update());
    }

    #[test]
    fn changed_bit_in_octets_covered_by_the_mac_fails_verification() {
        let (care_of, home) = addresses();
        let field = authentication_field(&recorded_binding_update()).expect("parses").expect("present");
        for at in field.covered_range.start..field.data_range.end {
            if (4..6).contains(&at) {
                continue; // not covered: the checksum is filled in later
            }
            let mut changed = recorded_binding_update();
            changed[at] ^= 1;
            assert!(association().verify(&changed, care_of, home).is_err(), "octet {at}");
        }
        assert_eq!(
            association().verify(&recorded_binding_update(), home, care_of),
            Err(MobilityDrop::AuthenticationFailed)
        );
        let other = SecurityAssociation { spi: 301, ..association() };
        assert_eq!(other.verify(&recorded_binding_update(), care_of, home), Err(MobilityDrop::UnknownSpi));
    }

    #[test]
    fn each_home_agent_has_its_own_derived_key() {
        let agent = |text: &str| text.parse::<Ipv6Addr>().expect("address");
        let common = Authentication::PerAgent(association());
        let of = |text| common.for_home_agent(agent(text)).signing_association().expect("a key").clone();
        // The expected key is the first 32 hexadecimal digits of: printf 'home
        // agent\x20\x01\x0d\xb8\0\1\0\0\0\0\0\0\0\0\0\1' | openssl dgst -sha1 -mac HMAC -macopt
        // hexkey:000102030405060708090a0b0c0d0e0f
        let hex: String =
            of("2001:db8:1::1").key.octets().iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(hex, "20553b8f1d4cd6e0e61441e44ffb349d");
        assert_ne!(of("2001:db8:1::1").key, of("2001:db8:1::2").key);
        assert_ne!(of("2001:db8:1::1").key, association().key);
        let (care_of, home) = addresses();
        let mut octets = recorded_binding_update();
        let field = authentication_field(&octets).expect("parses").expect("present");
        octets[field.data_range].fill(0);
        of("2001:db8:1::1").sign(&mut octets, care_of, home);
        assert_eq!(of("2001:db8:1::1").verify(&octets, care_of, home), Ok(()));
        for other in [of("2001:db8:1::2"), association()] {
            assert_eq!(other.verify(&octets, care_of, home), Err(MobilityDrop::AuthenticationFailed));
        }
        // A plain key is the same at every home agent, as in RFC 4285.
        let plain = Authentication::SharedKey(association());
        assert_eq!(plain.for_home_agent(agent("2001:db8:1::1")), plain);
    }

    #[test]
    fn spi_of_a_message_selects_its_security_association() {
        let (care_of, home) = addresses();
        let new = SecurityAssociation { spi: 301, key: Key::new([7; 16]), ..association() };
        let keys = |associations| {
            Authentication::SharedKeys(Box::new(SharedKeys { associations, derives_key_per_agent: false }))
        };
        let both = keys(vec![new.clone(), association()]);
        assert_eq!(both.verify(&recorded_binding_update(), care_of, home), Ok(()));
        assert_eq!(both.association_of(Some(300)), Some(&association()));
        for unknown in [None, Some(301), Some(299)] {
            assert_eq!(both.association_of(unknown), Some(&new));
        }
        // A MAC made with the key of another SPI is wrong.
        let crossed = SecurityAssociation { spi: 300, ..new.clone() };
        let crossed = keys(vec![SecurityAssociation { spi: 301, ..association() }, crossed]);
        assert_eq!(
            crossed.verify(&recorded_binding_update(), care_of, home),
            Err(MobilityDrop::AuthenticationFailed)
        );
        assert_eq!(
            keys(vec![new]).verify(&recorded_binding_update(), care_of, home),
            Err(MobilityDrop::UnknownSpi)
        );
    }

    #[test]
    fn each_home_agent_has_its_own_keys_during_a_key_change() {
        let agent: Ipv6Addr = "2001:db8:1::1".parse().expect("address");
        let new = SecurityAssociation { spi: 301, key: Key::new([7; 16]), ..association() };
        let both = vec![new.clone(), association()];
        let common = SharedKeys { associations: both, derives_key_per_agent: true };
        let made = Authentication::SharedKeys(Box::new(common)).for_home_agent(agent);
        let alone = |of| {
            Authentication::PerAgent(of).for_home_agent(agent).signing_association().expect("a key").clone()
        };
        assert_eq!(made.associations(), [alone(new), alone(association())]);
    }

    /// The support for several keys must not cost memory for a node with one key, because a home agent has
    /// very many nodes.
    #[test]
    fn association_with_one_key_allocates_no_list() {
        let with_one = size_of::<SecurityAssociation>() + align_of::<SecurityAssociation>();
        assert_eq!(size_of::<Authentication>(), with_one);
    }

    #[test]
    fn debug_output_hides_the_shared_key() {
        assert!(!format!("{:?}", association()).contains("15"));
    }
}
