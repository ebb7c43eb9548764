//! Every system call that carnet makes
