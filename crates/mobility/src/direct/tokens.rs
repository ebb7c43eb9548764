//! Nonces, keygen tokens and the binding management key (RFC 6275 5.2.2 to 5.2.6), with tokens for prefixes.
//!
//! A router stores nothing about the tests that it answers. A token derives from the router's secret, the
//! nonce of the present half minute, and the tested address or prefix. A nonce derives from its number, so
//! the router needs no list of nonces either.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_wire::mobility::DirectRoute;
use carnet_wire::mobility::direct_route::AUTHENTICATOR_LEN;
use hmac::{Hmac, KeyInit, Mac};
use ipnet::Ipv6Net;
use sha1::{Digest, Sha1};

use super::session_keys::PublicKey;

/// Time after which the router uses the next nonce (RFC 6275 5.2.2). A nonce is valid for
/// `MAX_NONCE_LIFETIME` (RFC 6275 12), 240 s.
const NONCE_INTERVAL: Duration = Duration::from_secs(30);
const VALID_NONCE_COUNT: u64 = 8;
/// Longest time for which a router uses a received token: `MAX_TOKEN_LIFETIME` (RFC 6275 12).
pub(super) const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(210);

/// The binding management key, Kbm (RFC 6275 5.2.6).
pub(super) type BindingManagementKey = [u8; 20];

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 20] {
    // HMAC accepts a key of any length, so this error is impossible. The code returns a key that no other
    // node computes.
    let Ok(mut mac) = <Hmac<Sha1> as KeyInit>::new_from_slice(key) else { return [0; 20] };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

fn first_64_bits(code: [u8; 20]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = code;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Number of a nonce since the start. Numbers never repeat; messages contain the last 16 bits of the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nonce(u64);

impl Nonce {
    /// The nonce index (RFC 6275 5.2.2).
    pub(super) fn nonce_index(self) -> u16 {
        self.0 as u16
    }
}

/// Router that asks for tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct TestRequester<'k> {
    pub(super) home_address: Ipv6Addr,
    /// Key of the router's encrypted sessions; `None` for a route in the clear.
    pub(super) public_key: Option<&'k PublicKey>,
}

impl TestRequester<'_> {
    fn key_octets(&self) -> &[u8] {
        self.public_key.map_or(&[], |key| key)
    }
}

/// Secret of a router that answers tests: Kcn and the nonces.
#[derive(Debug)]
pub(super) struct TokenSecret {
    /// Kcn, 20 random octets (RFC 6275 5.2.1). The seed of `rng` must be secret, because Kcn follows from it.
    node_key: [u8; 20],
}

impl TokenSecret {
    pub(super) fn new(rng: &mut Rng) -> TokenSecret {
        let mut key = [0; 20];
        for part in key.chunks_mut(8) {
            part.iter_mut().zip(rng.random_u64().to_be_bytes()).for_each(|(octet, random)| *octet = random);
        }
        TokenSecret { node_key: key }
    }

    /// Returns the current nonce.
    pub(super) fn current_nonce(&self, now: Time) -> Nonce {
        Nonce(now.as_nanos() / NONCE_INTERVAL.as_nanos() as u64)
    }

    /// Returns the nonce with this index; `None` if its tokens have expired.
    pub(super) fn valid_nonce(&self, now: Time, index: u16) -> Option<Nonce> {
        let latest = self.current_nonce(now);
        // Accept the nonce of the present interval of 30 s and the seven before it. So a token is valid for
        // at most 240 s. A token computed at the end of its nonce's interval is valid for at least 210 s.
        let age =
            Some(u64::from(latest.nonce_index().wrapping_sub(index))).filter(|age| *age < VALID_NONCE_COUNT);
        latest.0.checked_sub(age?).map(Nonce)
    }

    /// Returns the octets of a nonce, of which its tokens are computed.
    fn nonce_octets(&self, nonce: Nonce) -> [u8; 8] {
        first_64_bits(hmac(&self.node_key, &[b"nonce", &nonce.0.to_be_bytes()])).to_be_bytes()
    }

    fn compute_token(&self, nonce: [u8; 8], kind: u8, parts: &[&[u8]]) -> u64 {
        let mut all: Vec<&[u8]> = parts.to_vec();
        let kind = [kind];
        all.extend([&nonce[..], &kind]);
        first_64_bits(hmac(&self.node_key, &all))
    }

