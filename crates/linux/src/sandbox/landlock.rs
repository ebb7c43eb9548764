//! Landlock (`landlock(7)`) restricts the process to the files and TCP ports of the plan, and forbids signals
//! and abstract sockets to the outside.
//!
//! A rule applies to the file that exists when the rule is made, and not to a later file of the same name. So
//! the rules name folders, because programs replace files. For files in `/proc` the module keeps descriptors
//! open. Otherwise the kernel may free such a file and create it again, and the rule would apply to the
//! former one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::{SandboxPlan, checked};

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: libc::c_int = 1;
const RULE_NET_PORT: libc::c_int = 2;

// Access rights, as in `linux/landlock.h`.
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_REG: u64 = 1 << 8;
const MAKE_SOCK: u64 = 1 << 9;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// All access rights of Landlock's first version.
const FIRST: u64 = (1 << 13) - 1;
/// Rights that a rule about a file may contain.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
const BIND_TCP: u64 = 1;
const CONNECT_TCP: u64 = 1 << 1;
const SCOPE_ABSTRACT_SOCKETS: u64 = 1;
const SCOPE_SIGNALS: u64 = 1 << 1;

const READ: u64 = READ_FILE | READ_DIR;
const OVERWRITE: u64 = READ | WRITE_FILE | TRUNCATE;
const OWN: u64 = OVERWRITE | REMOVE_FILE | MAKE_REG | MAKE_SOCK;
const DEVICE: u64 = READ_FILE | WRITE_FILE | IOCTL_DEV;

/// Paths that the program and its libraries read, whatever the config is.
const READABLE: [&str; 9] = [
    "/proc/self",
    // Debug symbols of the program for a panic's backtrace, if their package is installed.
    "/usr/lib/debug/.build-id",
    "/proc/sys/kernel/random",
    "/proc/sys/vm/overcommit_memory",
    // carnet reads the number of processors here, because per-CPU maps have a value for each processor.
    "/sys/devices/system/cpu",
    "/sys/kernel/btf",
    "/proc/version",
    "/proc/version_signature",
    "/dev/urandom",
];

/// Files that `getaddrinfo(3)` and its libraries read when they look up a host name.
const FOR_NAMES: [&str; 12] = [
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ld.so.cache",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/run/systemd/machines",
    "/etc/resolv.conf",
];

#[repr(C)]
struct RulesetAttr {
    files: u64,
    net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: libc::c_int,
}

#[repr(C)]
struct NetPort {
    allowed: u64,
    port: u64,
}

/// Descriptors of the files to which rules apply, open until the process ends.
static PINNED: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A set of Landlock rules that the kernel does not enforce yet.
#[derive(Debug)]
pub(super) struct Ruleset {
    ruleset: OwnedFd,
    abi: u32,
    files: u64,
    open_paths: Vec<File>,
}

/// Returns the Landlock version of the kernel; 0 without Landlock.
pub fn version() -> u32 {
    // SAFETY: with this flag the kernel reads no structure.
    let result = checked(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<RulesetAttr>(),
            0_usize,
            CREATE_RULESET_VERSION,
        )
    });
    result.ok().and_then(|abi| u32::try_from(abi).ok()).unwrap_or(0)
}

/// Returns a text that explains an error of Landlock to the operator.
pub(super) fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EOPNOTSUPP) => {
            "carnet's access to files and ports is not restricted: the kernel has no Landlock (needs \
             Linux 5.13 and lsm=landlock)"
                .into()
        }
        _ => format!("carnet's access to files and ports is not restricted: Landlock failed with {error}"),
    }
}

