//! Mobile IPv6 and NEMO Basic Support as state machines without I/O
