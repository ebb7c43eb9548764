//! C interface of a carnet station, for simulators.
//!
//! A simulator that links this crate's static library runs the same station that runs on the road. It is made
//! of the same config file, and driven by frames, packets, positions and the time. The header is
//! `include/carnet_sim.h`, made of this crate by a test.
//!
//! **How to drive it.** Each node of the simulation has a station ([`ffi::carnet_sim_new`]). Each `handle`
//! function takes the time and an input. Then call [`ffi::carnet_sim_poll_output`] until it returns no
//! output, and execute the outputs *after* that, in order. An output that is delivered earlier may lead back
//! into the same node (TCP answers a segment at once). A station that is not drained refuses inputs. Then
//! [`ffi::carnet_sim_deadline`] says when [`ffi::carnet_sim_handle_timeout`] is due; one event per node is
//! enough.
//!
//! **Deterministic.** The library has no clock, thread, global or generator of its own: all random numbers
//! come from the seed. The same calls give the same outputs, to the octet, in every process. With a recording
//! ([`station::Options::record`]) the station writes every input in the format of `station.record`, and
//! `carnet replay` plays it without a simulator.
//!
//! **Panics are contained** if the library was built with unwinding (`cargo build --profile sim`). A panic
//! ends neither the simulation nor another station, but this station refuses everything from then on with
//! [`types::CarnetSimStatus::Panicked`]. Built with `panic = "abort"` (the release profile) a panic ends the
//! process; [`ffi::carnet_sim_contains_panics`] says which it is.
//!
//! **Pointers.** Each function states the objects of its pointers. It refuses null unless its documentation
//! permits it. Lengths are octets. The library keeps no pointer of the caller beyond the call.
//!
//! Left out: an input or output that has no function of its own is JSON, as in a recording
//! ([`ffi::carnet_sim_handle_input`], [`types::CarnetSimOutputKind::Other`]). That is enough for rare ones.

pub mod ffi;
pub mod station;
pub mod types;
