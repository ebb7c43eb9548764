//! State of another mobile router, and of a destination behind which there may be one.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};
use carnet_wire::mobility::DirectRoute;
use carnet_wire::mobility::direct_route::MAX_PREFIXES;
use ipnet::Ipv6Net;

use super::tokens::{Key, MAX_TOKEN_LIFETIME, verify};
use crate::binding_update_list::{self, Renewal, Retransmission};
use crate::path_liveness::{PathLiveness, Proof, RoundTrip};

/// Burst of answers of each kind to a router that has proven that it asked.
const ANSWERS: u32 = 32;
const ANSWER_INTERVAL: Duration = Duration::from_millis(20);
/// Burst of Binding Updates from its care-of address with a wrong key.
const FORGERIES: u32 = 16;
const FORGERY_INTERVAL: Duration = Duration::from_millis(20);
/// Time for which an unproven claim of a network counts; then this router asks for the network again.
const CLAIM_LIFETIME: Duration = Duration::from_secs(480);

/// Age of tokens and registrations at which they are renewed. So there are always tokens for the next
/// handover.
const RENEWAL_AGE: Duration = Duration::from_secs(180);
const _: () = assert!(RENEWAL_AGE.as_secs() < MAX_TOKEN_LIFETIME.as_secs());
const RENEWAL: Renewal = Renewal::AtAge(RENEWAL_AGE);
/// Most questions by the home agents, with waits of 1, 2 and 4 seconds.
const HOME_TRIES: u32 = 3;
const HOME_INTERVAL: Duration = Duration::from_secs(1);
/// Most direct questions, with waits of 250, 500 and 1000 milliseconds.
const STRAIGHT_TRIES: u32 = 3;
const STRAIGHT_INTERVAL: Duration = Duration::from_millis(250);
/// Longest time for an answer. A request with a limit of tries never reaches it.
const LONGEST: Duration = Duration::from_secs(64);

/// Answers in a row after which a failed path is used again.
const PROOF: Proof = Proof { of_failed: 3, of_proving: 3 };

/// Binding of the other router here, with its proven addresses.
#[derive(Debug, Clone)]
pub(super) struct Binding {
    pub(super) care_of_address: Ipv6Addr,
    /// Former care-of address, with the time until which packets from it are accepted.
    pub(super) previous: Option<(Ipv6Addr, Time)>,
    pub(super) prefixes: Vec<Ipv6Net>,
    pub(super) key: Key,
    /// Former key: the other router may not have received the last acknowledgement.
    pub(super) former_key: Option<Key>,
    pub(super) until: Time,
    /// Whether the other router sends packets here, or would.
    pub(super) wanted: bool,
}

impl Binding {
    /// Whether packets from this care-of address are accepted.
    pub(super) fn is_at(&self, care_of_address: Ipv6Addr) -> bool {
        let previous = self.previous.map(|(previous, _)| previous);
        self.care_of_address == care_of_address || previous == Some(care_of_address)
    }

    /// Returns the key of a message, if it is this router's.
    pub(super) fn key_of(&self, message: &DirectRoute) -> Option<Key> {
        [Some(self.key), self.former_key].into_iter().flatten().find(|key| verify(message, key))
    }
}

/// Registration of this router with the other router.
#[derive(Debug, Clone)]
pub(super) struct Registration {
    pub(super) care_of_address: Ipv6Addr,
    pub(super) key: Key,
    /// Time at which the first of the Binding Updates left, from which the lifetime counts.
    pub(super) since: Time,
    pub(super) until: Time,
}

impl Registration {
    /// Returns when to renew this registration.
    pub(super) fn renew_at(&self) -> Time {
        RENEWAL.due(self.since, self.until.saturating_since(self.since))
    }
}

/// Tokens of home address and prefixes.
#[derive(Debug, Clone)]
pub(super) struct HomeTokens {
    pub(super) home: u64,
    pub(super) prefixes: Vec<u64>,
    pub(super) nonce: u16,
    pub(super) since: Time,
}

/// Whether a token that came at `since` need not be renewed yet.
pub(super) fn is_fresh(now: Time, since: Time) -> bool {
    now < RENEWAL.due(since, MAX_TOKEN_LIFETIME)
}

/// Token of a care-of address.
#[derive(Debug, Clone, Copy)]
pub(super) struct CareOfToken {
    pub(super) care_of_address: Ipv6Addr,
    pub(super) token: u64,
    pub(super) nonce: u16,
    pub(super) since: Time,
}

/// Answers to a Home Test Init so far.
#[derive(Debug, Clone, Default)]
pub(super) struct HomeTests {
    /// Token and nonce index of the home address.
    pub(super) home: Option<(u64, u16)>,
    /// Token, nonce index, and care-of address of the answering router, by prefix.
    prefixes: BTreeMap<Ipv6Net, (u64, u16, Ipv6Addr)>,
}

