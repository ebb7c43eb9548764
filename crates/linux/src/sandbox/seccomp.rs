//! Filters system calls (`seccomp(2)`): allows the calls that the program makes, some of them only with
//! certain arguments.
//!
//! * The kernel executes a call on the list.
//! * The kernel kills a process that makes a call that only an intruder needs: other programs, the memory of
//!   other processes, mounts, namespaces, modules. The kernel's log names the call.
//! * A call that is newer than the list fails with ENOSYS, as on an older kernel. So a libc makes an older
//!   call instead. `clone3` fails in the same way, because a filter cannot see its flags.
//! * Any other call fails with EPERM, and the kernel writes a line into its audit log.
//!
//! If a new libc uses a call that is not on the list, the kernel refuses the call with EPERM and logs its
//! number. Until the list contains the call, the operator can set `station.sandbox = "off"`.
//!
//! Since Linux 5.11 the kernel computes the filter's answer in advance for calls whose arguments do not
//! matter. So the filter costs almost no time for the calls of the data path. An older kernel runs the filter
//! at each call; the list begins with the calls of the data path.
//!
//! There are lists for x86_64, aarch64 and riscv64. No list exists for 32-bit architectures, which have other
//! calls for times and lengths.

use std::io;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(super) use seccomp_filter::{restrict, restrict_to_maps};

/// Fails, because this architecture has no list of allowed system calls.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(super) fn restrict(_: &super::SandboxPlan) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Does nothing, because this architecture has no list of allowed system calls.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(super) fn restrict_to_maps() -> io::Result<()> {
    Ok(())
}

/// Returns whether the kernel refuses all calls about BPF maps, before it checks their arguments.
pub(super) fn kernel_refuses_bpf_maps() -> bool {
    const MAP_LOOKUP_ELEM: libc::c_int = 1;
    // The first field is a descriptor number that no open descriptor has. All other fields are zero.
    let mut attr = [0_u64; 16];
    attr[0] = u64::from(u32::MAX >> 1);
    // SAFETY: the kernel reads as many octets as `attr` has, and `attr` lives until the call has returned.
    let result = super::check_call_result(unsafe {
        libc::syscall(libc::SYS_bpf, MAP_LOOKUP_ELEM, attr.as_mut_ptr(), size_of_val(&attr))
    });
    result.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
}

