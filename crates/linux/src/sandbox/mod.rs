//! Limits the process, so that an attacker who takes it over can do little more than its config needs.
//!
//! [`enter`] is called once, with a [`Plan`] of the station's needs. It is called before there are threads,
//! because each thread inherits the rights of its creator. The limits hold until the process ends and cannot
//! be widened: the station refuses to reload a config that needs more. There are four layers, each of which
//! the kernel may lack:
//!
//! * [`capabilities`]: of root's capabilities only the needed ones ([`capabilities::NEEDS`]), and no way to
//!   gain others (`no_new_privs`);
//! * [`landlock`]: only the files that the config names, only its TCP ports, and no file to execute;
//! * [`seccomp`]: only the system calls that the program makes;
//! * memory that other processes cannot read: no core file with keys in it, no debugger of the same user
//!   (`PR_SET_DUMPABLE`).
//!
//! The module is written for this program and not taken from a crate. The OpenWrt build has no room for three
//! crates, and the needed part of each is a page.
//!
//! Left out: namespaces and a user of its own (the unit sets both under systemd), and UDP, netlink and
//! packets, which are the program's work. An attacker in a station that loads BPF programs can load others,
//! and these may read the kernel's memory. `dataplane.path = "tun"` avoids that.

pub mod capabilities;
pub mod landlock;
pub mod seccomp;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Needs of a station.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Whether the station changes routes, rules and addresses, or creates TUN and TAP devices.
    pub network: bool,
    /// Whether the station opens packet sockets or raw sockets.
    pub packets: bool,
    /// Whether the station loads BPF programs whenever an interface appears.
    pub programs: bool,
    /// Whether the station loads a BPF program at the start, for the TUN device; see [`Held::settle`].
    pub steers: bool,
    /// Whether the station looks up host names.
    pub names: bool,
    /// Files, and folders with all their content, that the station reads.
    pub read: Vec<PathBuf>,
    /// Those of the `read` paths that the config names. If the process cannot open one, it keeps the
    /// capability to open it.
    pub named: Vec<PathBuf>,
    /// Folders in which the station writes, renames and removes files, and creates sockets.
    pub write: Vec<PathBuf>,
    /// TCP ports at which the station listens.
    pub listens: Vec<u16>,
    /// TCP ports to which the station connects.
    pub connects: Vec<u16>,
    /// UDP ports at which the station listens.
    pub datagrams: Vec<u16>,
}

/// Limits that are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Names of the remaining capabilities.
    pub capabilities: Vec<&'static str>,
    /// Whether the process cannot gain further capabilities.
    pub no_new_privileges: bool,
    /// Landlock's version (ABI); `None` if the kernel lacks it.
    pub landlock: Option<u32>,
    /// Whether seccomp filters system calls.
    pub seccomp: bool,
    /// Limits that are not in force, each with its reason.
    pub lacking: Vec<String>,
    /// Remarks for the operator about capabilities that were kept.
    pub remarks: Vec<String>,
}

/// Drops all rights that the plan does not need. [`Held::lacking`] has the limits that failed.
///
/// This restricts the calling thread, and threads that it starts later.
pub fn enter(plan: &Plan) -> Held {
    let mut held = Held::default();
    ENTERED.store(true, Ordering::Relaxed);
    if plan.programs || plan.steers {
        // Before Linux 5.11 maps count as locked memory, so raise the limit while the process may.
        let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the kernel reads the structure, which lives until the call has returned.
        unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) };
    }
    // Open the paths with the former rights: the config may name files that only root can reach.
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
    /// Drops the right to load BPF programs after the needed ones are loaded. Their maps can still be
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

/// Drops all capabilities of a thread that only reads and writes files, except that to use files of other
/// users. Does nothing before [`enter`]. (The thread shares its memory with the others, so this protects
/// against mistakes, not against intruders.)
pub fn with_files_alone() {
    if ENTERED.load(Ordering::Relaxed) {
        let _ = capabilities::keep_for_files();
    }
}

/// Runs `work` with a file mode mask for new files and sockets. (Modes are not changed afterwards: `chmod`
/// accepts any path, which Landlock does not check.)
pub fn with_umask<T>(mask: u32, work: impl FnOnce() -> T) -> T {
    // SAFETY: the call takes a number, and cannot fail.
    let before = unsafe { libc::umask(mask as libc::mode_t) };
    let result = work();
    // SAFETY: the call takes a number, and cannot fail.
    unsafe { libc::umask(before) };
    result
}

fn control(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: these options take only numbers.
    checked(unsafe { libc::prctl(option, value, zero, zero, zero) }.into()).map(drop)
}

/// Returns the result of a system call, or its error.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests;
