//! Filters system calls (`seccomp(2)`): allows those that the program makes, some of them with certain
//! arguments only.
//!
//! | what | answer |
//! |---|---|
//! | on the list | it is made |
//! | what only an intruder asks for: another program, another process's memory, mounts, namespaces, modules | the process is killed, and the kernel's log says at which call |
//! | newer than the list; `clone3`, whose flags a filter cannot see | ENOSYS, as an older kernel would say, so that a libc takes the older call |
//! | any other | EPERM, and a line in the kernel's audit log |
//!
//! If a libc begins to use another existing call, that call gets EPERM until the list contains it. The log
//! has the call's number. `station.sandbox = "off"` helps until then.
//!
//! Since 5.11 the kernel computes the answer in advance if it depends on no argument. So the calls of the
//! data path cost next to nothing. An older kernel goes through the list, in which these calls are first.
//!
//! There are lists for x86_64, aarch64 and riscv64. A 32-bit architecture has other calls for times and
//! lengths, for which no list exists yet.

use std::io;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(super) use filter::{restrict, restrict_to_maps};

/// Fails: this architecture has no list.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(super) fn restrict(_: &super::Plan) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Fails: this architecture has no list.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(super) fn restrict_to_maps() -> io::Result<()> {
    Ok(())
}

/// Returns whether the kernel refuses calls about BPF maps without checking them.
pub(super) fn maps_are_refused() -> bool {
    const MAP_LOOKUP_ELEM: libc::c_int = 1;
    // No descriptor has such a high number. All other fields are zero.
    let mut attr = [0_u64; 16];
    attr[0] = u64::from(u32::MAX >> 1);
    // SAFETY: the kernel reads this number of octets, which live until the call has returned.
    let result = super::checked(unsafe {
        libc::syscall(libc::SYS_bpf, MAP_LOOKUP_ELEM, attr.as_mut_ptr(), size_of_val(&attr))
    });
    result.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
}

