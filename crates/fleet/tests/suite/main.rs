//! Members of a seat in virtual time, with a store that has the guarantees of etcd and a network without
//! guarantees.

mod faults;
mod simulated_fleet;
mod single_events;
