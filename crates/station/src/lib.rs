//! One carnet station: protocols composed, desired forwarding state, slow-path forwarder
