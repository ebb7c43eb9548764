//! Time, timers, randomness and small types that every carnet crate shares
