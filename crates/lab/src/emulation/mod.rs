//! A model of a link: delay, rate, loss and signal strength.
//!
//! The lab cannot use the kernel's netem, which many kernels lack. This module models how an uplink treats
//! frames, without clock, socket or thread: every call has the time as an argument. [`way`] is one direction
//! (a queue in octets before a bottleneck, delay and jitter behind it, loss), [`loss`] decides which frame is
//! lost. [`trace`] changes all properties over time from a file, and [`link`] joins two directions, a trace
//! and a signal. All randomness comes from the seed. [`runner`] carries frames between the interfaces of two
//! nodes in real time by this model.
//!
//! Left out: duplicated or corrupted frames, queues other than first in, first out (no AQM), a medium that
//! both directions share.

pub mod link;
pub mod loss;
pub mod runner;
pub mod trace;
pub mod way;
