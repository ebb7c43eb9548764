//! The testbed of `carnet-lab`: plays scenarios of real programs in network namespaces.
//!
//! A scenario is a folder below `scenarios`. `run` builds its network, apart from the host and with or
//! without root, and starts `carnet` in its nodes. It sends real traffic while events happen, checks the
//! scenario's expectations, and leaves a report. `commands` has the command line: a program mounts it,
//! because the testbed starts the program again in the namespaces.
#![forbid(unsafe_code)]

mod api;
mod capture;
pub mod clock;
pub mod commands;
mod config_preparation;
mod conformance;
pub mod console;
mod dhcp;
mod emulation;
pub mod expect;
pub mod frame_socket;
pub mod isolate;
pub mod machine;
mod medium;
pub mod metrics;
mod nat;
mod packet_mark;
mod pki;
pub mod process;
pub mod quota;
pub mod radio;
pub mod report;
pub mod results;
pub mod run;
mod samples;
pub mod scenario;
mod scenario_pki;
mod scenario_values;
mod session_keys;
pub mod station;
pub mod tools;
pub mod topology;
pub mod traffic;
