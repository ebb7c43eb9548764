//! Models links with delay, rate, loss and signal strength.
//!
//! The lab cannot use the kernel's netem, which many kernels lack. This module models how an uplink treats
//! frames, without clock, socket or thread: every call has the time as an argument. [`way`] is one direction,
//! with a queue in octets before a bottleneck, and delay, jitter and loss after it. [`loss`] decides which
//! frames are lost. [`trace`] changes all properties over time from a file, and [`link`] joins two
//! directions, a trace and a signal. All randomness comes from the seed. [`runner`] carries frames between
//! the interfaces of two nodes in real time by this model.
//!
//! Left out: duplicated or corrupted frames, queues other than first in, first out (no AQM), a medium that
//! both directions share.

pub mod link;
pub mod loss;
pub mod runner;
pub mod trace;
pub mod way;
