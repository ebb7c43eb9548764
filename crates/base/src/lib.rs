//! Time, timers, randomness and small types that all carnet crates use.
//!
//! No function of this crate performs I/O or reads a clock: the caller passes the time. The monotonic
//! [`Time`] drives every timer; [`WallTime`] exists for the few fields on the wire that carry a date.
#![forbid(unsafe_code)]

mod endpoint;
pub mod hex;
mod key;
mod limiter;
mod link;
pub mod mapped;
mod optional_part;
mod rng;
mod shrinking_queue;
mod small_list;
mod small_map;
mod status;
mod time;
mod timer;

pub use endpoint::{Endpoint, ParseEndpointError};
pub use key::Key;
pub use limiter::{RateLimiter, TokenBucketRate};
pub use link::{Address, DefaultRoute, Interface, Ipv4Router, Ipv6Router, LinkMessage, NeighbourState};
pub use optional_part::OptionalPart;
pub use rng::{Rng, Seed};
pub use shrinking_queue::pop_and_shrink;
pub use small_list::SmallList;
pub use small_map::SmallMap;
pub use status::{Counters, Role};
pub use time::{Time, WallTime};
pub use timer::TimerTable;

/// Reason for which a protocol dropped a packet.
///
/// Each protocol has its own enum. The name of a reason is the log field, the metric label
/// (`<area>.dropped.<name>`) and the value that tests compare.
pub trait DropReason: Copy + Eq + std::fmt::Debug {
    /// Returns the reason in `snake_case`, as in `carnet show counters`.
    fn name(self) -> &'static str;
}

/// Declares a `DropReason` enum: the variants with their documentation, and their names for counters.
///
/// ```
/// carnet_base::drop_reasons! {
///     /// Why the example dropped a packet.
///     pub enum ExampleDrop {
///         /// It was too short.
///         TooShort = "too_short",
///     }
/// }
/// use carnet_base::DropReason;
/// assert_eq!(ExampleDrop::TooShort.name(), "too_short");
/// ```
#[macro_export]
macro_rules! drop_reasons {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant,)* }

        impl $name {
            /// Every reason, in order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
        }

        impl $crate::DropReason for $name {
            fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($crate::DropReason::name(*self))
            }
        }
    };
}
