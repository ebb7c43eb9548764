//! Limits the rights of the process, so that an attacker who takes it over can do little more than its config
//! needs.
//!
//! The program calls [`enter_sandbox`] once, with a [`SandboxPlan`] of the station's needs. It does so before
//! it starts threads, because each thread inherits the rights of its creator. The limits hold until the
//! process ends, and the process cannot widen them. So the station refuses to reload a config that needs more
//! rights. There are four layers, each of which the kernel may lack:
//!
//! * [`capabilities`]: the process keeps only the capabilities that it needs
//!   ([`capabilities::NEEDED_CAPABILITIES`]), and cannot gain others (`no_new_privs`);
//! * [`landlock`]: the process can use only the files and TCP ports that the config names, and can
//!   execute no file;
//! * [`seccomp`]: the process can make only the system calls that the program needs;
//! * `PR_SET_DUMPABLE`: other processes of the same user cannot read the memory of the process, and no core
//!   file contains its keys.
//!
//! The module makes these system calls itself. The OpenWrt build has no room for the three crates that exist,
//! and carnet needs only a page of code of each.
//!
//! Left out: namespaces and a separate user, which the systemd unit sets. Left out too: limits on UDP,
//! netlink and packet sockets, which the program needs for its work. An attacker in a station that loads BPF
//! programs can load other programs, and these may read the kernel's memory. `dataplane.path = "tun"` avoids
//! that.

pub mod capabilities;
pub mod landlock;
pub mod seccomp;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rights that a station needs, by its config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SandboxPlan {
    /// Whether the station changes routes, rules and addresses, or creates TUN and TAP devices.
    pub changes_network: bool,
    /// Whether the station opens packet sockets or raw sockets.
    pub opens_packet_sockets: bool,
    /// Whether the station loads BPF programs whenever an interface appears.
    pub loads_bpf_programs: bool,
    /// Whether the station loads a BPF program for the TUN device at its start; see
    /// [`EnforcedLimits::drop_program_loading`].
    pub loads_steering_program: bool,
    /// Whether the station looks up host names, for example of gpsd.
    pub looks_up_names: bool,
    /// Files, and folders with all their content, that the station reads.
    pub readable_paths: Vec<PathBuf>,
    /// Paths of [`Self::readable_paths`] that the config names. If the process may not open one of them as
    /// its own user, it keeps the capability to open files of other users.
    pub config_paths: Vec<PathBuf>,
    /// Folders in which the station writes, renames and removes files, and creates sockets.
    pub writable_folders: Vec<PathBuf>,
    /// TCP ports at which the station listens.
    pub listening_tcp_ports: Vec<u16>,
    /// TCP ports to which the station connects.
    pub connecting_tcp_ports: Vec<u16>,
    /// UDP ports at which the station listens.
    pub listening_udp_ports: Vec<u16>,
}

/// The limits that the kernel enforces on the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnforcedLimits {
    /// Names of the capabilities that the process still has.
    pub remaining_capabilities: Vec<&'static str>,
    /// Whether the process cannot gain further capabilities.
    pub no_new_privileges: bool,
    /// Landlock's version (ABI); `None` if the kernel has no Landlock.
    pub landlock_abi: Option<u32>,
    /// Whether seccomp filters system calls.
    pub seccomp_enabled: bool,
    /// Limits that the kernel does not enforce, each with its reason.
    pub missing_limits: Vec<String>,
    /// Remarks for the operator about capabilities that the process has kept.
    pub operator_remarks: Vec<String>,
}

