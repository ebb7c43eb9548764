//! Members of a seat in virtual time, with a store that does what etcd promises and a network that keeps no
//! promise.

mod faults;
mod one_by_one;
mod world;