impl HomeTests {
    /// Records a Prefix Test for one of these prefixes; returns false for another prefix.
    pub(super) fn note(&mut self, ours: &[Ipv6Net], prefix: Ipv6Net, test: &DirectRoute) -> bool {
        let is_ours = ours.contains(&prefix);
        if is_ours {
            self.prefixes.insert(prefix, (test.token, test.home_nonce, test.care_of_address));
        }
        is_ours
    }

    /// Returns the tokens, once all have come with one nonce, and the care-of address that came with them.
    pub(super) fn tokens(&self, now: Time, ours: &[Ipv6Net]) -> Option<(HomeTokens, Ipv6Addr)> {
        let (home, nonce) = self.home?;
        let tests: Option<Vec<_>> =
            ours.iter().map(|prefix| self.prefixes.get(prefix).filter(|(_, of, _)| *of == nonce)).collect();
        let tests = tests?;
        let (_, _, care_of_address) = **tests.first()?;
        let prefixes = tests.iter().map(|(token, ..)| *token).collect();
        Some((HomeTokens { home, prefixes, nonce, since: now }, care_of_address))
    }
}

/// Step of a registration.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Home Test Init, with the answers so far.
    Home(HomeTests),
    /// Care-of Test Init.
    CareOf,
    /// Binding Update with this key.
    Update(Key),
}

/// Purpose of an exchange with another router.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) step: Step,
    /// Value that every answer repeats.
    pub(super) cookie: u64,
}

/// A request to another router, by the engine of the Binding Update List. Its care-of address is this
/// router's, except in a Home Test Init, which names none.
pub(super) type Exchange = binding_update_list::Exchange<Question>;

impl Exchange {
    /// Begins to ask for the tokens of home address and prefixes.
    pub(super) fn home_test(cookie: u64, next: Time) -> Exchange {
        let question = Question { step: Step::Home(HomeTests::default()), cookie };
        Exchange::new(question, Vec::new(), next, Retransmission::new(HOME_INTERVAL, LONGEST))
    }

    /// Begins the request of a step; `local` is this router's care-of address.
    pub(super) fn of_step(step: Step, local: Ipv6Addr, cookie: u64, next: Time) -> Exchange {
        let retransmission = Retransmission::new(STRAIGHT_INTERVAL, LONGEST);
        match step {
            Step::Home(_) => Exchange::home_test(cookie, next),
            Step::CareOf | Step::Update(_) => {
                Exchange::new(Question { step, cookie }, vec![local.into()], next, retransmission)
            }
        }
    }

    /// Whether the request was sent as often as it may be.
    pub(super) fn is_exhausted(&self) -> bool {
        let most = if self.home_tests().is_some() { HOME_TRIES } else { STRAIGHT_TRIES };
        self.retransmission.rounds() >= most
    }

    /// Returns the answers to a Home Test Init so far; `None` in another step.
    pub(super) fn home_tests(&self) -> Option<&HomeTests> {
        match &self.purpose.step {
            Step::Home(tests) => Some(tests),
            Step::CareOf | Step::Update(_) => None,
        }
    }

    /// Returns the answers to a Home Test Init so far, to be extended.
    pub(super) fn home_tests_mut(&mut self) -> Option<&mut HomeTests> {
        match &mut self.purpose.step {
            Step::Home(tests) => Some(tests),
            Step::CareOf | Step::Update(_) => None,
        }
    }

    /// Whether the request is about this care-of address.
    pub(super) fn is_from(&self, local: Ipv6Addr) -> bool {
        self.care_of_addresses.contains(&local.into())
    }
}

/// Sequence numbers of routers that are no longer in the table, while their Binding Updates could be
/// replayed.
#[derive(Debug, Default)]
pub(super) struct Memory(BTreeMap<Ipv6Addr, (u16, Time)>);

impl Memory {
    /// Most entries in the memory; those that last longest are kept.
    const MOST: usize = 128;

    pub(super) fn keep(&mut self, now: Time, home_address: Ipv6Addr, peer: &Peer) {
        let Some(heard) = peer.heard else { return };
        self.0.retain(|_, (_, until)| *until > now);
        self.0.insert(home_address, heard);
        if self.0.len() > Memory::MOST
            && let Some(first) = self.0.iter().min_by_key(|(_, (_, until))| *until).map(|(of, _)| *of)
        {
            self.0.remove(&first);
        }
    }

    pub(super) fn of(&self, now: Time, home_address: Ipv6Addr) -> Option<(u16, Time)> {
        self.0.get(&home_address).copied().filter(|(_, until)| *until > now)
    }
}