/// Gives up all rights that the plan does not need. [`EnforcedLimits::missing_limits`] lists the limits that
/// the kernel cannot enforce.
///
/// The limits hold for the calling thread and for the threads that it starts later.
pub fn enter_sandbox(plan: &SandboxPlan) -> EnforcedLimits {
    let mut held = EnforcedLimits::default();
    HAS_ENTERED.store(true, Ordering::Relaxed);
    if plan.loads_bpf_programs || plan.loads_steering_program {
        // Before Linux 5.11 BPF maps count as locked memory. So raise the limit of locked memory while the
        // process still may.
        let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the kernel reads the structure, which lives until the call has returned.
        unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) };
    }
    // Open the paths before capabilities are dropped, because the config may name files that only root can
    // reach.
    let ruleset = landlock::LandlockRuleset::new(plan);
    let others = capabilities::file_of_other_user(plan);
    if let Some(path) = &others {
        held.operator_remarks.push(format!(
            "{} belongs to another user: carnet keeps CAP_DAC_OVERRIDE for it",
            path.display()
        ));
    }
    let needs = capabilities::needed_capabilities(plan, others.is_some());
    match capabilities::drop_capabilities_except(&needs) {
        Ok(kept) => held.remaining_capabilities = kept,
        Err(error) => held.missing_limits.push(format!("carnet cannot drop its capabilities: {error}")),
    }
    match call_prctl(libc::PR_SET_NO_NEW_PRIVS, 1) {
        Ok(()) => held.no_new_privileges = true,
        Err(error) => held.missing_limits.push(format!("carnet cannot set no_new_privs: {error}")),
    }
    if let Err(error) = call_prctl(libc::PR_SET_DUMPABLE, 0) {
        held.missing_limits.push(format!("other processes of this user can read carnet's memory: {error}"));
    }
    match ruleset.and_then(landlock::LandlockRuleset::restrict_process) {
        Ok(abi) => held.landlock_abi = Some(abi),
        Err(error) => held.missing_limits.push(landlock::explain_error(&error)),
    }
    match seccomp::restrict(plan) {
        Ok(()) => held.seccomp_enabled = true,
        Err(error) => held.missing_limits.push(seccomp::explain_error(&error)),
    }
    held
}

/// Whether the program has called [`enter_sandbox`].
static HAS_ENTERED: AtomicBool = AtomicBool::new(false);

impl EnforcedLimits {
    /// Drops the right to load BPF programs after the station has loaded its programs. The station can still
    /// write their maps.
    pub fn drop_program_loading(&mut self) {
        match capabilities::drop_bpf_capabilities() {
            Ok(kept) => self.remaining_capabilities = kept,
            Err(error) => self
                .missing_limits
                .push(format!("carnet cannot drop the right to load BPF programs: {error}")),
        }
        if self.seccomp_enabled
            && let Err(error) = seccomp::restrict_to_maps()
        {
            self.missing_limits
                .push(format!("system calls that load BPF programs are not filtered: {error}"));
        }
    }
}

/// Drops all capabilities of the calling thread except the one for files of other users. For a thread that
/// only reads and writes files. Does nothing before [`enter_sandbox`]. (The threads share their memory, so
/// this protects against mistakes, not against attackers.)
pub fn drop_all_capabilities_except_file_access() {
    if HAS_ENTERED.load(Ordering::Relaxed) {
        let _ = capabilities::drop_all_except_file_access();
    }
}

/// Runs `work` with this umask for new files and sockets. (A process in the sandbox cannot use `chmod`: it
/// accepts any path, and Landlock does not check it.)
pub fn with_umask<T>(mask: u32, work: impl FnOnce() -> T) -> T {
    // SAFETY: the call takes a number, and cannot fail.
    let before = unsafe { libc::umask(mask as libc::mode_t) };
    let result = work();
    // SAFETY: the call takes a number, and cannot fail.
    unsafe { libc::umask(before) };
    result
}

fn call_prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<()> {
    let zero: libc::c_ulong = 0;
    // SAFETY: these options take only numbers.
    check_call_result(unsafe { libc::prctl(option, value, zero, zero, zero) }.into()).map(drop)
}

/// Returns the result of a system call, or the kernel's error.
fn check_call_result(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests;