/// Explains an error to an operator.
pub(super) fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        None => format!("system calls are not filtered: carnet has no list for {}", std::env::consts::ARCH),
        Some(libc::ENOSYS | libc::EINVAL) => {
            "system calls are not filtered: this kernel is without CONFIG_SECCOMP_FILTER".into()
        }
        _ => format!("system calls are not filtered: seccomp says {error}"),
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod filter {
    use std::io;

    use super::super::{Plan, checked};

    #[cfg(target_arch = "x86_64")]
    const ARCHITECTURE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const ARCHITECTURE: u32 = 0xc000_00b7;
    #[cfg(target_arch = "riscv64")]
    const ARCHITECTURE: u32 = 0xc000_00f3;

    /// Number of the last system call that these lists consider (Linux 6.18: `file_setattr`).
    const LAST: u32 = 469;

    /// Calls that are allowed with any arguments. Those of the data path are first.
    #[rustfmt::skip]
    const ALLOWED: &[libc::c_long] = &[
        libc::SYS_read, libc::SYS_write, libc::SYS_epoll_pwait, libc::SYS_sendmmsg, libc::SYS_recvmmsg,
        libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_writev,
        libc::SYS_readv, libc::SYS_clock_gettime, libc::SYS_timerfd_settime, libc::SYS_futex,
        libc::SYS_sched_yield, libc::SYS_fdatasync, libc::SYS_fsync,
        // Calls about files.
        libc::SYS_openat, libc::SYS_close, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx,
        libc::SYS_lseek, libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_preadv, libc::SYS_pwritev,
        libc::SYS_ftruncate, libc::SYS_flock, libc::SYS_fcntl, libc::SYS_getdents64, libc::SYS_readlinkat,
        libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_renameat2,
        libc::SYS_umask, libc::SYS_getcwd, libc::SYS_inotify_init1, libc::SYS_inotify_add_watch,
        libc::SYS_inotify_rm_watch, libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_fadvise64,
        libc::SYS_close_range,
        // Calls about descriptors for events.
        libc::SYS_dup, libc::SYS_dup3, libc::SYS_pipe2, libc::SYS_ppoll, libc::SYS_pselect6,
        libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait2, libc::SYS_eventfd2,
        libc::SYS_timerfd_create, libc::SYS_timerfd_gettime,
        // Calls about sockets; `socket` is below.
        libc::SYS_bind, libc::SYS_connect, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4,
        libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_getsockopt, libc::SYS_setsockopt,
        libc::SYS_shutdown,
        // Calls about memory; `mmap` is below.
        libc::SYS_brk, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_membarrier,
        // Calls about threads, signals, and the process itself.
        libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_rseq, libc::SYS_set_tid_address,
        libc::SYS_exit, libc::SYS_exit_group, libc::SYS_sched_getaffinity, libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack, libc::SYS_restart_syscall,
        libc::SYS_getpid, libc::SYS_gettid, libc::SYS_getppid, libc::SYS_getuid, libc::SYS_geteuid,
        libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getrusage, libc::SYS_getrandom, libc::SYS_capget,
        libc::SYS_capset, libc::SYS_seccomp, libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getcpu,
        // Calls about time.
        libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_gettimeofday,
    ];

    /// Older names of these calls.
    #[cfg(target_arch = "x86_64")]
    #[rustfmt::skip]
    const OLDER: &[libc::c_long] = &[
        libc::SYS_epoll_wait, libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access,
        libc::SYS_poll, libc::SYS_select, libc::SYS_pipe, libc::SYS_dup2, libc::SYS_unlink, libc::SYS_rename,
        libc::SYS_renameat, libc::SYS_mkdir, libc::SYS_readlink, libc::SYS_epoll_create, libc::SYS_eventfd,
        libc::SYS_time, libc::SYS_getrlimit, libc::SYS_inotify_init,
    ];
    /// `renameat`, which the crate does not define for this architecture.
    #[cfg(target_arch = "aarch64")]
    const OLDER: &[libc::c_long] = &[38];
    #[cfg(target_arch = "riscv64")]
    const OLDER: &[libc::c_long] = &[];

    /// Calls that neither the program nor its libraries ever make.
    #[rustfmt::skip]
    const DEADLY: &[libc::c_long] = &[
        libc::SYS_execve, libc::SYS_execveat, libc::SYS_ptrace, libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev, libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root,
        libc::SYS_chroot, libc::SYS_move_mount, libc::SYS_open_tree, libc::SYS_fsopen, libc::SYS_fsconfig,
        libc::SYS_fsmount, libc::SYS_fspick, libc::SYS_mount_setattr, libc::SYS_unshare, libc::SYS_setns,
        libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module, libc::SYS_kexec_load,
        libc::SYS_reboot, libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_open_by_handle_at, libc::SYS_keyctl,
        libc::SYS_add_key, libc::SYS_request_key, libc::SYS_userfaultfd, libc::SYS_perf_event_open,
        libc::SYS_pidfd_getfd, libc::SYS_acct, libc::SYS_quotactl, libc::SYS_syslog, libc::SYS_settimeofday,
        libc::SYS_clock_settime,
    ];

    /// Half of an argument.
    #[derive(Clone, Copy)]
    enum Half {
        Low,
        High,
    }

    /// Requires that a half of an argument, masked, has a value.
    #[derive(Clone, Copy)]
    struct Test(u32, Half, u32, u32);

    /// Requires that a 32-bit argument has a value.
    fn is(argument: u32, value: u32) -> Test {
        Test(argument, Half::Low, u32::MAX, value)
    }

    /// Requires that an argument has none of these bits.
    fn without(argument: u32, bits: u32) -> Test {
        Test(argument, Half::Low, bits, 0)
    }

    type Ways = Vec<Vec<Test>>;

    /// Returns calls that are allowed only with certain arguments. Each has a list of alternatives, and an
    /// alternative has tests that must all pass.
    fn by_arguments(plan: &Plan) -> Vec<(libc::c_long, Ways)> {
        let (unix, netlink, packet) = (libc::AF_UNIX as u32, libc::AF_NETLINK as u32, libc::AF_PACKET as u32);
        let mut sockets = vec![
            vec![is(0, unix)],
            vec![is(0, libc::AF_INET as u32)],
            vec![is(0, libc::AF_INET6 as u32)],
            vec![is(0, netlink), is(2, libc::NETLINK_ROUTE as u32)],
            vec![is(0, netlink), is(2, libc::NETLINK_GENERIC as u32)],
        ];
        if plan.packets {
            sockets.push(vec![is(0, packet)]);
        }
        // A resolver loads libraries, which need executable memory.
        let executable = if plan.names { 0 } else { libc::PROT_EXEC as u32 };
        let memory = || vec![vec![without(2, executable)]];
        let thread = (libc::CLONE_VM | libc::CLONE_THREAD) as u32;
        let namespaces = (libc::CLONE_NEWNS
            | libc::CLONE_NEWCGROUP
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET) as u32;
        let clone = vec![Test(0, Half::Low, thread | namespaces, thread)];
        let ioctls = vec![
            // Requests about sockets and their interfaces, Wi-Fi and TUN devices; not those that write input
            // into a terminal.
            vec![Test(1, Half::Low, 0xffff_ff00, 0x8900)],
            vec![Test(1, Half::Low, 0xffff_ff00, 0x8b00)],
            vec![Test(1, Half::Low, 0x0000_ffc0, 0x54c0)],
            vec![is(1, libc::FIONBIO as u32)],
            vec![is(1, libc::FIONREAD as u32)],
            // Request for the octets that a socket has not sent yet.
            vec![is(1, libc::TIOCOUTQ as u32)],
            vec![is(1, libc::FIOCLEX as u32)],
            vec![is(1, libc::TCGETS as u32)],
            vec![is(1, libc::TIOCGWINSZ as u32)],
        ];
        let controls = [libc::PR_SET_NAME, libc::PR_GET_NAME, PR_SET_VMA, libc::PR_GET_DUMPABLE];
        let controls = controls.into_iter().map(|option| vec![is(0, option as u32)]).collect();
        // Own limits may be read, but not set.
        let limits = vec![vec![is(0, 0), is(2, 0), Test(2, Half::High, u32::MAX, 0)]];
        let own = vec![vec![is(0, std::process::id())]];
        let mut calls = vec![
            (libc::SYS_socket, sockets),
            (libc::SYS_socketpair, vec![vec![is(0, unix)]]),
            (libc::SYS_mmap, memory()),
            (libc::SYS_mprotect, memory()),
            (libc::SYS_clone, vec![clone]),
            (libc::SYS_ioctl, ioctls),
            (libc::SYS_prctl, controls),
            (libc::SYS_prlimit64, limits),
            // abort() sends a signal to its own thread.
            (libc::SYS_tgkill, own),
        ];
        if plan.programs || plan.steers {
            calls.push((libc::SYS_bpf, commands(BPF_COMMANDS)));
        }
        calls
    }

    fn commands(allowed: &[u32]) -> Ways {
        allowed.iter().map(|command| vec![is(0, *command)]).collect()
    }

    const PR_SET_VMA: libc::c_int = 0x5356_4d41;

    /// Commands of `bpf(2)` for loading, attaching and filling maps: own objects, by their descriptors.
    /// Commands that find other programs' objects (by their number, or pinned), trace, or pass rights on
    /// (tokens) are left out.
    const BPF_COMMANDS: &[u32] = &[
        0,  // MAP_CREATE
        1,  // MAP_LOOKUP_ELEM
        2,  // MAP_UPDATE_ELEM
        3,  // MAP_DELETE_ELEM
        4,  // MAP_GET_NEXT_KEY
        5,  // PROG_LOAD
        8,  // PROG_ATTACH
        9,  // PROG_DETACH
        15, // OBJ_GET_INFO_BY_FD
        16, // PROG_QUERY
        18, // BTF_LOAD
        22, // MAP_FREEZE
        24, // MAP_LOOKUP_BATCH
        26, // MAP_UPDATE_BATCH
        27, // MAP_DELETE_BATCH
        28, // LINK_CREATE
        29, // LINK_UPDATE
        34, // LINK_DETACH
        35, // PROG_BIND_MAP
    ];

    /// Commands that only look up, change and list the content of a map.
    const MAP_COMMANDS: &[u32] = &[1, 2, 3, 4, 24, 26, 27];

    // `linux/bpf_common.h`: classic BPF, as for sockets.
    const LOAD: u16 = 0x20;
    const AND: u16 = 0x54;
    const IF_EQUAL: u16 = 0x15;
    const IF_GREATER: u16 = 0x25;
    const RETURN: u16 = 0x06;

    // Offsets in `struct seccomp_data`.
    const NUMBER: u32 = 0;
    const ARCH: u32 = 4;
    const ARGUMENTS: u32 = 16;

    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

    type Program = Vec<libc::sock_filter>;

    fn put(program: &mut Program, code: u16, k: u32, jt: usize, jf: usize) {
        // A jump leads over the tests of one call, which are a few dozen. A test checks this.
        let near = |jump: usize| u8::try_from(jump).unwrap_or(u8::MAX);
        program.push(libc::sock_filter { code, jt: near(jt), jf: near(jf), k });
    }

    fn answer(program: &mut Program, value: u32) {
        put(program, RETURN, value, 0, 0);
    }

    /// Begins a program with the call's number in the accumulator. On another architecture the numbers
    /// differ, so the program refuses it.
    fn begin() -> Program {
        let mut program = Program::new();
        put(&mut program, LOAD, ARCH, 0, 0);
        put(&mut program, IF_EQUAL, ARCHITECTURE, 1, 0);
        answer(&mut program, KILL);
        put(&mut program, LOAD, NUMBER, 0, 0);
        program
    }

    fn each(program: &mut Program, calls: &[libc::c_long], value: u32) {
        for call in calls {
            put(program, IF_EQUAL, *call as u32, 0, 1);
            answer(program, value);
        }
    }

    /// Returns the length of a path: three instructions for each test, and the answer.
    fn length(way: &[Test]) -> usize {
        way.len() * 3 + 1
    }

    /// Returns the program of the list.
    pub(super) fn list(plan: &Plan) -> Program {
        let mut program = begin();
        each(&mut program, ALLOWED, ALLOW);
        each(&mut program, OLDER, ALLOW);
        each(&mut program, DEADLY, KILL);
        for (call, ways) in by_arguments(plan) {
            one_of(&mut program, call, &ways);
        }
        // The other filter answers newer calls.
        put(&mut program, IF_GREATER, LAST, 0, 1);
        answer(&mut program, ALLOW);
        each(&mut program, &[libc::SYS_clone3], ALLOW);
        answer(&mut program, REFUSE);
        program
    }

    /// Adds a call that is allowed by some alternatives and refused otherwise.
    fn one_of(program: &mut Program, call: libc::c_long, ways: &Ways) {
        let whole: usize = ways.iter().map(|way| length(way)).sum();
        put(program, IF_EQUAL, call as u32, 0, whole + 1);
        for way in ways {
            for (at, Test(argument, half, mask, value)) in way.iter().enumerate() {
                let big_end = cfg!(target_endian = "big");
                let second = matches!(half, Half::High) != big_end;
                let offset = ARGUMENTS + argument * 8 + if second { 4 } else { 0 };
                put(program, LOAD, offset, 0, 0);
                put(program, AND, *mask, 0, 0);
                // On failure, jump to the next test, or to the next alternative.
                put(program, IF_EQUAL, *value, 0, length(way) - (at + 1) * 3);
            }
            answer(program, ALLOW);
        }
        answer(program, REFUSE);
    }

    /// Returns a program that allows only commands on maps, of all BPF commands.
    pub(super) fn maps_alone() -> Program {
        let mut program = begin();
        one_of(&mut program, libc::SYS_bpf, &commands(MAP_COMMANDS));
        answer(&mut program, ALLOW);
        program
    }

    /// Refuses newer calls as unknown, like an older kernel. This is a separate filter, because such calls
    /// need no log entry.
    pub(super) fn older_kernel() -> Program {
        let mut program = begin();
        put(&mut program, IF_GREATER, LAST, 0, 1);
        answer(&mut program, UNKNOWN);
        each(&mut program, &[libc::SYS_clone3], UNKNOWN);
        answer(&mut program, ALLOW);
        program
    }

    /// Enforces both filters. `no_new_privs` must be set.
    pub(in super::super) fn restrict(plan: &Plan) -> io::Result<()> {
        install(&older_kernel(), 0)?;
        let list = list(plan);
        // A kernel before 4.14 logs no refusals.
        install(&list, libc::SECCOMP_FILTER_FLAG_LOG).or_else(|_| install(&list, 0))
    }

    /// Forbids all threads to load BPF programs from now on.
    pub(in super::super) fn restrict_to_maps() -> io::Result<()> {
        let program = maps_alone();
        let all = libc::SECCOMP_FILTER_FLAG_TSYNC;
        install(&program, all | libc::SECCOMP_FILTER_FLAG_LOG).or_else(|_| install(&program, all))
    }

    fn install(program: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<()> {
        let whole = libc::sock_fprog {
            len: u16::try_from(program.len()).map_err(io::Error::other)?,
            filter: program.as_ptr().cast_mut(),
        };
        // SAFETY: the kernel reads the program, which lives until the call has returned, and writes nothing.
        let result = checked(unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const whole)
        });
        match result? {
            0 => Ok(()),
            thread => Err(io::Error::other(format!("thread {thread} has filters of its own"))),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Every jump stays inside the program, and the last instruction is an answer.
        #[test]
        fn programs_are_whole() {
            let plan = Plan { packets: true, programs: true, ..Plan::default() };
            for program in [list(&plan), list(&Plan::default()), maps_alone(), older_kernel()] {
                assert!(program.len() < 4096, "{}", program.len());
                for (at, instruction) in program.iter().enumerate() {
                    let furthest = usize::from(instruction.jt.max(instruction.jf));
                    assert!(
                        furthest < usize::from(u8::MAX) && at + furthest < program.len() - 1 || furthest == 0
                    );
                }
                assert_eq!(program.last().map(|last| last.code), Some(RETURN));
            }
        }

        #[test]
        fn no_call_is_on_two_lists() {
            let plan = Plan { packets: true, programs: true, ..Plan::default() };
            let arguments: Vec<_> = by_arguments(&plan).into_iter().map(|(call, _)| call).collect();
            let mut all = [ALLOWED, OLDER, DEADLY, &arguments, &[libc::SYS_clone3]].concat();
            all.sort_unstable();
            let count = all.len();
            all.dedup();
            assert_eq!(all.len(), count);
            assert!(all.iter().all(|call| *call <= i64::from(LAST)));
        }
    }
}