/// Returns a text that explains an error of seccomp to the operator.
pub(super) fn explain_error(error: &io::Error) -> String {
    match error.raw_os_error() {
        None => format!("system calls are not filtered: carnet has no list for {}", std::env::consts::ARCH),
        Some(libc::ENOSYS | libc::EINVAL) => {
            "system calls are not filtered: the kernel has no seccomp filters (CONFIG_SECCOMP_FILTER)".into()
        }
        _ => format!("system calls are not filtered: seccomp failed with {error}"),
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod seccomp_filter {
    use std::io;

    use super::super::{SandboxPlan, check_call_result};

    #[cfg(target_arch = "x86_64")]
    const AUDIT_ARCHITECTURE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const AUDIT_ARCHITECTURE: u32 = 0xc000_00b7;
    #[cfg(target_arch = "riscv64")]
    const AUDIT_ARCHITECTURE: u32 = 0xc000_00f3;

    /// Highest number of a system call that these lists consider (Linux 6.18: `file_setattr`).
    const LAST_SYSTEM_CALL: u32 = 469;

    /// Calls that are allowed with any arguments. The calls of the data path are first.
    #[rustfmt::skip]
    const ALLOWED_CALLS: &[libc::c_long] = &[
        libc::SYS_read, libc::SYS_write, libc::SYS_epoll_pwait, libc::SYS_sendmmsg, libc::SYS_recvmmsg,
        libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_writev,
        libc::SYS_readv, libc::SYS_clock_gettime, libc::SYS_timerfd_settime, libc::SYS_futex,
        libc::SYS_sched_yield, libc::SYS_fdatasync, libc::SYS_fsync,
        // Calls that use files.
        libc::SYS_openat, libc::SYS_close, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx,
        libc::SYS_lseek, libc::SYS_pread64, libc::SYS_pwrite64, libc::SYS_preadv, libc::SYS_pwritev,
        libc::SYS_ftruncate, libc::SYS_flock, libc::SYS_fcntl, libc::SYS_getdents64, libc::SYS_readlinkat,
        libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_renameat2,
        libc::SYS_umask, libc::SYS_getcwd, libc::SYS_inotify_init1, libc::SYS_inotify_add_watch,
        libc::SYS_inotify_rm_watch, libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_fadvise64,
        libc::SYS_close_range,
        // Calls that create or use descriptors for events.
        libc::SYS_dup, libc::SYS_dup3, libc::SYS_pipe2, libc::SYS_ppoll, libc::SYS_pselect6,
        libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait2, libc::SYS_eventfd2,
        libc::SYS_timerfd_create, libc::SYS_timerfd_gettime,
        // System calls for sockets, except `socket` itself, which is permitted below with certain arguments.
        libc::SYS_bind, libc::SYS_connect, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4,
        libc::SYS_getsockname, libc::SYS_getpeername, libc::SYS_getsockopt, libc::SYS_setsockopt,
        libc::SYS_shutdown,
        // Calls that manage memory; `mmap` is allowed below, with certain arguments.
        libc::SYS_brk, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_membarrier,
        // System calls for threads, signals and the process itself.
        libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_rseq, libc::SYS_set_tid_address,
        libc::SYS_exit, libc::SYS_exit_group, libc::SYS_sched_getaffinity, libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_sigaltstack, libc::SYS_restart_syscall,
        libc::SYS_getpid, libc::SYS_gettid, libc::SYS_getppid, libc::SYS_getuid, libc::SYS_geteuid,
        libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getrusage, libc::SYS_getrandom, libc::SYS_capget,
        libc::SYS_capset, libc::SYS_seccomp, libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getcpu,
        // Calls that read clocks or wait.
        libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_gettimeofday,
    ];

    /// Older system calls with the same effect as calls in the list above; some libc versions use them.
    #[cfg(target_arch = "x86_64")]
    #[rustfmt::skip]
    const OLDER_CALLS: &[libc::c_long] = &[
        libc::SYS_epoll_wait, libc::SYS_open, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access,
        libc::SYS_poll, libc::SYS_select, libc::SYS_pipe, libc::SYS_dup2, libc::SYS_unlink, libc::SYS_rename,
        libc::SYS_renameat, libc::SYS_mkdir, libc::SYS_readlink, libc::SYS_epoll_create, libc::SYS_eventfd,
        libc::SYS_time, libc::SYS_getrlimit, libc::SYS_inotify_init,
    ];
    /// Contains only `renameat` (38), which the libc crate does not define for this architecture.
    #[cfg(target_arch = "aarch64")]
    const OLDER_CALLS: &[libc::c_long] = &[38];
    #[cfg(target_arch = "riscv64")]
    const OLDER_CALLS: &[libc::c_long] = &[];

    /// System calls that carnet and its libraries never make. The kernel kills a process that makes one.
    #[rustfmt::skip]
    const KILLING_CALLS: &[libc::c_long] = &[
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

    /// A half of a 64-bit argument.
    #[derive(Clone, Copy)]
    enum ArgumentHalf {
        Low,
        High,
    }

    /// A test of an argument: its number, one of its halves, a mask, and the value that the masked half must
    /// have.
    #[derive(Clone, Copy)]
    struct ArgumentTest(u32, ArgumentHalf, u32, u32);

    /// Returns a test that a 32-bit argument has this value.
    fn argument_is(argument: u32, value: u32) -> ArgumentTest {
        ArgumentTest(argument, ArgumentHalf::Low, u32::MAX, value)
    }

    /// Returns a test that an argument has none of these bits.
    fn argument_lacks_bits(argument: u32, bits: u32) -> ArgumentTest {
        ArgumentTest(argument, ArgumentHalf::Low, bits, 0)
    }

    type TestAlternatives = Vec<Vec<ArgumentTest>>;

    /// Returns calls that are allowed only with certain arguments. Each call has a list of alternatives. All
    /// tests of an alternative must pass.
    fn calls_checked_by_argument(plan: &SandboxPlan) -> Vec<(libc::c_long, TestAlternatives)> {
        let (unix, netlink, packet) = (libc::AF_UNIX as u32, libc::AF_NETLINK as u32, libc::AF_PACKET as u32);
        let mut sockets = vec![
            vec![argument_is(0, unix)],
            vec![argument_is(0, libc::AF_INET as u32)],
            vec![argument_is(0, libc::AF_INET6 as u32)],
            vec![argument_is(0, netlink), argument_is(2, libc::NETLINK_ROUTE as u32)],
            vec![argument_is(0, netlink), argument_is(2, libc::NETLINK_GENERIC as u32)],
            vec![argument_is(0, netlink), argument_is(2, libc::NETLINK_NETFILTER as u32)],
        ];
        if plan.opens_packet_sockets {
            sockets.push(vec![argument_is(0, packet)]);
        }
        // Permit executable memory if the station looks up host names, because the resolver loads libraries.
        let executable = if plan.looks_up_names { 0 } else { libc::PROT_EXEC as u32 };
        let memory = || vec![vec![argument_lacks_bits(2, executable)]];
        let thread = (libc::CLONE_VM | libc::CLONE_THREAD) as u32;
        let namespaces = (libc::CLONE_NEWNS
            | libc::CLONE_NEWCGROUP
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUSER
            | libc::CLONE_NEWPID
            | libc::CLONE_NEWNET) as u32;
        let clone = vec![ArgumentTest(0, ArgumentHalf::Low, thread | namespaces, thread)];
        let ioctls = vec![
            // 0x89xx are the requests to sockets, interfaces and Wi-Fi. Requests that put input into a
            // terminal stay forbidden.
            vec![ArgumentTest(1, ArgumentHalf::Low, 0xffff_ff00, 0x8900)],
            vec![ArgumentTest(1, ArgumentHalf::Low, 0xffff_ff00, 0x8b00)],
            vec![ArgumentTest(1, ArgumentHalf::Low, 0x0000_ffc0, 0x54c0)],
            vec![argument_is(1, libc::FIONBIO as u32)],
            vec![argument_is(1, libc::FIONREAD as u32)],
            // The request for the number of octets that a socket has not sent yet.
            vec![argument_is(1, libc::TIOCOUTQ as u32)],
            vec![argument_is(1, libc::FIOCLEX as u32)],
            vec![argument_is(1, libc::TCGETS as u32)],
            vec![argument_is(1, libc::TIOCGWINSZ as u32)],
        ];
        let controls = [libc::PR_SET_NAME, libc::PR_GET_NAME, PR_SET_VMA, libc::PR_GET_DUMPABLE];
        let controls = controls.into_iter().map(|option| vec![argument_is(0, option as u32)]).collect();
        // The process may read its own resource limits, but not set them.
        let limits = vec![vec![
            argument_is(0, 0),
            argument_is(2, 0),
            ArgumentTest(2, ArgumentHalf::High, u32::MAX, 0),
        ]];
        let own = vec![vec![argument_is(0, std::process::id())]];
        let mut calls = vec![
            (libc::SYS_socket, sockets),
            (libc::SYS_socketpair, vec![vec![argument_is(0, unix)]]),
            (libc::SYS_mmap, memory()),
            (libc::SYS_mprotect, memory()),
            (libc::SYS_clone, vec![clone]),
            (libc::SYS_ioctl, ioctls),
            (libc::SYS_prctl, controls),
            (libc::SYS_prlimit64, limits),
            // abort() sends a signal to its own thread.
            (libc::SYS_tgkill, own),
        ];
        if plan.loads_bpf_programs || plan.loads_steering_program {
            calls.push((libc::SYS_bpf, command_is_allowed(BPF_COMMANDS)));
        }
        calls
    }

    fn command_is_allowed(allowed: &[u32]) -> TestAlternatives {
        allowed.iter().map(|command| vec![argument_is(0, *command)]).collect()
    }

    const PR_SET_VMA: libc::c_int = 0x5356_4d41;

    /// Commands of `bpf(2)` that load and attach programs and fill maps, all by descriptors of this process.
    /// Forbidden are commands that find objects of other processes (by number, or pinned), trace, or pass
    /// rights on (tokens).
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

    /// Commands of `bpf(2)` that create a map, or read and change its content. `BPF_COMMANDS` has their
    /// names.
    const MAP_COMMANDS: &[u32] = &[1, 2, 3, 4, 24, 26, 27];

    // Instructions of classic BPF (`linux/bpf_common.h`), as for socket filters.
    const BPF_LOAD_WORD: u16 = 0x20;
    const BPF_AND: u16 = 0x54;
    const BPF_JUMP_IF_EQUAL: u16 = 0x15;
    const BPF_JUMP_IF_GREATER: u16 = 0x25;
    const BPF_RETURN: u16 = 0x06;

    // Offsets of fields in `struct seccomp_data`.
    const OFFSET_CALL_NUMBER: u32 = 0;
    const OFFSET_ARCHITECTURE: u32 = 4;
    const OFFSET_ARGUMENTS: u32 = 16;

    const RESULT_ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const RESULT_KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    const RESULT_REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    const RESULT_UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

    type FilterProgram = Vec<libc::sock_filter>;

    fn push_instruction(program: &mut FilterProgram, code: u16, k: u32, jt: usize, jf: usize) {
        // A jump skips the tests of one call, a few dozen instructions at most, so its length fits into eight
        // bits. A test checks this.
        let near = |jump: usize| u8::try_from(jump).unwrap_or(u8::MAX);
        program.push(libc::sock_filter { code, jt: near(jt), jf: near(jf), k });
    }

    fn push_return(program: &mut FilterProgram, value: u32) {
        push_instruction(program, BPF_RETURN, value, 0, 0);
    }

    /// Returns the beginning of a filter program, which loads the call's number into the accumulator. The
    /// program refuses calls of another architecture, whose numbers differ.
    fn begin_program() -> FilterProgram {
        let mut program = FilterProgram::new();
        push_instruction(&mut program, BPF_LOAD_WORD, OFFSET_ARCHITECTURE, 0, 0);
        push_instruction(&mut program, BPF_JUMP_IF_EQUAL, AUDIT_ARCHITECTURE, 1, 0);
        push_return(&mut program, RESULT_KILL);
        push_instruction(&mut program, BPF_LOAD_WORD, OFFSET_CALL_NUMBER, 0, 0);
        program
    }

    fn push_calls(program: &mut FilterProgram, calls: &[libc::c_long], value: u32) {
        for call in calls {
            push_instruction(program, BPF_JUMP_IF_EQUAL, *call as u32, 0, 1);
            push_return(program, value);
        }
    }

    /// Returns the number of instructions for these tests: three for each, and one for the result.
    fn instruction_count(way: &[ArgumentTest]) -> usize {
        way.len() * 3 + 1
    }

    /// Returns the filter program that permits only the listed system calls.
    pub(super) fn allow_list_program(plan: &SandboxPlan) -> FilterProgram {
        let mut program = begin_program();
        push_calls(&mut program, ALLOWED_CALLS, RESULT_ALLOW);
        push_calls(&mut program, OLDER_CALLS, RESULT_ALLOW);
        push_calls(&mut program, KILLING_CALLS, RESULT_KILL);
        for (call, ways) in calls_checked_by_argument(plan) {
            push_alternatives(&mut program, call, &ways);
        }
        // Permit calls with higher numbers in this filter. The filter of [`older_kernel_program`] refuses
        // them.
        push_instruction(&mut program, BPF_JUMP_IF_GREATER, LAST_SYSTEM_CALL, 0, 1);
        push_return(&mut program, RESULT_ALLOW);
        push_calls(&mut program, &[libc::SYS_clone3], RESULT_ALLOW);
        push_return(&mut program, RESULT_REFUSE);
        program
    }

    /// Adds a call that is allowed by some alternatives and refused otherwise.
    fn push_alternatives(program: &mut FilterProgram, call: libc::c_long, ways: &TestAlternatives) {
        let whole: usize = ways.iter().map(|way| instruction_count(way)).sum();
        push_instruction(program, BPF_JUMP_IF_EQUAL, call as u32, 0, whole + 1);
        for way in ways {
            for (at, ArgumentTest(argument, half, mask, value)) in way.iter().enumerate() {
                let big_end = cfg!(target_endian = "big");
                let second = matches!(half, ArgumentHalf::High) != big_end;
                let offset = OFFSET_ARGUMENTS + argument * 8 + if second { 4 } else { 0 };
                push_instruction(program, BPF_LOAD_WORD, offset, 0, 0);
                push_instruction(program, BPF_AND, *mask, 0, 0);
                // If the test fails, go on with the next alternative.
                push_instruction(
                    program,
                    BPF_JUMP_IF_EQUAL,
                    *value,
                    0,
                    instruction_count(way) - (at + 1) * 3,
                );
            }
            push_return(program, RESULT_ALLOW);
        }
        push_return(program, RESULT_REFUSE);
    }

    /// Returns a filter program that allows only those commands of `bpf(2)` that concern maps.
    pub(super) fn bpf_map_program() -> FilterProgram {
        let mut program = begin_program();
        push_alternatives(&mut program, libc::SYS_bpf, &command_is_allowed(MAP_COMMANDS));
        push_return(&mut program, RESULT_ALLOW);
        program
    }

    /// Returns the filter program that refuses calls above [`LAST_SYSTEM_CALL`] as unknown (ENOSYS), as an
    /// older kernel does. It is a separate filter, because these refusals need no log entry.
    pub(super) fn older_kernel_program() -> FilterProgram {
        let mut program = begin_program();
        push_instruction(&mut program, BPF_JUMP_IF_GREATER, LAST_SYSTEM_CALL, 0, 1);
        push_return(&mut program, RESULT_UNKNOWN);
        push_calls(&mut program, &[libc::SYS_clone3], RESULT_UNKNOWN);
        push_return(&mut program, RESULT_ALLOW);
        program
    }

    /// Makes the kernel enforce both filters. The process must have set `no_new_privs`.
    pub(in super::super) fn restrict(plan: &SandboxPlan) -> io::Result<()> {
        install_program(&older_kernel_program(), 0)?;
        let list = allow_list_program(plan);
        // A kernel before Linux 4.14 refuses the flag that makes it log refusals. Then install the filter
        // without this flag.
        install_program(&list, libc::SECCOMP_FILTER_FLAG_LOG).or_else(|_| install_program(&list, 0))
    }

    /// Forbids all threads to load BPF programs from now on.
    pub(in super::super) fn restrict_to_maps() -> io::Result<()> {
        let program = bpf_map_program();
        let all = libc::SECCOMP_FILTER_FLAG_TSYNC;
        install_program(&program, all | libc::SECCOMP_FILTER_FLAG_LOG)
            .or_else(|_| install_program(&program, all))
    }

    fn install_program(program: &[libc::sock_filter], flags: libc::c_ulong) -> io::Result<()> {
        let whole = libc::sock_fprog {
            len: u16::try_from(program.len()).map_err(io::Error::other)?,
            filter: program.as_ptr().cast_mut(),
        };
        // SAFETY: the kernel reads the program, which lives until the call has returned, and writes nothing.
        let result = check_call_result(unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const whole)
        });
        match result? {
            0 => Ok(()),
            thread => Err(io::Error::other(format!("thread {thread} already has other seccomp filters"))),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// Each jump of a filter program ends inside the program, and its last instruction returns a result.
        #[test]
        fn filter_programs_have_valid_jumps() {
            let plan = SandboxPlan {
                opens_packet_sockets: true,
                loads_bpf_programs: true,
                ..SandboxPlan::default()
            };
            for program in [
                allow_list_program(&plan),
                allow_list_program(&SandboxPlan::default()),
                bpf_map_program(),
                older_kernel_program(),
            ] {
                assert!(program.len() < 4096, "{}", program.len());
                for (at, instruction) in program.iter().enumerate() {
                    let furthest = usize::from(instruction.jt.max(instruction.jf));
                    assert!(
                        furthest < usize::from(u8::MAX) && at + furthest < program.len() - 1 || furthest == 0
                    );
                }
                assert_eq!(program.last().map(|last| last.code), Some(BPF_RETURN));
            }
        }

        #[test]
        fn no_system_call_is_on_two_lists() {
            let plan = SandboxPlan {
                opens_packet_sockets: true,
                loads_bpf_programs: true,
                ..SandboxPlan::default()
            };
            let arguments: Vec<_> =
                calls_checked_by_argument(&plan).into_iter().map(|(call, _)| call).collect();
            let mut all =
                [ALLOWED_CALLS, OLDER_CALLS, KILLING_CALLS, &arguments, &[libc::SYS_clone3]].concat();
            all.sort_unstable();
            let count = all.len();
            all.dedup();
            assert_eq!(all.len(), count);
            assert!(all.iter().all(|call| *call <= i64::from(LAST_SYSTEM_CALL)));
        }
    }
}
