//! A link as a model: how long it takes, what it carries, what it loses, how strong its signal is.
//!
//! The lab cannot use the kernel's netem, which many kernels lack. This module models what an uplink does to
//! frames, without clock, socket or thread: every call gives the time. [`way`] is one direction (a queue in
//! octets before a bottleneck, delay and jitter behind it, loss), [`loss`] decides which frame is lost.
//! [`trace`] changes all of it over time from a file, and [`link`] joins two ways, a trace and a signal. All
//! randomness comes from the seed. [`runner`] carries frames between the interfaces of two nodes in real time
//! by this model.
//!
//! Left out: frames that are doubled or spoiled, queues other than first in, first out (no AQM), a medium
//! that both directions share.

pub mod link;
pub mod loss;
pub mod runner;
pub mod trace;
pub mod way;
