//! The tests try each forbidden action in a separate process. They try it without any layer of the sandbox,
//! where it must succeed, under each layer alone, and under all layers. So they show which layers refuse the
//! action.

#![allow(clippy::unwrap_used, reason = "a test says no more by expect")]

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

use super::*;

/// Result of an attempt: the kernel allowed the action, refused it with this error, or killed the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptResult {
    Done,
    Refused(Errno),
    Killed,
}
use AttemptResult::{Done, Killed, Refused};

const SANDBOX_LAYERS: [&str; 3] = ["capabilities", "landlock", "seccomp"];

const NOT_PERMITTED: AttemptResult = Refused(Errno::EPERM);
const ACCESS_DENIED: AttemptResult = Refused(Errno::EACCES);

/// Actions that a test attempts, each with its result under each of the [`SANDBOX_LAYERS`].
const ATTEMPTS: [(&str, [AttemptResult; 3]); 28] = [
    // Actions that the sandbox allows.
    ("read-named", [Done, Done, Done]),
    ("replace-own", [Done, Done, Done]),
    ("connect-named", [Done, Done, Done]),
    ("new-thread", [Done, Done, Done]),
    ("own-netlink", [Done, Done, Done]),
    ("ask-of-socket", [Done, Done, Done]),
    // Actions that the sandbox refuses.
    ("execute", [Done, ACCESS_DENIED, Killed]),
    ("fork", [Done, Done, NOT_PERMITTED]),
    ("executable-memory", [Done, Done, NOT_PERMITTED]),
    ("read-shadow", [Done, ACCESS_DENIED, Done]),
    ("read-other", [Done, ACCESS_DENIED, Done]),
    ("write-named", [Done, ACCESS_DENIED, Done]),
    ("create-elsewhere", [Done, ACCESS_DENIED, Done]),
    ("change-mode", [Done, Done, NOT_PERMITTED]),
    ("set-hostname", [Done, ACCESS_DENIED, Done]),
    ("connect-other", [Done, ACCESS_DENIED, Done]),
    ("listen-other", [Done, ACCESS_DENIED, Done]),
    ("abstract-socket", [Done, NOT_PERMITTED, Done]),
    ("signal", [Done, NOT_PERMITTED, NOT_PERMITTED]),
    ("read-process", [NOT_PERMITTED, NOT_PERMITTED, Killed]),
    ("trace", [NOT_PERMITTED, NOT_PERMITTED, Killed]),
    ("mount", [NOT_PERMITTED, NOT_PERMITTED, Killed]),
    ("new-namespace", [NOT_PERMITTED, Done, Killed]),
    ("enter-namespace", [NOT_PERMITTED, Done, Killed]),
    ("packet-socket", [NOT_PERMITTED, Done, NOT_PERMITTED]),
    ("other-netlink", [Done, Done, NOT_PERMITTED]),
    ("find-programs", [NOT_PERMITTED, Done, NOT_PERMITTED]),
    ("load-module", [NOT_PERMITTED, Done, Killed]),
];

/// Returns the first version of Landlock that can restrict this attempt.
fn landlock_version_for(attempt: &str) -> u32 {
    match attempt {
        "connect-other" | "listen-other" => 4,
        "abstract-socket" | "signal" => 6,
        _ => 1,
    }
}

/// Objects of a process outside of the sandbox: a folder, two listeners and an abstract socket.
struct ObjectsOutsideSandbox {
    folder: PathBuf,
    named_listener: TcpListener,
    other_listener: TcpListener,
    _hidden_socket: UnixListener,
}

