//! Leadership of one home agent among several machines, and its acknowledged records, without I/O.
//!
//! A *seat* is the leadership of a home agent, which mobile routers know by its address. The machines that
//! may lead are its *members*: one member is the leader, all others are standbys. The members share a
//! [`store`]: keys with revisions, as in etcd (KV and Watch services of version 3.4). Transactions compare
//! before they change keys, and members watch the changes in order. [`leadership`] makes the decisions. The
//! connection of a member to the mobile routers influences which member leads, but never lets two members
//! lead.
//!
//! Left out: the store and the connection to it, which the runner has, and the routes to the home agent. The
//! home agent's prefixes are routes of the kernel, which a routing daemon announces.
#![forbid(unsafe_code)]

mod config;
mod failure_pauses;
pub mod leadership;
mod other_members;
mod router_links;
pub mod store;

pub use config::LeadershipConfig;
pub use leadership::{Leadership, MemberRole, Output};
pub use other_members::MEMBER_TIMEOUT;
pub use store::{
    LeaderToken, MemberPresence, RecordChange, RequestId, StoreEvent, StoreKey, StoreRevision, StoreSnapshot,
    StoreTransaction, StoreTransactionOutcome,
};
