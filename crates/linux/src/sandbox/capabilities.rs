//! Selects the capabilities (`capabilities(7)`) that the program keeps, and drops all others.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::{SandboxPlan, call_prctl, check_call_result, seccomp};

/// A Linux capability, and what carnet needs it for.
#[derive(Debug, PartialEq, Eq)]
pub struct NeededCapability {
    /// Name of the capability.
    pub name: &'static str,
    /// Number of the capability.
    pub capability_number: u32,
    /// Work that needs the capability.
    pub needed_for: &'static str,
}

const NET_ADMIN_INDEX: usize = 0;
const NET_RAW_INDEX: usize = 1;
const BPF_INDEX: usize = 2;
const PERFMON_INDEX: usize = 3;
const SYS_ADMIN_INDEX: usize = 4;
const NET_BIND_SERVICE_INDEX: usize = 5;
const DAC_OVERRIDE_INDEX: usize = 6;

/// All capabilities that a station may need, with their reasons. A station keeps only those that its config
/// needs. (The same list is in `docs/threats.md`.)
pub static NEEDED_CAPABILITIES: [NeededCapability; 7] = [
    NeededCapability {
        name: "CAP_NET_ADMIN",
        capability_number: 12,
        needed_for: "routes, rules, addresses, TUN and TAP devices, /proc/sys/net, and attaching BPF \
             programs",
    },
    NeededCapability {
        name: "CAP_NET_RAW",
        capability_number: 13,
        needed_for: "packet sockets, raw ICMP, sockets bound to an interface",
    },
    NeededCapability {
        name: "CAP_BPF",
        capability_number: 39,
        needed_for: "loading BPF programs and creating their maps",
    },
    NeededCapability {
        name: "CAP_PERFMON",
        capability_number: 38,
        needed_for: "BPF programs that compare and move pointers",
    },
    NeededCapability {
        name: "CAP_SYS_ADMIN",
        capability_number: 21,
        needed_for: "loading BPF programs before Linux 5.8, which has no narrower capability",
    },
    NeededCapability { name: "CAP_NET_BIND_SERVICE", capability_number: 10, needed_for: "ports below 1024" },
    NeededCapability {
        name: "CAP_DAC_OVERRIDE",
        capability_number: 1,
        needed_for: "files of the config that belong to another user",
    },
];

/// Number of `CAP_SETPCAP`, which a process needs to drop capabilities for good.
const CAP_SETPCAP: u32 = 8;
/// Number of `CAP_DAC_OVERRIDE`.
const DAC_OVERRIDE_NUMBER: u32 = 1;
/// Number of `CAP_DAC_READ_SEARCH`.
const DAC_READ_SEARCH_NUMBER: u32 = 2;
/// A number above those of all capabilities.
const ABOVE_LAST_CAPABILITY: u32 = 63;

const CAPABILITY_VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    process_id: libc::c_int,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct CapabilityWord {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The effective, permitted and inheritable capabilities as two words of each set, the low words first
/// (`capget(2)`).
#[derive(Debug, Clone, Copy, Default)]
struct CapabilitySets([CapabilityWord; 2]);

impl CapabilitySets {
    fn read_current() -> io::Result<CapabilitySets> {
        let header = CapabilityHeader { version: CAPABILITY_VERSION, process_id: 0 };
        let mut sets = CapabilitySets::default();
        // SAFETY: in this version the kernel reads a header and writes two words. Both live until the call
        // has returned.
        check_call_result(unsafe {
            libc::syscall(libc::SYS_capget, &raw const header, sets.0.as_mut_ptr())
        })?;
        Ok(sets)
    }

    fn set_capabilities(&self) -> io::Result<()> {
        let header = CapabilityHeader { version: CAPABILITY_VERSION, process_id: 0 };
        // SAFETY: in this version the kernel reads a header and two words. Both live until the call has
        // returned.
        check_call_result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, self.0.as_ptr()) })
            .map(drop)
    }

    fn has_capability(&self, number: u32) -> bool {
        self.0[number as usize / 32].permitted >> (number % 32) & 1 == 1
    }
}

/// Returns the capabilities that the plan needs and the process has. `others_files` says whether the plan
/// uses files of other users.
pub(super) fn needed_capabilities(plan: &SandboxPlan, others_files: bool) -> Vec<&'static NeededCapability> {
    let has = |need: usize| {
        CapabilitySets::read_current()
            .is_ok_and(|sets| sets.has_capability(NEEDED_CAPABILITIES[need].capability_number))
    };
    let low = |ports: &[u16]| ports.iter().any(|port| *port < 1024);
    let lesser = has(BPF_INDEX) && has(PERFMON_INDEX);
    let programs = plan.loads_bpf_programs || plan.loads_steering_program;
    let wanted = [
        (NET_ADMIN_INDEX, plan.changes_network),
        (NET_RAW_INDEX, plan.opens_packet_sockets),
        (BPF_INDEX, programs),
        (PERFMON_INDEX, programs),
        (SYS_ADMIN_INDEX, programs && !lesser),
        (NET_BIND_SERVICE_INDEX, low(&plan.listening_tcp_ports) || low(&plan.listening_udp_ports)),
        (DAC_OVERRIDE_INDEX, others_files),
    ];
    wanted
        .into_iter()
        .filter(|(need, wanted)| *wanted && has(*need))
        .map(|(need, _)| &NEEDED_CAPABILITIES[need])
        .collect()
}

