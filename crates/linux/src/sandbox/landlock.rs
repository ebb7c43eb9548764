//! Landlock (`landlock(7)`) restricts the process to the files and TCP ports of the plan, and forbids signals
//! and abstract sockets to the outside.
//!
//! A rule applies to the file that exists when the rule is made, and not to a later file of the same name. So
//! the rules name folders, because programs replace files. For files in `/proc` the module keeps descriptors
//! open. Otherwise the kernel may free such a file and create it again. The rule would then not apply to the
//! new one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::{SandboxPlan, check_call_result};

const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
const LANDLOCK_RULE_PATH_BENEATH: libc::c_int = 1;
const LANDLOCK_RULE_NET_PORT: libc::c_int = 2;

// Access rights, as in `linux/landlock.h`.
const ACCESS_EXECUTE: u64 = 1;
const ACCESS_WRITE_FILE: u64 = 1 << 1;
const ACCESS_READ_FILE: u64 = 1 << 2;
const ACCESS_READ_DIR: u64 = 1 << 3;
const ACCESS_REMOVE_FILE: u64 = 1 << 5;
const ACCESS_MAKE_REG: u64 = 1 << 8;
const ACCESS_MAKE_SOCK: u64 = 1 << 9;
const ACCESS_REFER: u64 = 1 << 13;
const ACCESS_TRUNCATE: u64 = 1 << 14;
const ACCESS_IOCTL_DEV: u64 = 1 << 15;
/// All access rights of Landlock's first version.
const ACCESS_OF_FIRST_VERSION: u64 = (1 << 13) - 1;
/// Rights that a rule about a file may contain.
const ACCESS_TO_FILES: u64 =
    ACCESS_EXECUTE | ACCESS_WRITE_FILE | ACCESS_READ_FILE | ACCESS_TRUNCATE | ACCESS_IOCTL_DEV;
const ACCESS_BIND_TCP: u64 = 1;
const ACCESS_CONNECT_TCP: u64 = 1 << 1;
const SCOPE_ABSTRACT_SOCKETS: u64 = 1;
const SCOPE_SIGNALS: u64 = 1 << 1;

const ACCESS_READ: u64 = ACCESS_READ_FILE | ACCESS_READ_DIR;
const ACCESS_OVERWRITE: u64 = ACCESS_READ | ACCESS_WRITE_FILE | ACCESS_TRUNCATE;
const ACCESS_OWN_FOLDER: u64 = ACCESS_OVERWRITE | ACCESS_REMOVE_FILE | ACCESS_MAKE_REG | ACCESS_MAKE_SOCK;
const ACCESS_DEVICE: u64 = ACCESS_READ_FILE | ACCESS_WRITE_FILE | ACCESS_IOCTL_DEV;

/// Paths that the program and its libraries read, whatever the config is.
const ALWAYS_READABLE_PATHS: [&str; 9] = [
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
const NAME_RESOLUTION_PATHS: [&str; 12] = [
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
struct RulesetAttributes {
    handled_file_access: u64,
    handled_net_access: u64,
    handled_scopes: u64,
}

#[repr(C, packed)]
struct PathRuleAttributes {
    allowed_access: u64,
    parent_fd: libc::c_int,
}

#[repr(C)]
struct NetPortRuleAttributes {
    allowed_access: u64,
    port: u64,
}

/// Descriptors of the files to which rules apply, open until the process ends.
static FILES_OF_RULES: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// A set of Landlock rules that the kernel does not enforce yet.
#[derive(Debug)]
pub(super) struct LandlockRuleset {
    ruleset_fd: OwnedFd,
    abi_version: u32,
    handled_file_access: u64,
    open_paths: Vec<File>,
}

/// Returns the Landlock version of the kernel; 0 without Landlock.
pub fn kernel_abi_version() -> u32 {
    // SAFETY: with this flag the kernel reads no structure.
    let result = check_call_result(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<RulesetAttributes>(),
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    });
    result.ok().and_then(|abi| u32::try_from(abi).ok()).unwrap_or(0)
}

/// Returns a text that explains an error of Landlock to the operator.
pub(super) fn explain_error(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EOPNOTSUPP) => {
            "carnet's access to files and ports is not restricted: the kernel has no Landlock (needs \
             Linux 5.13 and lsm=landlock)"
                .into()
        }
        _ => format!("carnet's access to files and ports is not restricted: Landlock failed with {error}"),
    }
}