impl ObjectsOutsideSandbox {
    fn new() -> ObjectsOutsideSandbox {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("carnet-sandbox-{}-{number}", std::process::id()));
        for inside in ["read", "own", "other"] {
            fs::create_dir_all(folder.join(inside)).unwrap();
            fs::write(folder.join(inside).join("file"), "text").unwrap();
        }
        let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
        let hidden = SocketAddr::from_abstract_name(folder.as_os_str().as_encoded_bytes()).unwrap();
        ObjectsOutsideSandbox {
            folder,
            named_listener: listener(),
            other_listener: listener(),
            _hidden_socket: UnixListener::bind_addr(&hidden).unwrap(),
        }
    }

    /// Starts a process that makes an attempt under one layer of the sandbox. Returns how the process ended.
    fn attempt_in_child(&self, attempt: &str, layer: &str) -> AttemptResult {
        let ports = [&self.named_listener, &self.other_listener]
            .map(|listener| listener.local_addr().unwrap().port());
        let task = format!("{attempt} {layer} {} {} {}", ports[0], ports[1], self.folder.display());
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "sandbox::tests::child_process_of_sandbox_test",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(TASK_VARIABLE, task)
            .output()
            .unwrap();
        if output.status.signal() == Some(libc::SIGSYS) {
            return Killed;
        }
        let said = String::from_utf8_lossy(&output.stdout);
        let result = said.split("RESULT=").nth(1).and_then(|rest| rest.split_whitespace().next());
        match result.and_then(|number| number.parse().ok()) {
            Some(0) => Done,
            Some(errno) => Refused(Errno::from_raw(errno)),
            None => panic!("{attempt} under {layer}: {}\n{said}{}", output.status, {
                String::from_utf8_lossy(&output.stderr)
            }),
        }
    }
}