/// Drops all capabilities except `needs`, and makes sure that no executed program gets a capability. Returns
/// the names of the capabilities that are left.
pub(super) fn drop_capabilities_except(needs: &[&'static NeededCapability]) -> io::Result<Vec<&'static str>> {
    if CapabilitySets::read_current()?.has_capability(CAP_SETPCAP) {
        // Empty the bounding set, so that an executed program gets no capabilities. This process keeps those
        // that it has.
        for number in 0..=ABOVE_LAST_CAPABILITY {
            // The call fails for numbers that the kernel does not know: ignore the error.
            let _ = call_prctl(libc::PR_CAPBSET_DROP, number.into());
        }
    }
    // Linux before 4.3 has no ambient set: ignore the error.
    let _ = call_prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong);
    reduce_capabilities(needs)
}

fn reduce_capabilities(needs: &[&'static NeededCapability]) -> io::Result<Vec<&'static str>> {
    let mut sets = CapabilitySets::read_current()?;
    for (word, set) in (0..).zip(&mut sets.0) {
        let mask = needs.iter().filter(|need| need.capability_number / 32 == word);
        let mask = mask.fold(0, |mask, need| mask | 1 << (need.capability_number % 32));
        set.permitted &= mask;
        set.effective = set.permitted;
        set.inheritable = 0;
    }
    sets.set_capabilities()?;
    Ok(needs.iter().map(|need| need.name).collect())
}

fn capability_system_call(
    which: impl Fn(&NeededCapability) -> bool,
) -> io::Result<Vec<&'static NeededCapability>> {
    let sets = CapabilitySets::read_current()?;
    Ok(NEEDED_CAPABILITIES
        .iter()
        .filter(|need| sets.has_capability(need.capability_number) && which(need))
        .collect())
}

/// Drops the capabilities that loading BPF programs needs. Returns the names of the capabilities that are
/// left.
pub(super) fn drop_bpf_capabilities() -> io::Result<Vec<&'static str>> {
    let loads = |need: &NeededCapability| {
        [BPF_INDEX, PERFMON_INDEX, SYS_ADMIN_INDEX]
            .iter()
            .any(|known| NEEDED_CAPABILITIES[*known].capability_number == need.capability_number)
    };
    let before = CapabilitySets::read_current()?;
    // If the kernel already refuses access to BPF maps now, the process has no map and needs no right for
    // maps.
    let there_are_none = seccomp::kernel_refuses_bpf_maps();
    let mut without = before;
    for need in NEEDED_CAPABILITIES.iter().filter(|need| loads(need)) {
        without.0[need.capability_number as usize / 32].effective &= !(1 << (need.capability_number % 32));
    }
    without.set_capabilities()?;
    // Before Linux 5.19, if the system forbids unprivileged BPF, the kernel gives access to maps only to a
    // process that may load programs. In this case the process keeps the right to load programs.
    let maps_need_it = !there_are_none && seccomp::kernel_refuses_bpf_maps();
    before.set_capabilities()?;
    let bpf = if before.has_capability(NEEDED_CAPABILITIES[BPF_INDEX].capability_number) {
        BPF_INDEX
    } else {
        SYS_ADMIN_INDEX
    };
    reduce_capabilities(&capability_system_call(|need| {
        !loads(need) || maps_need_it && need.capability_number == NEEDED_CAPABILITIES[bpf].capability_number
    })?)
}

/// Drops all capabilities except the one to open files of other users.
pub(super) fn drop_all_except_file_access() -> io::Result<Vec<&'static str>> {
    reduce_capabilities(&capability_system_call(|need| need.capability_number == DAC_OVERRIDE_NUMBER)?)
}

/// Returns the first of the plan's paths that the process can use only with the capability to override owners
/// and modes. `None` if there is no such path, or if the process lacks the capability.
pub(super) fn file_of_other_user(plan: &SandboxPlan) -> Option<PathBuf> {
    let before =
        CapabilitySets::read_current().ok().filter(|sets| sets.has_capability(DAC_OVERRIDE_NUMBER))?;
    let mut without = before;
    without.0[0].effective &= !(1 << DAC_OVERRIDE_NUMBER | 1 << DAC_READ_SEARCH_NUMBER);
    without.set_capabilities().ok()?;
    let read = plan.readable_paths.iter().chain(&plan.config_paths).map(|path| (path, libc::R_OK));
    let write = plan.writable_folders.iter().map(|path| (path, libc::R_OK | libc::W_OK | libc::X_OK));
    let closed = read.chain(write).find(|(path, mode)| denies_access(path.as_os_str().as_bytes(), *mode));
    let _ = before.set_capabilities();
    closed.map(|(path, _)| path.clone())
}

/// Returns whether owner and mode of a file deny the process this access. False for a missing file.
fn denies_access(path: &[u8], mode: libc::c_int) -> bool {
    let Ok(path) = CString::new(path) else { return false };
    // SAFETY: the path ends with a zero octet and lives until the call has returned.
    let result = check_call_result(unsafe {
        libc::syscall(libc::SYS_faccessat2, libc::AT_FDCWD, path.as_ptr(), mode, libc::AT_EACCESS)
    });
    // Before Linux 5.8 the kernel cannot check the access without the capability, so the process keeps it.
    result.is_err_and(|error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::ENOSYS | libc::EPERM)))
}
