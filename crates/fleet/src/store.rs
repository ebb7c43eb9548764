//! Requests to the store, and its answers.
//!
//! All keys of a seat have a common prefix, which the caller knows. A transaction always compares the
//! revision of [`StoreKey::Owner`]. The store must be able to compare and put several keys in one step.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Number of a change of the store. The revision of a key is that of the last change that wrote the key; 0 if
/// the key does not exist.
pub type StoreRevision = u64;

/// Number of a transaction, by which its outcome is found.
pub type RequestId = u64;

/// A key without the prefix of its seat.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreKey {
    /// Key of the leader; its value is a [`LeaderToken`].
    Owner,
    /// Key of a member; its value is a [`MemberPresence`]. A standby writes it each second. A leader writes
    /// it if it is cut off, to ask the other members.
    Member(String),
    /// Key in etcd of a record of the home agent. The string is the key that the home agent gave the record.
    Record(String),
}

impl fmt::Display for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreKey::Owner => f.write_str("owner"),
            StoreKey::Member(name) => write!(f, "member/{name}"),
            StoreKey::Record(key) => write!(f, "record/{key}"),
        }
    }
}

impl StoreKey {
    /// Returns the key with this name; `None` if no version of carnet writes such a key.
    pub fn of_name(name: &str) -> Option<StoreKey> {
        match name.split_once('/') {
            None if name == "owner" => Some(StoreKey::Owner),
            Some(("member", rest)) if !rest.is_empty() => Some(StoreKey::Member(rest.to_owned())),
            Some(("record", rest)) if !rest.is_empty() => Some(StoreKey::Record(rest.to_owned())),
            _ => None,
        }
    }
}

/// Value of [`StoreKey::Owner`]. No two transactions ever write the same token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderToken {
    /// Name of the member that wrote the token.
    pub member: String,
    /// Number of the member's process, chosen at random at its start.
    pub process: u64,
    /// Number of the transaction in this process.
    pub count: u64,
    /// State of the leadership.
    pub state: TokenState,
}

/// State that the leader announces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    /// The member leads, and its home agent is starting.
    Starting,
    /// The member leads, and its home agent works.
    Working,
    /// The leader gives the leadership up: to a certain member, or to the first that takes it.
    Free(Option<String>),
}

impl LeaderToken {
    /// Returns the token in its text form.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads the text form of a token; `None` if the text is not a token of this version.
    pub fn from_text(text: &str) -> Option<LeaderToken> {
        serde_json::from_str(text).ok()
    }
}

/// Value of [`StoreKey::Member`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemberPresence {
    /// Number of the member's process.
    pub process: u64,
    /// Whether the member does not reach the mobile routers, or has reached them again only for a short time.
    #[serde(default)]
    pub cut_off: bool,
    /// Whether the member has another private key for encrypted sessions than the fleet. Then `cut_off` is
    /// true as well, because earlier versions read only this field.
    #[serde(default)]
    pub has_other_key: bool,
}

impl MemberPresence {
    /// Returns the presence in its text form.
    pub fn to_text(self) -> String {
        serde_json::to_string(&self).unwrap_or_default()
    }

    /// Reads the text form of a presence. A text of another version counts as not cut off.
    pub fn from_text(text: &str) -> MemberPresence {
        serde_json::from_str(text).unwrap_or_default()
    }
}

/// Key of a record and its new value; `None` if the record is deleted.
pub type RecordChange = (String, Option<String>);

/// A change that the store makes completely or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreTransaction {
    /// Required revision of [`StoreKey::Owner`]; otherwise the store refuses the transaction.
    pub expected_owner_revision: StoreRevision,
    /// New token in [`StoreKey::Owner`].
    pub token: LeaderToken,
    /// Changes of records.
    pub changes: Vec<RecordChange>,
}

/// Result of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreTransactionOutcome {
    /// The store has executed the transaction and assigned this revision.
    Done(StoreRevision),
    /// The store refused the transaction, because [`StoreKey::Owner`] has another revision. The outcome has
    /// this revision and the token; `None` if the token is unknown.
    Refused(StoreRevision, Option<LeaderToken>),
    /// The result is unknown: the store sent no answer, or an error.
    Unknown,
}

/// A change of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreEvent {
    /// The changed key.
    pub key: StoreKey,
    /// New value of the key; `None` if the key was removed.
    pub value: Option<String>,
}

/// All keys of a seat at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreSnapshot {
    /// Revision of the store at this moment.
    pub revision: StoreRevision,
    /// Revision of [`StoreKey::Owner`].
    pub owner_revision: StoreRevision,
    /// Keys and values.
    pub keys_with_values: Vec<(StoreKey, String)>,
}
