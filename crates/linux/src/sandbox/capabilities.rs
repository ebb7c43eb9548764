//! Selects the capabilities (`capabilities(7)`) that the program keeps, and drops all others.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::{Plan, checked, control, seccomp};

/// A capability, and the work that needs it.
#[derive(Debug, PartialEq, Eq)]
pub struct Need {
    /// Name of the capability.
    pub name: &'static str,
    /// Number of the capability.
    pub number: u32,
    /// Work that needs the capability.
    pub why: &'static str,
}

const NET_ADMIN: usize = 0;
const NET_RAW: usize = 1;
const BPF: usize = 2;
const PERFMON: usize = 3;
const SYS_ADMIN: usize = 4;
const NET_BIND_SERVICE: usize = 5;
const DAC_OVERRIDE: usize = 6;

/// All capabilities that a station may need, with their reasons. A station keeps only those that its config
/// needs. (The same list is in `docs/threats.md`.)
pub static NEEDS: [Need; 7] = [
    Need {
        name: "CAP_NET_ADMIN",
        number: 12,
        why: "routes, rules, addresses, TUN and TAP devices, /proc/sys/net, and attaching BPF programs",
    },
    Need { name: "CAP_NET_RAW", number: 13, why: "packet sockets, raw ICMP, sockets of one interface" },
    Need { name: "CAP_BPF", number: 39, why: "loading BPF programs, their maps" },
    Need { name: "CAP_PERFMON", number: 38, why: "BPF programs that compare and move pointers" },
    Need {
        name: "CAP_SYS_ADMIN",
        number: 21,
        why: "BPF programs before Linux 5.8, which knows nothing less",
    },
    Need { name: "CAP_NET_BIND_SERVICE", number: 10, why: "ports below 1024" },
    Need { name: "CAP_DAC_OVERRIDE", number: 1, why: "files of the config that belong to somebody else" },
];

/// Number of `CAP_SETPCAP`, which a process needs to drop capabilities for good; then the number of
/// `CAP_DAC_OVERRIDE`.
const SETPCAP: u32 = 8;
const DAC_OVERRIDE_NUMBER: u32 = 1;
const DAC_READ_SEARCH_NUMBER: u32 = 2;
/// A number above the last capability of any kernel.
const MOST: u32 = 63;

const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The effective, permitted and inheritable capabilities as two words of each set, the low words first
/// (`capget(2)`).
#[derive(Debug, Clone, Copy, Default)]
struct Sets([Word; 2]);

impl Sets {
    fn get() -> io::Result<Sets> {
        let header = Header { version: VERSION, pid: 0 };
        let mut sets = Sets::default();
        // SAFETY: in this version the kernel reads a header and writes two words. Both live until the call
        // has returned.
        checked(unsafe { libc::syscall(libc::SYS_capget, &raw const header, sets.0.as_mut_ptr()) })?;
        Ok(sets)
    }

    fn set(&self) -> io::Result<()> {
        let header = Header { version: VERSION, pid: 0 };
        // SAFETY: in this version the kernel reads a header and two words. Both live until the call has
        // returned.
        checked(unsafe { libc::syscall(libc::SYS_capset, &raw const header, self.0.as_ptr()) }).map(drop)
    }

    fn has(&self, number: u32) -> bool {
        self.0[number as usize / 32].permitted >> (number % 32) & 1 == 1
    }
}

/// Returns the capabilities that the plan needs and the process has. `others_files` says that the plan has
/// files of other users.
pub(super) fn needs(plan: &Plan, others_files: bool) -> Vec<&'static Need> {
    let has = |need: usize| Sets::get().is_ok_and(|sets| sets.has(NEEDS[need].number));
    let low = |ports: &[u16]| ports.iter().any(|port| *port < 1024);
    let lesser = has(BPF) && has(PERFMON);
    let programs = plan.programs || plan.steers;
    let wanted = [
        (NET_ADMIN, plan.network),
        (NET_RAW, plan.packets),
        (BPF, programs),
        (PERFMON, programs),
        (SYS_ADMIN, programs && !lesser),
        (NET_BIND_SERVICE, low(&plan.listens) || low(&plan.datagrams)),
        (DAC_OVERRIDE, others_files),
    ];
    wanted.into_iter().filter(|(need, wanted)| *wanted && has(*need)).map(|(need, _)| &NEEDS[need]).collect()
}