impl Ruleset {
    pub(super) fn new(plan: &SandboxPlan) -> io::Result<Ruleset> {
        let abi = version();
        let since = |version: u32, rights: u64| if abi >= version { rights } else { 0 };
        let files = FIRST | since(2, REFER) | since(3, TRUNCATE) | since(5, IOCTL_DEV);
        // systemd's notification socket may be an abstract socket, so permit abstract sockets if there is
        // one.
        let notified = std::env::var_os("NOTIFY_SOCKET");
        let abstract_one = notified.is_some_and(|name| name.as_encoded_bytes().starts_with(b"@"));
        let scoped = if abstract_one { SCOPE_SIGNALS } else { SCOPE_SIGNALS | SCOPE_ABSTRACT_SOCKETS };
        let attr = RulesetAttr { files, net: since(4, BIND_TCP | CONNECT_TCP), scoped: since(6, scoped) };
        // SAFETY: the kernel reads a structure of the given length, which lives until the call has returned.
        // Fields that the kernel does not know are zero, which it accepts.
        let fd = checked(unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attr, size_of::<RulesetAttr>(), 0_u32)
        })?;
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the kernel has just created the descriptor, and no other code knows it.
        let ruleset = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut rules = Ruleset { ruleset, abi, files, open_paths: Vec::new() };

        for path in READABLE {
            rules.allow(Path::new(path), READ)?;
        }
        // A panic's backtrace reads the names of functions from the program file.
        if let Ok(program) = std::env::current_exe() {
            rules.allow(&program, READ)?;
        }
        for path in FOR_NAMES.into_iter().filter(|_| plan.looks_up_names) {
            rules.allow(Path::new(path), READ)?;
        }
        if plan.looks_up_names {
            rules.allow(&of_resolver(), READ)?;
        }
        if plan.network {
            rules.allow(Path::new("/proc/sys/net"), OVERWRITE)?;
            rules.allow(Path::new("/dev/net/tun"), DEVICE)?;
        }
        for path in &plan.read {
            rules.allow(path, READ)?;
        }
        for path in &plan.write {
            rules.allow(path, OWN)?;
        }
        if abi >= 4 {
            let listens = plan.listens.iter().map(|port| (*port, BIND_TCP));
            for (port, allowed) in listens.chain(plan.connects.iter().map(|port| (*port, CONNECT_TCP))) {
                let rule = NetPort { allowed, port: port.into() };
                rules.add(RULE_NET_PORT, (&raw const rule).cast())?;
            }
        }
        Ok(rules)
    }

    /// Permits access to a file, or to a folder and all its content. Does nothing if the path does not exist.
    fn allow(&mut self, path: &Path, allowed: u64) -> io::Result<()> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)
        else {
            return Ok(());
        };
        let rights = if file.metadata()?.is_dir() { allowed } else { allowed & OF_FILES };
        let rule = PathBeneath { allowed: rights & self.files, parent: file.as_raw_fd() };
        self.add(RULE_PATH_BENEATH, (&raw const rule).cast())?;
        self.open_paths.push(file);
        Ok(())
    }

    fn add(&self, kind: libc::c_int, rule: *const libc::c_void) -> io::Result<()> {
        // SAFETY: the kernel reads the rule, a structure of the type that `kind` names. The caller keeps it
        // alive until this function returns.
        checked(unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, self.ruleset.as_raw_fd(), kind, rule, 0_u32)
        })
        .map(drop)
    }

    /// Makes the kernel enforce the rules, and returns the Landlock version. The process must have set
    /// `no_new_privs`.
    pub(super) fn restrict(self) -> io::Result<u32> {
        // SAFETY: the call takes only numbers.
        checked(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.ruleset.as_raw_fd(), 0_u32) })?;
        PINNED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(self.open_paths);
        Ok(self.abi)
    }
}

/// Returns the folder in which programs replace the resolver's configuration: where `/etc/resolv.conf` leads
/// by symbolic links. Returns the file itself if that is `/etc`.
fn of_resolver() -> PathBuf {
    let file = std::fs::canonicalize("/etc/resolv.conf").unwrap_or_default();
    match file.parent() {
        Some(folder) if folder != Path::new("/etc") => folder.to_owned(),
        _ => file,
    }
}
