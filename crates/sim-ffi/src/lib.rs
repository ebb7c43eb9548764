//! C interface of a carnet station, for simulators.
//!
//! A simulator that links this crate's static library runs the same station that runs on the road. The
//! station is created from the same config file. Frames, packets, positions and the time drive it. The header
//! is `include/carnet_sim.h`; a test generates it from this crate.
//!
//! **How to drive it.** Each node of the simulation has a station ([`ffi::carnet_sim_new`]). Each `handle`
//! function takes the time and an input. After each call, the simulator calls [`ffi::carnet_sim_poll_output`]
//! until it returns no output. It executes the outputs in order, but only *after* that. An output executed
//! earlier could cause the next input of the same node (TCP answers a segment at once). Until the simulator
//! has taken all outputs, the station refuses inputs. Finally, [`ffi::carnet_sim_deadline`] says when
//! [`ffi::carnet_sim_handle_timeout`] is due; one event per node is enough.
//!
//! **Deterministic.** The library has no clock, thread, global or random generator of its own: all random
//! numbers come from the seed. The same calls give the same outputs, to the octet, in every process. With a
//! recording ([`station::SimulationOptions::recording_path`]) the station writes every input in the format of
//! `station.record`, and `carnet replay` replays it without a simulator.
//!
//! **Panics are contained** if the library was built with unwinding (`cargo build --profile sim`). A panic
//! ends neither the simulation nor another station. But the station that panicked refuses every later call
//! with [`types::CarnetSimStatus::Panicked`]. In a build with `panic = "abort"` (the release profile) a panic
//! ends the process; [`ffi::carnet_sim_contains_panics`] says which of the two applies.
//!
//! **Pointers.** The documentation of each function says to which objects the pointers must point. A function
//! refuses a null pointer unless its documentation permits it. Lengths are in octets. The library keeps no
//! pointer of the caller after the call.
//!
//! Left out: separate functions for rare inputs and outputs. An input or output without its own function is
//! JSON, as in a recording ([`ffi::carnet_sim_handle_input`], [`types::CarnetSimOutputKind::Other`]).

pub mod ffi;
pub mod station;
pub mod types;
