//! Limits of the process after an attacker has taken it over: it can do little more than its config needs.
//!
//! [`enter`] is called once, with a [`Plan`] of the station's needs. It is called before there are threads:
//! each has rights of its own, and gets them from the one that starts it. It holds until the process ends and
//! cannot be widened: the station refuses to reload a config that needs more. There are four layers, each of
//! which the kernel may lack:
//!
//! * [`capabilities`]: of root's rights those that are needed ([`capabilities::NEEDS`]), and none to gain
//!   others (`no_new_privs`);
//! * [`landlock`]: of the files those that the config names, of TCP its ports, and no file to execute;
//! * [`seccomp`]: of the system calls those that the program makes;
//! * memory that others cannot read: no core file with keys in it, no debugger of the same user
//!   (`PR_SET_DUMPABLE`).
//!
//! It is written for this program rather than taken from a crate. The OpenWrt build has no room for three
//! crates, and the needed part of each is a page.
//!
//! Left out: namespaces and a user of its own (the unit sets both under systemd), and UDP, netlink and
//! packets, which the program is for. An attacker in a station that loads BPF programs can load others, and
//! these may read the kernel's memory. `dataplane.path = "tun"` avoids that.

pub mod capabilities;
pub mod landlock;
pub mod seccomp;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Needs of a station.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Routes, rules, addresses, TUN and TAP devices.
    pub network: bool,
    /// Packet sockets, or raw ones.
    pub packets: bool,
    /// BPF programs are loaded whenever an interface comes.
    pub programs: bool,
    /// One is loaded at the start, for the TUN device; see [`Held::settle`].
    pub steers: bool,
    /// Names of hosts are looked up.
    pub names: bool,
    /// Files, and folders with all that is in them, that are read.
    pub read: Vec<PathBuf>,
    /// Those of them that the config names: if they are closed to the process it keeps the right to open
    /// them.
    pub named: Vec<PathBuf>,
    /// Folders in which files are written, renamed and removed, and sockets made.
    pub write: Vec<PathBuf>,
    /// TCP ports at which it listens.
    pub listens: Vec<u16>,
    /// TCP ports to which it connects.
    pub connects: Vec<u16>,
    /// UDP ports at which it listens.
    pub datagrams: Vec<u16>,
}

/// Limits in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// The capabilities that are left.
    pub capabilities: Vec<&'static str>,
    /// Whether no others can be had.
    pub no_new_privileges: bool,
    /// Landlock's version (ABI), where the kernel has it.
    pub landlock: Option<u32>,
    /// Whether system calls are filtered.
    pub seccomp: bool,
    /// Limits that are not in force, with the reason.
    pub lacking: Vec<String>,
    /// Remarks for the operator about rights that were kept.
    pub remarks: Vec<String>,
}

/// Gives up everything that the plan does not need. [`Held::lacking`] has the limits that failed.
///
/// It is the calling thread that is restricted, and those that it starts.
pub fn enter(plan: &Plan) -> Held {
    let mut held = Held::default();
    ENTERED.store(true, Ordering::Relaxed);
    if plan.programs || plan.steers {
        // Before Linux 5.11 maps count as locked memory; to be asked while there is the right to.
        let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the kernel reads the structure, which lives until the call has returned.
        unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) };
    }
    // Opened with the rights of before: what is named may lie where only root comes by.
    let ruleset = landlock::Ruleset::new(plan);
    let others = capabilities::of_others(plan);
    if let Some(path) = &others {
        held.remarks
            .push(format!("{} belongs to somebody else: CAP_DAC_OVERRIDE is kept for it", path.display()));
    }
    let needs = capabilities::needs(plan, others.is_some());
    match capabilities::keep(&needs) {
        Ok(kept) => held.capabilities = kept,
        Err(error) => held.lacking.push(format!("capabilities cannot be given up: {error}")),
    }
    match control(libc::PR_SET_NO_NEW_PRIVS, 1) {
        Ok(()) => held.no_new_privileges = true,
        Err(error) => held.lacking.push(format!("no_new_privs cannot be set: {error}")),
    }
    if let Err(error) = control(libc::PR_SET_DUMPABLE, 0) {
        held.lacking.push(format!("memory can be read by others of this user: {error}"));
    }
    match ruleset.and_then(landlock::Ruleset::restrict) {
        Ok(abi) => held.landlock = Some(abi),
        Err(error) => held.lacking.push(landlock::why(&error)),
    }
    match seccomp::restrict(plan) {
        Ok(()) => held.seccomp = true,
        Err(error) => held.lacking.push(seccomp::why(&error)),
    }
    held
}

/// Whether [`enter`] was called.
static ENTERED: AtomicBool = AtomicBool::new(false);

impl Held {
    /// Gives up loading BPF programs, now that those that are needed are loaded; their maps can still be
    /// written.
    pub fn settle(&mut self) {
        match capabilities::keep_without_programs() {
            Ok(kept) => self.capabilities = kept,
            Err(error) => {
                self.lacking.push(format!("the right to load BPF programs cannot be given up: {error}"))
            }
        }
        if self.seccomp
            && let Err(error) = seccomp::restrict_to_maps()
        {
            self.lacking.push(format!("calls about BPF programs are not filtered: {error}"));
        }
    }
}

/// For a thread that only reads and writes files: gives up all capabilities but the one to use files of other
/// users. Does nothing before [`enter`]. (The thread shares its memory with the others; this is for mistakes,
/// not against intruders.)
pub fn with_files_alone() {
    if ENTERED.load(Ordering::Relaxed) {
        let _ = capabilities::keep_for_files();
    }
}

/// Does something while new files and sockets lack these rights. (Rights are not changed afterwards: `chmod`
/// would take any path, which Landlock does not look at.)
pub fn with_umask<T>(mask: u32, work: impl FnOnce() -> T) -> T {
    // SAFETY: it takes a number, and cannot fail.
    let before = unsafe { libc::umask(mask as libc::mode_t) };
    let result = work();
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    result
}

fn control(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: these options take numbers only.
    checked(unsafe { libc::prctl(option, value, zero, zero, zero) }.into()).map(drop)
}

/// The result of a system call, or its error.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests;
