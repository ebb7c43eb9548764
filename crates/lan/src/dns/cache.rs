//! Cache of the answers of DNS servers, until their time to live is over (RFC 1035 7.4, RFC 2308).
//!
//! The cache has a maximum size in octets. If it is full, it removes the answers that would expire next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use carnet_base::Time;

use super::message::{Answer, Query, Question};

/// Maximum memory of all answers, in octets. The next constant is the maximum for one answer.
const MAX_SIZE: usize = 512 << 10;
const MAX_ANSWER: usize = 16 << 10;
/// Memory in octets that an entry takes in addition to its answer: keys, and nodes of the maps.
const OVERHEAD: usize = 256;
/// Maximum time in seconds for which an answer is stored. A negative answer has a shorter time (RFC 2308 5).
const MAX_LIFETIME: u32 = 86_400;
const MAX_NEGATIVE: u32 = 3600;

/// Key of an answer in the cache. It contains whether the client wants signatures and whether it disables
/// checks, because the answers differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheKey {
    question: Question,
    wants_signatures: bool,
    disables_checks: bool,
}

impl CacheKey {
    /// Returns the key of a query.
    pub fn of(query: &Query) -> CacheKey {
        CacheKey {
            question: query.question.clone(),
            wants_signatures: query.wants_signatures(),
            disables_checks: query.disables_checks(),
        }
    }

    /// Returns the question.
    pub fn question(&self) -> &Question {
        &self.question
    }
}

#[derive(Debug)]
struct Entry {
    answer: Answer,
    since: Time,
    expires: Time,
}

/// The cache.
#[derive(Debug, Default)]
pub struct Cache {
    entries: BTreeMap<CacheKey, Entry>,
    by_expiry: BTreeSet<(Time, CacheKey)>,
    size: usize,
}

impl Cache {
    /// Returns the stored answer to a query in the form for its client; `None` if the cache has none.
    pub fn answer(&self, now: Time, query: &Query) -> Option<Vec<u8>> {
        let entry = self.entries.get(&CacheKey::of(query)).filter(|entry| now < entry.expires)?;
        let age = now.saturating_since(entry.since).as_secs();
        query.answer(&entry.answer, u32::try_from(age).ok()?)
    }

    /// Stores an answer that has a lifetime and is not too large. An answer with `is_negative` (no such name
    /// or no such record) is stored for a shorter time.
    pub fn store(&mut self, now: Time, key: CacheKey, answer: &Answer, is_negative: bool) {
        let limit = if is_negative { MAX_NEGATIVE } else { MAX_LIFETIME };
        let Some(lifetime) = answer.lifetime.map(|it| it.min(limit)).filter(|it| *it > 0) else { return };
        if answer.size() > MAX_ANSWER {
            return;
        }
        self.remove(&key);
        let expires = now + Duration::from_secs(lifetime.into());
        self.size += size(&key, answer);
        self.by_expiry.insert((expires, key.clone()));
        self.entries.insert(key, Entry { answer: answer.clone(), since: now, expires });
        while self.size > MAX_SIZE {
            let Some((_, first)) = self.by_expiry.first().cloned() else { return };
            self.remove(&first);
        }
    }

    /// Removes expired answers.
    pub fn expire(&mut self, now: Time) {
        while let Some((_, key)) = self.by_expiry.first().filter(|(expires, _)| *expires <= now).cloned() {
            self.remove(&key);
        }
    }

    /// Returns the number of answers.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory of the answers, in octets.
    pub fn size(&self) -> usize {
        self.size
    }

    fn remove(&mut self, key: &CacheKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.size -= size(key, &entry.answer);
            self.by_expiry.remove(&(entry.expires, key.clone()));
        }
    }
}

fn size(key: &CacheKey, answer: &Answer) -> usize {
    OVERHEAD + 2 * key.question.name.len() + answer.size()
}
