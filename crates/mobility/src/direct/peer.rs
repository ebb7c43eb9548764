//! State of another mobile router, and of a network that may have a mobile router.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};
use carnet_wire::mobility::DirectRoute;
use carnet_wire::mobility::direct_route::MAX_PREFIXES;
use ipnet::Ipv6Net;

use super::session_keys::{PublicKey, SessionKeys};
use super::tokens::{BindingManagementKey, MAX_TOKEN_LIFETIME, verify_message};
use crate::SessionPeer;
use crate::binding_update_list::{self, RenewalRule, Retransmission};
use crate::path_liveness::{PathLiveness, RequiredAnswers, RoundTrip};

/// Number of answers of each kind that this router may send at once to another router that authenticates its
/// requests.
const ANSWER_BURST: u32 = 32;
const ANSWER_INTERVAL: Duration = Duration::from_millis(20);
/// Number of Binding Updates with a wrong key that this router verifies at once if they come from the other
/// router's care-of address. [`FORGERY_INTERVAL`] is the interval for each further one.
const FORGERY_BURST: u32 = 16;
const FORGERY_INTERVAL: Duration = Duration::from_millis(20);
/// Time for which this router believes an unproven claim of a network. Then it asks for the network again.
const PREFIX_CLAIM_LIFETIME: Duration = Duration::from_secs(480);

/// Age of tokens and registrations at which this router renews them, so that it always has valid tokens for a
/// handover.
const REGISTRATION_RENEWAL_AGE: Duration = Duration::from_secs(180);
const _: () = assert!(REGISTRATION_RENEWAL_AGE.as_secs() < MAX_TOKEN_LIFETIME.as_secs());
const REGISTRATION_RENEWAL_RULE: RenewalRule = RenewalRule::AtAge(REGISTRATION_RENEWAL_AGE);
/// Maximum number of requests through the home agents. The router waits 1, 2 and 4 s for the answers.
const HOME_TEST_TRIES: u32 = 3;
const HOME_TEST_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of direct requests. The router waits 250, 500 and 1000 ms for the answers.
const DIRECT_REQUEST_TRIES: u32 = 3;
const DIRECT_REQUEST_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum time to wait for an answer. Requests with a maximum number of transmissions end before they reach
/// it.
const MAX_RETRANSMISSION_TIMEOUT: Duration = Duration::from_secs(64);

/// Number of answers in a row after which the router uses a failed path again.
const ANSWERS_BEFORE_REUSE: RequiredAnswers =
    RequiredAnswers { after_failure: 3, after_other_sign_of_life: 3 };

/// Binding of the other router at this router, with its proven addresses.
#[derive(Debug, Clone)]
pub(super) struct Binding {
    pub(super) care_of_address: Ipv6Addr,
    /// Former care-of address, with the time until which this router accepts packets from it. `None`
    /// without such an address.
    pub(super) former_care_of_address: Option<(Ipv6Addr, Time)>,
    pub(super) prefixes: Vec<Ipv6Net>,
    /// Key of the other router's encrypted sessions; `None` for a route in the clear.
    pub(super) public_key: Option<PublicKey>,
    pub(super) key: BindingManagementKey,
    /// Former key, which is still accepted: the other router does not know the new one if the last
    /// acknowledgement was lost.
    pub(super) former_key: Option<BindingManagementKey>,
    pub(super) expires_at: Time,
    /// Whether the other router sends packets to this router, or has packets to send.
    pub(super) is_route_wanted: bool,
}

impl Binding {
    /// Returns the session that carries packets and messages of the binding; `None` in the clear.
    pub(super) fn session(&self, keys: &SessionKeys) -> Option<SessionPeer> {
        keys.session_of(self.public_key?)
    }

    /// Returns whether this router accepts packets from this care-of address.
    pub(super) fn accepts_care_of_address(&self, care_of_address: Ipv6Addr) -> bool {
        let previous = self.former_care_of_address.map(|(previous, _)| previous);
        self.care_of_address == care_of_address || previous == Some(care_of_address)
    }

    /// Returns the key that authenticates a message; `None` if none of the binding's keys does.
    pub(super) fn authenticating_key(&self, message: &DirectRoute) -> Option<BindingManagementKey> {
        [Some(self.key), self.former_key].into_iter().flatten().find(|key| verify_message(message, key))
    }
}

/// Registration of this router with the other router.
#[derive(Debug, Clone)]
pub(super) struct Registration {
    pub(super) care_of_address: Ipv6Addr,
    pub(super) key: BindingManagementKey,
    /// Time at which this router first sent the acknowledged Binding Update. The lifetime begins then.
    pub(super) sent_at: Time,
    pub(super) expires_at: Time,
}