    /// Returns the home keygen token. RFC 6275 5.2.5: First (64, HMAC_SHA1 (Kcn, (home address | nonce |
    /// 0))). The public key of the asking router, if it has one, is between home address and nonce.
    pub(super) fn home_token(&self, nonce: Nonce, asker: TestRequester) -> u64 {
        self.home_token_of(self.nonce_octets(nonce), asker)
    }

    fn home_token_of(&self, nonce: [u8; 8], asker: TestRequester) -> u64 {
        self.compute_token(nonce, 0, &[&asker.home_address.octets(), asker.key_octets()])
    }

    /// Returns the care-of keygen token. It is computed like [`Self::home_token`], with the octet 1 after the
    /// nonce.
    pub(super) fn care_of_token(&self, nonce: Nonce, care_of_address: Ipv6Addr) -> u64 {
        self.compute_token(self.nonce_octets(nonce), 1, &[&care_of_address.octets()])
    }

    /// Returns the token for a prefix of the asking router. It is computed like [`Self::home_token`], with
    /// the prefix and with the octet 2 after the nonce.
    pub(super) fn prefix_token(&self, nonce: Nonce, asker: TestRequester, prefix: Ipv6Net) -> u64 {
        self.prefix_token_of(self.nonce_octets(nonce), asker, prefix)
    }

    fn prefix_token_of(&self, nonce: [u8; 8], asker: TestRequester, prefix: Ipv6Net) -> u64 {
        let network = prefix.network().octets();
        let home_address = asker.home_address.octets();
        let parts: [&[u8]; 4] = [&home_address, &network, &[prefix.prefix_len()], asker.key_octets()];
        self.compute_token(nonce, 2, &parts)
    }

    /// Returns the key of a Binding Update, computed from the tokens of the nonces that the update names. The
    /// sender has computed the same key if it has received all these tokens.
    pub(super) fn key_of_update(
        &self,
        update: &DirectRoute,
        home: Nonce,
        care_of: Nonce,
    ) -> BindingManagementKey {
        let care_of = self.care_of_token(care_of, update.care_of_address);
        let nonce = self.nonce_octets(home);
        let asker =
            TestRequester { home_address: update.home_address, public_key: update.public_key.as_ref() };
        let home = self.home_token_of(nonce, asker);
        let prefixes = update.prefixes.iter();
        compute_binding_key(home, care_of, prefixes.map(|prefix| self.prefix_token_of(nonce, asker, *prefix)))
    }
}

/// Returns the binding management key, SHA1 (home token | care-of token | prefix tokens). RFC 6275 5.2.6 has
/// no prefix tokens.
pub(super) fn compute_binding_key(
    home: u64,
    care_of: u64,
    prefixes: impl Iterator<Item = u64>,
) -> BindingManagementKey {
    let mut hash = Sha1::new();
    hash.update(home.to_be_bytes());
    hash.update(care_of.to_be_bytes());
    prefixes.for_each(|token| hash.update(token.to_be_bytes()));
    hash.finalize().into()
}

/// Computes the authenticator of a message (RFC 6275 6.2.7). It covers the care-of address and the home
/// address, because the message contains both.
pub(super) fn sign_message(message: &mut DirectRoute, key: &BindingManagementKey) {
    message.authenticator = [0; AUTHENTICATOR_LEN];
    let code = hmac(key, &[&message.octets()]);
    message.authenticator.iter_mut().zip(code).for_each(|(octet, code)| *octet = code);
}

/// Returns whether the authenticator was computed with this key. The comparison takes constant time.
pub(super) fn verify_message(message: &DirectRoute, key: &BindingManagementKey) -> bool {
    let blank = DirectRoute { authenticator: [0; AUTHENTICATOR_LEN], ..message.clone() };
    let Ok(mut mac) = <Hmac<Sha1> as KeyInit>::new_from_slice(key) else { return false };
    mac.update(&blank.octets());
    mac.verify_truncated_left(&message.authenticator).is_ok()
}

#[cfg(test)]
mod tests {
    use carnet_wire::mobility::DirectRouteKind;

    use super::*;