impl LandlockRuleset {
    pub(super) fn new(plan: &SandboxPlan) -> io::Result<LandlockRuleset> {
        let abi = kernel_abi_version();
        let since = |version: u32, rights: u64| if abi >= version { rights } else { 0 };
        let files = ACCESS_OF_FIRST_VERSION
            | since(2, ACCESS_REFER)
            | since(3, ACCESS_TRUNCATE)
            | since(5, ACCESS_IOCTL_DEV);
        // Permit abstract sockets if systemd's notification socket may be an abstract socket.
        let notified = std::env::var_os("NOTIFY_SOCKET");
        let abstract_one = notified.is_some_and(|name| name.as_encoded_bytes().starts_with(b"@"));
        let scoped = if abstract_one { SCOPE_SIGNALS } else { SCOPE_SIGNALS | SCOPE_ABSTRACT_SOCKETS };
        let attr = RulesetAttributes {
            handled_file_access: files,
            handled_net_access: since(4, ACCESS_BIND_TCP | ACCESS_CONNECT_TCP),
            handled_scopes: since(6, scoped),
        };
        // SAFETY: the kernel reads a structure of the given length, which lives until the call has returned.
        // Fields that the kernel does not know are zero, which it accepts.
        let fd = check_call_result(unsafe {
            libc::syscall(
                libc::SYS_landlock_create_ruleset,
                &raw const attr,
                size_of::<RulesetAttributes>(),
                0_u32,
            )
        })?;
        let fd = i32::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the kernel has just created the descriptor, and no other code knows it.
        let ruleset = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut rules = LandlockRuleset {
            ruleset_fd: ruleset,
            abi_version: abi,
            handled_file_access: files,
            open_paths: Vec::new(),
        };

        for path in ALWAYS_READABLE_PATHS {
            rules.allow_path(Path::new(path), ACCESS_READ)?;
        }
        // A panic's backtrace reads the names of functions from the program file.
        if let Ok(program) = std::env::current_exe() {
            rules.allow_path(&program, ACCESS_READ)?;
        }
        for path in NAME_RESOLUTION_PATHS.into_iter().filter(|_| plan.looks_up_names) {
            rules.allow_path(Path::new(path), ACCESS_READ)?;
        }
        if plan.looks_up_names {
            rules.allow_path(&resolver_file(), ACCESS_READ)?;
        }
        if plan.changes_network {
            rules.allow_path(Path::new("/proc/sys/net"), ACCESS_OVERWRITE)?;
            rules.allow_path(Path::new("/dev/net/tun"), ACCESS_DEVICE)?;
        }
        for path in &plan.readable_paths {
            rules.allow_path(path, ACCESS_READ)?;
        }
        for path in &plan.writable_folders {
            rules.allow_path(path, ACCESS_OWN_FOLDER)?;
        }
        if abi >= 4 {
            let listens = plan.listening_tcp_ports.iter().map(|port| (*port, ACCESS_BIND_TCP));
            for (port, allowed) in
                listens.chain(plan.connecting_tcp_ports.iter().map(|port| (*port, ACCESS_CONNECT_TCP)))
            {
                let rule = NetPortRuleAttributes { allowed_access: allowed, port: port.into() };
                rules.add_rule(LANDLOCK_RULE_NET_PORT, (&raw const rule).cast())?;
            }
        }
        Ok(rules)
    }

    /// Permits access to a file, or to a folder and all its content. Does nothing if the path does not exist.
    fn allow_path(&mut self, path: &Path, allowed: u64) -> io::Result<()> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let Ok(file) = OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_CLOEXEC).open(path)
        else {
            return Ok(());
        };
        let rights = if file.metadata()?.is_dir() { allowed } else { allowed & ACCESS_TO_FILES };
        let rule = PathRuleAttributes {
            allowed_access: rights & self.handled_file_access,
            parent_fd: file.as_raw_fd(),
        };
        self.add_rule(LANDLOCK_RULE_PATH_BENEATH, (&raw const rule).cast())?;
        self.open_paths.push(file);
        Ok(())
    }

    fn add_rule(&self, kind: libc::c_int, rule: *const libc::c_void) -> io::Result<()> {
        // SAFETY: the kernel reads the rule, a structure of the type that `kind` names. The caller keeps it
        // alive until this function returns.
        check_call_result(unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, self.ruleset_fd.as_raw_fd(), kind, rule, 0_u32)
        })
        .map(drop)
    }

    /// Makes the kernel enforce the rules, and returns the Landlock version. The process must have set
    /// `no_new_privs`.
    pub(super) fn restrict_process(self) -> io::Result<u32> {
        // SAFETY: the call takes only numbers.
        check_call_result(unsafe {
            libc::syscall(libc::SYS_landlock_restrict_self, self.ruleset_fd.as_raw_fd(), 0_u32)
        })?;
        FILES_OF_RULES.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(self.open_paths);
        Ok(self.abi_version)
    }
}

/// Returns the folder in which programs replace the resolver's configuration: the folder to which the
/// symbolic link `/etc/resolv.conf` leads. If this folder is `/etc`, returns the file itself.
fn resolver_file() -> PathBuf {
    let file = std::fs::canonicalize("/etc/resolv.conf").unwrap_or_default();
    match file.parent() {
        Some(folder) if folder != Path::new("/etc") => folder.to_owned(),
        _ => file,
    }
}