impl Drop for ObjectsOutsideSandbox {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn each_forbidden_action_is_refused_by_its_sandbox_layer() {
    let root = nix::unistd::geteuid().is_root()
        && !capabilities::needed_capabilities(&plan_with_everything(), true).is_empty();
    let filters = cfg!(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"));
    if !root || landlock::kernel_abi_version() == 0 || !filters {
        let reason = "needs root, Landlock (Linux 5.13) and a list of system calls for this architecture";
        assert!(std::env::var("CARNET_REQUIRE_ROOT").as_deref() != Ok("1") || !filters, "{reason}");
        println!("\nSKIPPED: {reason}");
        return;
    }
    let outside = ObjectsOutsideSandbox::new();
    for (attempt, expected) in ATTEMPTS {
        if landlock::kernel_abi_version() < landlock_version_for(attempt) {
            println!("\nSKIPPED: {attempt}: Landlock {} is too old", landlock::kernel_abi_version());
            continue;
        }
        match outside.attempt_in_child(attempt, "nothing") {
            Done => {}
            // A kernel without modules or BPF refuses this attempt even without a sandbox.
            Refused(Errno::ENOSYS) => continue,
            end => panic!("{attempt} without a sandbox: {end:?}"),
        }
        for (layer, end) in SANDBOX_LAYERS.into_iter().zip(expected) {
            assert_eq!(outside.attempt_in_child(attempt, layer), end, "{attempt} under {layer} alone");
        }
        let all = outside.attempt_in_child(attempt, "all");
        assert_eq!(
            all != Done,
            expected.iter().any(|end| *end != Done),
            "{attempt} under all layers: {all:?}"
        );
        assert_eq!(all == Killed, expected.contains(&Killed), "{attempt} under all layers: {all:?}");
    }
}

/// libc uses an older system call if a newer one fails with ENOSYS.
#[test]
fn unlisted_system_calls_fail_as_on_older_kernel() {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")) {
        return;
    }
    let outside = ObjectsOutsideSandbox::new();
    assert_eq!(outside.attempt_in_child("clone3", "nothing"), Refused(Errno::EINVAL));
    for attempt in ["clone3", "call-of-the-future"] {
        assert_eq!(outside.attempt_in_child(attempt, "seccomp"), Refused(Errno::ENOSYS), "{attempt}");
    }
}

/// A station that may load BPF programs gives up this right once it knows that it needs none. All its threads
/// lose the right.
#[test]
fn right_to_load_programs_is_given_up_in_all_threads() {
    if !nix::unistd::geteuid().is_root() {
        println!("\nSKIPPED: needs root");
        return;
    }
    let outside = ObjectsOutsideSandbox::new();
    for attempt in ["make-map", "make-map-in-thread"] {
        if outside.attempt_in_child(attempt, "programs") == Refused(Errno::ENOSYS) {
            println!("\nSKIPPED: needs a kernel with BPF");
            return;
        }
        assert_eq!(outside.attempt_in_child(attempt, "programs"), Done, "{attempt}");
        assert_eq!(outside.attempt_in_child(attempt, "settled"), NOT_PERMITTED, "{attempt}");
        assert_eq!(outside.attempt_in_child(attempt, "all"), NOT_PERMITTED, "{attempt}");
    }
}

/// The process keeps a capability only if the config names files of other users.
#[test]
fn configured_files_of_other_users_keep_capability() {
    if !nix::unistd::geteuid().is_root() {
        println!("\nSKIPPED: needs root");
        return;
    }
    let outside = ObjectsOutsideSandbox::new();
    let plan =
        |folder: &Path| SandboxPlan { writable_folders: vec![folder.to_owned()], ..SandboxPlan::default() };
    let folder = outside.folder.join("own");
    assert_eq!(capabilities::file_of_other_user(&plan(&folder)), None);
    nix::unistd::chown(&folder, Some(12345.into()), Some(12345.into())).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(capabilities::file_of_other_user(&plan(&folder)), Some(folder.clone()));
    let secret = outside.folder.join("read/file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let named = SandboxPlan { config_paths: vec![secret.clone()], ..SandboxPlan::default() };
    assert_eq!(capabilities::file_of_other_user(&named), None);
    nix::unistd::chown(&secret, Some(12345.into()), None).unwrap();
    assert_eq!(capabilities::file_of_other_user(&named), Some(secret));
    // `file_of_other_user` drops the capability only while it checks. So this process can still write into
    // another user's folder.
    fs::write(folder.join("new"), "text").unwrap();
    let names = |others| {
        capabilities::needed_capabilities(&plan(&folder), others)
            .into_iter()
            .map(|need| need.name)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(true), ["CAP_DAC_OVERRIDE"]);
    assert_eq!(names(false), Vec::<&str>::new());
}

/// docs/threats.md has the same table of capabilities as the code.
#[test]
fn threats_page_lists_every_capability() {
    let page = include_str!("../../../../docs/threats.md");
    for need in &capabilities::NEEDED_CAPABILITIES {
        let row = format!("| `{}` |", need.name);
        let row = page.lines().find(|line| line.starts_with(&row)).unwrap_or_else(|| panic!("{}", need.name));
        assert!(row.contains(need.needed_for), "{row}: expected {}", need.needed_for);
    }
}

fn plan_with_everything() -> SandboxPlan {
    SandboxPlan {
        changes_network: true,
        opens_packet_sockets: true,
        loads_bpf_programs: true,
        ..SandboxPlan::default()
    }
}

/// Environment variable with the task of the child process: action, layer, ports and folder.
const TASK_VARIABLE: &str = "CARNET_SANDBOX_TASK";

/// Not a test: the code of the child process.
#[test]
fn child_process_of_sandbox_test() {
    let Ok(task) = std::env::var(TASK_VARIABLE) else { return };
    let words: Vec<&str> = task.splitn(5, ' ').collect();
    let [attempt, layer, named, other, folder] = words[..] else { panic!("{task}") };
    let (named, other): (u16, u16) = (named.parse().unwrap(), other.parse().unwrap());
    let folder = Path::new(folder);
    let plan = SandboxPlan {
        changes_network: true,
        loads_bpf_programs: matches!(layer, "programs" | "settled"),
        readable_paths: vec![folder.join("read")],
        writable_folders: vec![folder.join("own")],
        connecting_tcp_ports: vec![named],
        ..SandboxPlan::default()
    };
    // Create a mount namespace for the attempt to enter a namespace. It has no effect outside of this
    // process.
    if nix::unistd::geteuid().is_root() {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let nothing = None::<&str>;
        mount(nothing, "/", nothing, MsFlags::MS_PRIVATE | MsFlags::MS_REC, nothing).unwrap();
    }
    let namespace = fs::File::open("/proc/thread-self/ns/uts").unwrap();

    match layer {
        "nothing" => {}
        "capabilities" => {
            capabilities::drop_capabilities_except(&capabilities::needed_capabilities(&plan, false)).unwrap();
        }
        "landlock" => {
            call_prctl(libc::PR_SET_NO_NEW_PRIVS, 1).unwrap();
            landlock::LandlockRuleset::new(&plan)
                .and_then(landlock::LandlockRuleset::restrict_process)
                .unwrap();
        }
        "seccomp" => {
            call_prctl(libc::PR_SET_NO_NEW_PRIVS, 1).unwrap();
            seccomp::restrict(&plan).unwrap();
        }
        "all" | "programs" | "settled" => {
            let mut held = enter_sandbox(&plan);
            assert_eq!(held.missing_limits, Vec::<String>::new());
            assert!(
                held.no_new_privileges && held.seccomp_enabled && held.landlock_abi.is_some(),
                "{held:?}"
            );
            // This thread starts before the process gives up the right to load programs. It tries to create a
            // BPF map after that.
            let (go, wait) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || wait.recv().map_or(Ok(()), |()| create_bpf_map()));
            if layer == "settled" {
                held.drop_program_loading();
                assert_eq!(held.missing_limits, Vec::<String>::new());
                assert_eq!(held.remaining_capabilities, ["CAP_NET_ADMIN"]);
            }
            if attempt == "make-map-in-thread" {
                go.send(()).unwrap();
                print_result(&thread.join().unwrap());
                return;
            }
        }
        other => panic!("{other}"),
    }
    let result = make_attempt(attempt, folder, (named, other), &namespace);
    print_result(&result);
}

fn print_result(result: &io::Result<()>) {
    let number = match result {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or_else(|| panic!("{error}")),
    };
    println!("RESULT={number} ");
}

fn make_attempt(
    attempt: &str,
    folder: &Path,
    (named, other): (u16, u16),
    namespace: &fs::File,
) -> io::Result<()> {
    let zero: libc::c_long = 0;
    let call = |number: libc::c_long, arguments: [libc::c_long; 6]| {
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: each call below gets numbers, null pointers, or pointers to values that live until it has
        // returned.
        check_call_result(unsafe { libc::syscall(number, a, b, c, d, e, f) })
    };
    let parent = libc::c_long::from(nix::unistd::getppid().as_raw());
    match attempt {
        "read-named" => fs::read(folder.join("read/file")).map(drop),
        "replace-own" => {
            let new = folder.join("own/new");
            fs::write(&new, "text")?;
            fs::rename(&new, folder.join("own/file"))?;
            UnixListener::bind(folder.join("own/socket"))?;
            fs::remove_file(folder.join("own/socket"))
        }
        "connect-named" => TcpStream::connect(("127.0.0.1", named)).map(drop),
        "new-thread" => std::thread::Builder::new().spawn(|| ())?.join().map_err(|_| ErrorKind::Other.into()),
        "own-netlink" => create_socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE),
        "ask-of-socket" => {
            let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
            let mut octets: libc::c_int = 0;
            // SAFETY: the kernel writes one integer to the pointer's target.
            let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut octets) };
            check_call_result(result.into()).map(drop)
        }
        "make-map" => create_bpf_map(),
        "execute" => Err(Command::new("/bin/sh").args(["-c", "echo RESULT=0"]).exec()),
        "fork" => match call(libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0, 0, 0])? {
            // SAFETY: the new process ends at once.
            0 => unsafe { libc::_exit(0) },
            _ => Ok(()),
        },
        "executable-memory" => {
            let (rights, kind) = (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            call(libc::SYS_mmap, [0, 4096, rights.into(), kind.into(), -1, 0]).map(drop)
        }
        "read-shadow" => fs::read("/etc/shadow").map(drop),
        "read-other" => fs::read(folder.join("other/file")).map(drop),
        "write-named" => fs::write(folder.join("read/file"), "text"),
        "create-elsewhere" => fs::write(folder.join("other/new"), "text"),
        "change-mode" => fs::set_permissions(folder.join("own/file"), fs::Permissions::from_mode(0o666)),
        "set-hostname" => {
            let file = "/proc/sys/kernel/hostname";
            let mut name = [0_u8; 65];
            // SAFETY: the kernel writes at most this number of octets.
            check_call_result(unsafe { libc::gethostname(name.as_mut_ptr().cast(), 64) }.into())?;
            let length = name.iter().position(|octet| *octet == 0).unwrap_or(64);
            // Writes the host name that the machine already has.
            fs::OpenOptions::new()
                .write(true)
                .open(file)
                .and_then(|mut file| io::Write::write_all(&mut file, &name[..length]))
        }
        "connect-other" => TcpStream::connect(("127.0.0.1", other)).map(drop),
        "listen-other" => TcpListener::bind("127.0.0.1:0").map(drop),
        "abstract-socket" => {
            let name = SocketAddr::from_abstract_name(folder.as_os_str().as_encoded_bytes())?;
            UnixStream::connect_addr(&name).map(drop)
        }
        "signal" => call(libc::SYS_kill, [parent, 0, 0, 0, 0, 0]).map(drop),
        "read-process" => {
            let mut octets = [0_u8; 8];
            let local = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
            // No process has memory mapped at this address. The error for a missing mapping (EFAULT) is no
            // refusal.
            let remote =
                libc::iovec { iov_base: std::ptr::without_provenance_mut(4096), iov_len: octets.len() };
            // SAFETY: both vectors live until the call has returned, and the kernel writes only into
            // `octets`.
            let read = unsafe {
                libc::syscall(
                    libc::SYS_process_vm_readv,
                    parent,
                    &raw const local,
                    1,
                    &raw const remote,
                    1,
                    0,
                )
            };
            match check_call_result(read) {
                Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Ok(()),
                result => result.map(drop),
            }
        }
        // Attaches to the process as a debugger does, without stopping it.
        "trace" => call(libc::SYS_ptrace, [libc::PTRACE_SEIZE.into(), parent, 0, 0, 0, 0]).map(drop),
        "mount" => {
            let nothing = None::<&str>;
            Ok(mount(Some("tmpfs"), &folder.join("read"), Some("tmpfs"), MsFlags::empty(), nothing)?)
        }
        "new-namespace" => Ok(unshare(CloneFlags::CLONE_NEWNET)?),
        "enter-namespace" => Ok(setns(namespace, CloneFlags::CLONE_NEWUTS)?),
        "packet-socket" => create_socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0),
        "other-netlink" => create_socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_KOBJECT_UEVENT),
        "find-programs" => {
            const BPF_PROG_GET_NEXT_ID: libc::c_long = 11;
            let mut attr = [0_u64; 16];
            let attr = attr.as_mut_ptr() as libc::c_long;
            match call(libc::SYS_bpf, [BPF_PROG_GET_NEXT_ID, attr, 128, 0, 0, 0]) {
                // ENOENT means that no BPF program exists, so the sandbox has not refused the call.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                result => result.map(drop),
            }
        }
        "load-module" => match call(libc::SYS_init_module, [zero; 6]) {
            // The kernel has looked at the module, so the sandbox has not refused the call.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOEXEC | libc::EFAULT)) => Ok(()),
            result => result.map(drop),
        },
        "clone3" => call(libc::SYS_clone3, [zero; 6]).map(drop),
        "call-of-the-future" => call(1000, [zero; 6]).map(drop),
        other => panic!("{other}"),
    }
}

/// Creates an array map of one number, for BPF programs.
fn create_bpf_map() -> io::Result<()> {
    const BPF_MAP_CREATE: libc::c_long = 0;
    let mut attr = [0_u32; 32];
    attr[..4].copy_from_slice(&[2, 4, 4, 1]);
    // SAFETY: the kernel reads as many octets as `attr` has, and `attr` lives until the call has returned.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, BPF_MAP_CREATE, attr.as_mut_ptr(), size_of_val(&attr)) };
    check_call_result(result).map(drop)
}

fn create_socket(domain: libc::c_int, kind: libc::c_int, protocol: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes numbers, and the descriptor ends with the process.
    check_call_result(unsafe { libc::socket(domain, kind, protocol) }.into()).map(drop)
}