    #[test]
    fn token_depends_on_address_prefix_nonce_and_secret() {
        let (mut rng, mut other_rng) = (Rng::new(1), Rng::new(2));
        let (secret, stranger) = (TokenSecret::new(&mut rng), TokenSecret::new(&mut other_rng));
        let home: Ipv6Addr = "2001:db8:1::1".parse().expect("address");
        let prefix: Ipv6Net = "2001:db8:a::/64".parse().expect("prefix");
        let asker = TestRequester { home_address: home, public_key: None };
        let other = TestRequester { home_address: "2001:db8:1::2".parse().expect("address"), ..asker };
        let keys = [[1; 32], [2; 32]];
        let with_key = |key| TestRequester { public_key: Some(key), ..asker };
        let tokens = [
            secret.home_token(Nonce(1), asker),
            secret.home_token(Nonce(2), asker),
            stranger.home_token(Nonce(1), asker),
            secret.home_token(Nonce(1), other),
            secret.home_token(Nonce(1), with_key(&keys[0])),
            secret.home_token(Nonce(1), with_key(&keys[1])),
            secret.care_of_token(Nonce(1), home),
            secret.prefix_token(Nonce(1), asker, prefix),
            secret.prefix_token(Nonce(2), asker, prefix),
            secret.prefix_token(Nonce(1), asker, "2001:db8:a::/63".parse().expect("prefix")),
            secret.prefix_token(Nonce(1), other, prefix),
            secret.prefix_token(Nonce(1), with_key(&keys[0]), prefix),
            secret.prefix_token(Nonce(1), with_key(&keys[1]), prefix),
        ];
        let all: std::collections::BTreeSet<u64> = tokens.into_iter().collect();
        assert_eq!(all.len(), tokens.len());
        assert_eq!(secret.home_token(Nonce(1), asker), tokens[0]);
    }

    #[test]
    fn nonce_outlives_its_tokens_by_at_most_four_minutes() {
        let secret = TokenSecret::new(&mut Rng::new(1));
        for start in [0, 29, 30, 12_345, 65_535 * 30, 65_536 * 30 + 7] {
            let at = Time::from_secs(start);
            let nonce = secret.current_nonce(at);
            let index = nonce.nonce_index();
            assert_eq!(secret.valid_nonce(at, index), Some(nonce));
            assert_eq!(secret.valid_nonce(at + MAX_TOKEN_LIFETIME, index), Some(nonce));
            assert_eq!(secret.valid_nonce(at + NONCE_INTERVAL * VALID_NONCE_COUNT as u32, index), None);
            assert_eq!(secret.valid_nonce(at, index.wrapping_add(1)), None, "not yet");
        }
        assert_eq!(secret.valid_nonce(Time::ZERO, u16::MAX), None, "before the start");
    }

    /// The 16-bit nonce index repeats after 22 days, but the 64-bit number of a nonce never repeats.
    #[test]
    fn nonces_never_repeat() {
        let secret = TokenSecret::new(&mut Rng::new(1));
        let home_address = "2001:db8:1::1".parse().expect("address");
        let asker = TestRequester { home_address, public_key: None };
        let at = Time::from_secs(1000);
        let (early, late) = (secret.current_nonce(at), secret.current_nonce(at + NONCE_INTERVAL * 65_536));
        assert_eq!(early.nonce_index(), late.nonce_index());
        assert_ne!(secret.home_token(early, asker), secret.home_token(late, asker));
    }

    #[test]
    fn changed_direct_route_message_does_not_verify() {
        let key = compute_binding_key(1, 2, [3].into_iter());
        let mut message = DirectRoute::new(DirectRouteKind::BindingUpdate);
        message.prefixes = vec!["2001:db8:a::/64".parse().expect("prefix")];
        sign_message(&mut message, &key);
        assert!(verify_message(&message, &key));
        assert!(!verify_message(&message, &super::compute_binding_key(1, 2, [4].into_iter())));
        for changed in [
            DirectRoute { sequence: 1, ..message.clone() },
            DirectRoute { lifetime: 1, ..message.clone() },
            DirectRoute { prefixes: Vec::new(), ..message.clone() },
            DirectRoute { care_of_address: Ipv6Addr::LOCALHOST, ..message.clone() },
        ] {
            assert!(!verify_message(&changed, &key));
        }
    }
}