impl Registration {
    /// Returns when to renew this registration.
    pub(super) fn renew_at(&self) -> Time {
        REGISTRATION_RENEWAL_RULE.renewal_time(self.sent_at, self.expires_at.saturating_since(self.sent_at))
    }
}

/// Tokens for the home address and the prefixes of this router.
#[derive(Debug, Clone)]
pub(super) struct HomeTokens {
    pub(super) home_token: u64,
    pub(super) prefix_tokens: Vec<u64>,
    pub(super) nonce_index: u16,
    pub(super) received_at: Time,
}

/// Returns whether a token is still too young to be renewed.
pub(super) fn is_token_fresh(now: Time, received_at: Time) -> bool {
    now < REGISTRATION_RENEWAL_RULE.renewal_time(received_at, MAX_TOKEN_LIFETIME)
}

/// Token of a care-of address.
#[derive(Debug, Clone, Copy)]
pub(super) struct CareOfToken {
    pub(super) care_of_address: Ipv6Addr,
    pub(super) care_of_token: u64,
    pub(super) nonce_index: u16,
    pub(super) received_at: Time,
}

/// Values that are equal in all answers to one Home Test Init.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NonceAndKey {
    nonce_index: u16,
    /// Public key that the answering router has named; `None` if it has named none.
    public_key: Option<PublicKey>,
}

impl NonceAndKey {
    fn of(test: &DirectRoute) -> NonceAndKey {
        NonceAndKey { nonce_index: test.home_nonce, public_key: test.public_key }
    }
}

/// The answers to a Home Test Init that have arrived.
#[derive(Debug, Clone, Default)]
pub(super) struct HomeTests {
    /// Token from the Home Test; `None` until the Home Test has arrived.
    home_test: Option<(u64, NonceAndKey)>,
    /// Token, and care-of address of the answering router, for each prefix of this router.
    prefix_tests: BTreeMap<Ipv6Net, (u64, Ipv6Addr, NonceAndKey)>,
}

/// A complete set of answers to a Home Test Init.
#[derive(Debug, Clone)]
pub(super) struct CompleteHomeTests {
    pub(super) tokens: HomeTokens,
    /// Care-of address of the answering router.
    pub(super) care_of_address: Ipv6Addr,
    /// Public key that the answering router has named; `None` if it has named none.
    pub(super) public_key: Option<PublicKey>,
}

impl HomeTests {
    /// Records the Home Test.
    pub(super) fn record_home_test(&mut self, test: &DirectRoute) {
        self.home_test = Some((test.keygen_token, NonceAndKey::of(test)));
    }

    /// Records a Prefix Test for one of these prefixes. Returns false if the test is for another prefix.
    pub(super) fn record_prefix_test(
        &mut self,
        ours: &[Ipv6Net],
        prefix: Ipv6Net,
        test: &DirectRoute,
    ) -> bool {
        let is_ours = ours.contains(&prefix);
        if is_ours {
            let origin = NonceAndKey::of(test);
            self.prefix_tests.insert(prefix, (test.keygen_token, test.care_of_address, origin));
        }
        is_ours
    }

    /// Returns the tokens; `None` until all answers have arrived with one nonce and one key.
    pub(super) fn received_tokens(&self, now: Time, ours: &[Ipv6Net]) -> Option<CompleteHomeTests> {
        let (home, origin) = self.home_test?;
        let tests: Option<Vec<_>> = ours
            .iter()
            .map(|prefix| self.prefix_tests.get(prefix).filter(|(.., of)| *of == origin))
            .collect();
        let tests = tests?;
        let (_, care_of_address, _) = **tests.first()?;
        let prefixes = tests.iter().map(|(token, ..)| *token).collect();
        let tokens = HomeTokens {
            home_token: home,
            prefix_tokens: prefixes,
            nonce_index: origin.nonce_index,
            received_at: now,
        };
        Some(CompleteHomeTests { tokens, care_of_address, public_key: origin.public_key })
    }
}

/// The request whose answer is outstanding.
#[derive(Debug, Clone)]
pub(super) enum PeerRequest {
    /// Home Test Init, with the answers so far.
    Home(HomeTests),
    /// Care-of Test Init.
    CareOf,
    /// Binding Update that this key authenticates.
    Update(BindingManagementKey),
}

/// Purpose of an exchange with another router.
#[derive(Debug, Clone)]
pub(super) struct DirectPurpose {
    pub(super) peer_request: PeerRequest,
    /// Random value of the request, which each answer must repeat.
    pub(super) cookie: u64,
}

/// A request to another router. It uses the state machine of the Binding Update List. Its care-of address is
/// that of this router; a Home Test Init has none.
pub(super) type Exchange = binding_update_list::Exchange<DirectPurpose>;