/// Another mobile router.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// An address of a proven or claimed network of the router, by which its party is found.
    pub(super) network: Ipv6Addr,
    pub(super) binding: Option<Binding>,
    /// Sequence number of its last Binding Update, with the time until which the update could be replayed.
    pub(super) heard: Option<(u16, Time)>,
    pub(super) registration: Option<Registration>,
    pub(super) home: Option<HomeTokens>,
    pub(super) care_of: Option<CareOfToken>,
    pub(super) exchange: Option<Exchange>,
    /// Sequence number of the last Binding Update to the other router.
    pub(super) sequence: u16,
    /// Care-of address of the router, as far as is known.
    pub(super) remote: Option<Ipv6Addr>,
    /// Whether no test or Binding Update was answered from there.
    pub(super) mute: bool,
    /// Index of this router's care-of address that is tried.
    pub(super) choice: usize,
    /// Networks that the router claims, of those that were asked for, with the end of each claim.
    claims: Vec<(Ipv6Net, Time)>,
    /// Heartbeats on the path in use, by their cookies.
    pub(super) heartbeats: PathLiveness<u64>,
    /// Time of the last packet to the router.
    pub(super) used: Option<Time>,
    /// Time before which nothing is asked.
    pub(super) hold: Time,
    pub(super) failures: u32,
    /// Whether packets go directly.
    pub(super) direct: bool,
    pub(super) since: Time,
    pub(super) reason: &'static str,
    /// Rate of answers to tests that have proven to be the router's.
    pub(super) answers: RateLimiter,
    /// Rate of answers to its heartbeats.
    pub(super) beats: RateLimiter,
    /// Rate of Binding Updates that strangers forge in the router's name.
    pub(super) forgeries: RateLimiter,
    pub(super) due: Time,
}

impl Peer {
    pub(super) fn new(now: Time, network: Ipv6Net) -> Peer {
        Peer {
            network: network.network(),
            binding: None,
            heard: None,
            registration: None,
            home: None,
            care_of: None,
            exchange: None,
            sequence: 0,
            remote: None,
            mute: false,
            choice: 0,
            claims: Vec::new(),
            heartbeats: PathLiveness::new(PROOF, RoundTrip::default()),
            used: None,
            hold: Time::ZERO,
            failures: 0,
            direct: false,
            since: now,
            reason: "being asked",
            answers: RateLimiter::new(ANSWERS, ANSWER_INTERVAL),
            beats: RateLimiter::new(ANSWERS, ANSWER_INTERVAL),
            forgeries: RateLimiter::new(FORGERIES, FORGERY_INTERVAL),
            due: now,
        }
    }

    /// Returns the networks of the router, proven or claimed.
    pub(super) fn prefixes(&self) -> Vec<Ipv6Net> {
        match &self.binding {
            Some(binding) => binding.prefixes.clone(),
            None => self.claims.iter().map(|(prefix, _)| *prefix).collect(),
        }
    }

    /// Whether packets to this destination are for the router.
    pub(super) fn has(&self, now: Time, destination: Ipv6Addr) -> bool {
        match &self.binding {
            Some(binding) => binding.prefixes.iter().any(|prefix| prefix.contains(&destination)),
            None => self.claims.iter().any(|(prefix, until)| *until > now && prefix.contains(&destination)),
        }
    }

    /// Records the claim of a network that was asked for.
    pub(super) fn claim(&mut self, now: Time, prefix: Ipv6Net) {
        self.claims.retain(|(known, until)| *known != prefix && *until > now);
        if self.claims.len() < MAX_PREFIXES {
            self.claims.push((prefix, now + CLAIM_LIFETIME));
        }
    }

    /// Removes claims that another router has disproven.
    pub(super) fn disclaim(&mut self, proven: &[Ipv6Net]) {
        self.claims.retain(|(prefix, _)| !proven.contains(prefix));
    }

    /// Whether the outstanding exchange expects this cookie.
    pub(super) fn awaits(&self, cookie: u64) -> bool {
        self.exchange.as_ref().is_some_and(|exchange| exchange.purpose.cookie == cookie)
    }
}

/// A network to which packets go, and which may have a mobile router.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// Address that is asked.
    pub(super) destination: Ipv6Addr,
    /// The Home Test Init, also while the network is not asked for a while.
    pub(super) exchange: Exchange,
    pub(super) failures: u32,
    pub(super) used: Time,
}

impl Candidate {
    /// Whether the question expects this cookie.
    pub(super) fn awaits(&self, cookie: u64) -> bool {
        self.exchange.purpose.cookie == cookie
    }
}