/// Drops all capabilities except `needs`, and those that an executed program would get. Returns the names of
/// the remaining capabilities.
pub(super) fn keep(needs: &[&'static Need]) -> io::Result<Vec<&'static str>> {
    if Sets::get()?.has(SETPCAP) {
        // Drop capabilities from the bounding set, so that executing a program gives none. The present
        // capabilities stay.
        for number in 0..=MOST {
            // The call fails for a number that this kernel does not know, so ignore the error.
            let _ = control(libc::PR_CAPBSET_DROP, number.into());
        }
    }
    // Linux before 4.3 has no ambient set, so ignore the error.
    let _ = control(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong);
    reduce(needs)
}

fn reduce(needs: &[&'static Need]) -> io::Result<Vec<&'static str>> {
    let mut sets = Sets::get()?;
    for (word, set) in (0..).zip(&mut sets.0) {
        let mask = needs.iter().filter(|need| need.number / 32 == word);
        let mask = mask.fold(0, |mask, need| mask | 1 << (need.number % 32));
        set.permitted &= mask;
        set.effective = set.permitted;
        set.inheritable = 0;
    }
    sets.set()?;
    Ok(needs.iter().map(|need| need.name).collect())
}

fn held(which: impl Fn(&Need) -> bool) -> io::Result<Vec<&'static Need>> {
    let sets = Sets::get()?;
    Ok(NEEDS.iter().filter(|need| sets.has(need.number) && which(need)).collect())
}

/// Drops the capabilities to load BPF programs. Returns the names of the remaining capabilities.
pub(super) fn keep_without_programs() -> io::Result<Vec<&'static str>> {
    let loads =
        |need: &Need| [BPF, PERFMON, SYS_ADMIN].iter().any(|known| NEEDS[*known].number == need.number);
    let before = Sets::get()?;
    // If the kernel refuses access to BPF maps already now, the process has no map.
    let there_are_none = seccomp::maps_are_refused();
    let mut without = before;
    for need in NEEDS.iter().filter(|need| loads(need)) {
        without.0[need.number as usize / 32].effective &= !(1 << (need.number % 32));
    }
    without.set()?;
    // Before Linux 5.19, on a system that forbids unprivileged BPF, only a process that may load programs may
    // access maps.
    let maps_need_it = !there_are_none && seccomp::maps_are_refused();
    before.set()?;
    let bpf = if before.has(NEEDS[BPF].number) { BPF } else { SYS_ADMIN };
    reduce(&held(|need| !loads(need) || maps_need_it && need.number == NEEDS[bpf].number)?)
}

/// Drops all capabilities except the one to open files of other users.
pub(super) fn keep_for_files() -> io::Result<Vec<&'static str>> {
    reduce(&held(|need| need.number == DAC_OVERRIDE_NUMBER)?)
}

/// Returns the first of the plan's paths that the process can use only with the capability to override owners
/// and modes.
pub(super) fn of_others(plan: &Plan) -> Option<PathBuf> {
    let before = Sets::get().ok().filter(|sets| sets.has(DAC_OVERRIDE_NUMBER))?;
    let mut without = before;
    without.0[0].effective &= !(1 << DAC_OVERRIDE_NUMBER | 1 << DAC_READ_SEARCH_NUMBER);
    without.set().ok()?;
    let read = plan.read.iter().chain(&plan.named).map(|path| (path, libc::R_OK));
    let write = plan.write.iter().map(|path| (path, libc::R_OK | libc::W_OK | libc::X_OK));
    let closed = read.chain(write).find(|(path, mode)| is_closed(path.as_os_str().as_bytes(), *mode));
    let _ = before.set();
    closed.map(|(path, _)| path.clone())
}

/// Returns whether owner and mode of a file deny the process this access. False for a missing file.
fn is_closed(path: &[u8], mode: libc::c_int) -> bool {
    let Ok(path) = CString::new(path) else { return false };
    // SAFETY: the path ends with a zero octet and lives until the call has returned.
    let result = checked(unsafe {
        libc::syscall(libc::SYS_faccessat2, libc::AT_FDCWD, path.as_ptr(), mode, libc::AT_EACCESS)
    });
    // A kernel before Linux 5.8 cannot check the access without the capability, so there the process keeps
    // it.
    result.is_err_and(|error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::ENOSYS | libc::EPERM)))
}