impl Exchange {
    /// Creates the request for the tokens of the home address and the prefixes.
    pub(super) fn home_test(cookie: u64, next: Time) -> Exchange {
        let purpose = DirectPurpose { peer_request: PeerRequest::Home(HomeTests::default()), cookie };
        Exchange::new(
            purpose,
            Vec::new(),
            next,
            Retransmission::new(HOME_TEST_INTERVAL, MAX_RETRANSMISSION_TIMEOUT),
        )
    }

    /// Creates the exchange of a request; `local` is this router's care-of address.
    pub(super) fn for_request(request: PeerRequest, local: Ipv6Addr, cookie: u64, next: Time) -> Exchange {
        let retransmission = Retransmission::new(DIRECT_REQUEST_INTERVAL, MAX_RETRANSMISSION_TIMEOUT);
        match request {
            PeerRequest::Home(_) => Exchange::home_test(cookie, next),
            PeerRequest::CareOf | PeerRequest::Update(_) => Exchange::new(
                DirectPurpose { peer_request: request, cookie },
                vec![local.into()],
                next,
                retransmission,
            ),
        }
    }

    /// Returns whether the request was sent the maximum number of times.
    pub(super) fn is_exhausted(&self) -> bool {
        let most = if self.home_tests().is_some() { HOME_TEST_TRIES } else { DIRECT_REQUEST_TRIES };
        self.retransmission.unanswered_rounds() >= most
    }

    /// Returns the answers to a Home Test Init so far; `None` for another request.
    pub(super) fn home_tests(&self) -> Option<&HomeTests> {
        match &self.purpose.peer_request {
            PeerRequest::Home(tests) => Some(tests),
            PeerRequest::CareOf | PeerRequest::Update(_) => None,
        }
    }

    /// Returns the answers to a Home Test Init so far, so that the caller can change them; `None` for another
    /// request.
    pub(super) fn home_tests_mut(&mut self) -> Option<&mut HomeTests> {
        match &mut self.purpose.peer_request {
            PeerRequest::Home(tests) => Some(tests),
            PeerRequest::CareOf | PeerRequest::Update(_) => None,
        }
    }

    /// Returns whether this router sends the request from this care-of address.
    pub(super) fn uses_care_of_address(&self, local: Ipv6Addr) -> bool {
        self.care_of_addresses.contains(&local.into())
    }
}

/// Last sequence numbers of routers that are no longer in the table. Without them an attacker could replay
/// the Binding Updates of such a router.
#[derive(Debug, Default)]
pub(super) struct RemovedSequenceNumbers(BTreeMap<Ipv6Addr, (u16, Time)>);

impl RemovedSequenceNumbers {
    /// Maximum number of entries. If the map has more, this router removes the entry that expires first.
    const MAX_REMOVED_NUMBERS: usize = 128;

    pub(super) fn store_sequence_number(&mut self, now: Time, home_address: Ipv6Addr, peer: &Peer) {
        let Some(heard) = peer.last_sequence else { return };
        self.0.retain(|_, (_, until)| *until > now);
        self.0.insert(home_address, heard);
        if self.0.len() > RemovedSequenceNumbers::MAX_REMOVED_NUMBERS
            && let Some(first) = self.0.iter().min_by_key(|(_, (_, until))| *until).map(|(of, _)| *of)
        {
            self.0.remove(&first);
        }
    }

    pub(super) fn find_sequence_number(&self, now: Time, home_address: Ipv6Addr) -> Option<(u16, Time)> {
        self.0.get(&home_address).copied().filter(|(_, until)| *until > now)
    }
}

