//! Parts of virtual worlds for tests: a [`Timeline`] of events, a [`Link`] that loses, doubles, delays and
//! reorders packets, interfaces, and packets. Equal seeds give equal runs.
//!
//! The code of each world has its own clock (`now`) and its own machines. It sets the clock to the earliest
//! of [`Timeline::next_event_at`] and the timers of its machines. The world also decides which machine acts
//! first at that time, because recorded schedules depend on this order.
//!
//! The crate is for tests only: no crate of the product has it as a normal dependency.
#![forbid(unsafe_code)]

mod interface;
mod link;
mod packet;
mod timeline;

pub use interface::{configured_address, configured_addresses, running_interface};
pub use link::Link;
pub use packet::{address, data_packet, filled_packet, packet, prefix};
pub use timeline::Timeline;