/// Another mobile router.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// An address of a proven or claimed network of the router; its high bits identify the router's network
    /// in [`super::peer_replacement`].
    pub(super) network_address: Ipv6Addr,
    pub(super) binding: Option<Binding>,
    /// Sequence number of the router's last Binding Update, and the time until which an attacker could replay
    /// this update. `None` if no update can be replayed.
    pub(super) last_sequence: Option<(u16, Time)>,
    pub(super) registration: Option<Registration>,
    pub(super) home_tokens: Option<HomeTokens>,
    pub(super) care_of_token: Option<CareOfToken>,
    pub(super) outstanding_exchange: Option<Exchange>,
    /// Sequence number of the last Binding Update to the other router.
    pub(super) sequence: u16,
    /// Last known care-of address of the router; `None` if none is known.
    pub(super) remote_care_of_address: Option<Ipv6Addr>,
    /// Last known key of the router's encrypted sessions; `None` if none is known.
    pub(super) remote_key: Option<PublicKey>,
    /// Whether the other router has answered without a key, although this router demands one.
    pub(super) lacks_session_key: bool,
    /// Whether tests and Binding Updates to `remote_care_of_address` got no answer.
    pub(super) are_requests_unanswered: bool,
    /// Index of the care-of address of this router that it registers with the other router.
    pub(super) care_of_index: usize,
    /// Networks for which this router asked and which the other router claims, with the end of each claim.
    claimed_networks: Vec<(Ipv6Net, Time)>,
    /// Heartbeats on the path in use; a cookie identifies each heartbeat.
    pub(super) heartbeats: PathLiveness<u64>,
    /// Time of the last packet to the router; `None` before the first packet.
    pub(super) last_used_at: Option<Time>,
    /// Time before which this router sends no request to the other router, because earlier requests failed.
    pub(super) paused_until: Time,
    pub(super) failure_count: u32,
    /// Whether packets to the other router's networks take the direct route.
    pub(super) is_direct: bool,
    pub(super) state_since: Time,
    pub(super) state_reason: &'static str,
    /// Rate limit of this router's answers to authenticated tests of the other router.
    pub(super) test_answer_limit: RateLimiter,
    /// Rate limit of this router's answers to heartbeats of the other router.
    pub(super) heartbeat_answer_limit: RateLimiter,
    /// Rate limit of Binding Updates with the other router's home address and a wrong authenticator.
    pub(super) forged_update_limit: RateLimiter,
    pub(super) next_check_at: Time,
}

impl Peer {
    pub(super) fn new(now: Time, network: Ipv6Net) -> Peer {
        Peer {
            network_address: network.network(),
            binding: None,
            last_sequence: None,
            registration: None,
            home_tokens: None,
            care_of_token: None,
            outstanding_exchange: None,
            sequence: 0,
            remote_care_of_address: None,
            remote_key: None,
            lacks_session_key: false,
            are_requests_unanswered: false,
            care_of_index: 0,
            claimed_networks: Vec::new(),
            heartbeats: PathLiveness::new(ANSWERS_BEFORE_REUSE, RoundTrip::default()),
            last_used_at: None,
            paused_until: Time::ZERO,
            failure_count: 0,
            is_direct: false,
            state_since: now,
            state_reason: "being asked",
            test_answer_limit: RateLimiter::new(ANSWER_BURST, ANSWER_INTERVAL),
            heartbeat_answer_limit: RateLimiter::new(ANSWER_BURST, ANSWER_INTERVAL),
            forged_update_limit: RateLimiter::new(FORGERY_BURST, FORGERY_INTERVAL),
            next_check_at: now,
        }
    }

    /// Returns the networks of the router, proven or claimed.
    pub(super) fn all_networks(&self) -> Vec<Ipv6Net> {
        match &self.binding {
            Some(binding) => binding.prefixes.clone(),
            None => self.claimed_networks.iter().map(|(prefix, _)| *prefix).collect(),
        }
    }

    /// Returns whether a destination is in a network of the router.
    pub(super) fn has_network_containing(&self, now: Time, destination: Ipv6Addr) -> bool {
        match &self.binding {
            Some(binding) => binding.prefixes.iter().any(|prefix| prefix.contains(&destination)),
            None => self
                .claimed_networks
                .iter()
                .any(|(prefix, until)| *until > now && prefix.contains(&destination)),
        }
    }

    /// Records that the router claims a network for which this router asked.
    pub(super) fn record_prefix_claim(&mut self, now: Time, prefix: Ipv6Net) {
        self.claimed_networks.retain(|(known, until)| *known != prefix && *until > now);
        if self.claimed_networks.len() < MAX_PREFIXES {
            self.claimed_networks.push((prefix, now + PREFIX_CLAIM_LIFETIME));
        }
    }

    /// Removes claims of networks that another router has proven to have.
    pub(super) fn remove_proven_claims(&mut self, proven: &[Ipv6Net]) {
        self.claimed_networks.retain(|(prefix, _)| !proven.contains(prefix));
    }

    /// Returns whether an outstanding request has this cookie.
    pub(super) fn awaits_answer_with_cookie(&self, cookie: u64) -> bool {
        self.outstanding_exchange.as_ref().is_some_and(|exchange| exchange.purpose.cookie == cookie)
    }
}

/// A network to which packets go, and which may have a mobile router with direct routes.
#[derive(Debug, Clone)]
pub(super) struct CandidateNetwork {
    /// Address in the network to which this router sends Home Test Inits.
    pub(super) destination: Ipv6Addr,
    /// The Home Test Init; it stays stored during the pause after unanswered requests.
    pub(super) home_test_exchange: Exchange,
    pub(super) failure_count: u32,
    pub(super) last_used_at: Time,
}

impl CandidateNetwork {
    /// Returns whether the answer to the request must have this cookie.
    pub(super) fn awaits_answer_with_cookie(&self, cookie: u64) -> bool {
        self.home_test_exchange.purpose.cookie == cookie
    }
}
