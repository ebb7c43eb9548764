//! Calls `bpf(2)` without a loader library, for maps and programs that are much smaller than a loader's own
//! memory.
//!
//! A loader reads the kernel's types, which takes some megabytes. This module has only the commands that the
//! steering program of the TUN device needs ([`crate::tunnel`]). The fast paths use a loader.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

// Commands of `bpf(2)`, `enum bpf_cmd` of linux/bpf.h.
const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_PROG_LOAD: libc::c_long = 5;

/// Map type `BPF_MAP_TYPE_HASH`. The kernel allocates each entry when carnet inserts it.
pub(crate) const MAP_TYPE_HASH: u32 = 1;
/// Map type `BPF_MAP_TYPE_ARRAY`.
pub(crate) const MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_NO_PREALLOC: u32 = 1;
const BPF_PROG_TYPE_SOCKET_FILTER: u32 = 1;
/// Update flag `BPF_ANY`: creates or replaces the entry of a key.
pub(crate) const BPF_ANY: u64 = 0;
/// Update flag `BPF_NOEXIST`: fails if the key has an entry.
pub(crate) const BPF_NOEXIST: u64 = 1;

/// Maximum number of attempts to load a program. The kernel returns EAGAIN if a signal interrupts the
/// verification.
const MAX_LOAD_ATTEMPTS: u32 = 10;

/// A type of keys or values of a BPF map. The kernel reads all octets of the type, so all must be
/// initialised.
///
/// # Safety
///
/// Every bit pattern must be a valid value, and the type must have no padding.
pub(crate) unsafe trait PlainMapValue: Copy {}

// SAFETY: every bit pattern is a `u32`, and it has no padding.
unsafe impl PlainMapValue for u32 {}
// SAFETY: every bit pattern is a `u64`, and it has no padding.
unsafe impl PlainMapValue for u64 {}
// SAFETY: every bit pattern is a `[u8; 16]`, and it has no padding.
unsafe impl PlainMapValue for [u8; 16] {}

/// A BPF map. It exists as long as a descriptor or a program refers to it.
#[derive(Debug)]
pub(crate) struct BpfMap<K, V> {
    fd: OwnedFd,
    key_and_value_types: std::marker::PhantomData<fn(K) -> V>,
}

#[repr(C)]
struct MapCreateAttributes {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapElementAttributes {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoadAttributes {
    program_type: u32,
    instruction_count: u32,
    instructions_address: u64,
    license_address: u64,
    log_level: u32,
    log_size: u32,
    log_address: u64,
}

/// Makes the system call and returns its result, or the kernel's error.
///
/// # Safety
/// `attributes` must have the layout that `command` expects. Its addresses must point to live memory of the
/// sizes that the command reads and writes.
pub(crate) unsafe fn bpf_system_call<T>(
    command: libc::c_long,
    attributes: &mut T,
) -> io::Result<libc::c_int> {
    // SAFETY: `attributes` is a live value of the given size. The caller guarantees that its addresses point
    // to live memory.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    libc::c_int::try_from(result).ok().filter(|it| *it >= 0).ok_or_else(io::Error::last_os_error)
}

fn pointer_as_u64<T: ?Sized>(of: *const T) -> u64 {
    of.cast::<u8>() as usize as u64
}

/// Takes ownership of a descriptor that the system call returned.
fn take_ownership_of_fd(fd: libc::c_int) -> OwnedFd {
    // SAFETY: the kernel has just created the descriptor for this process (close-on-exec, as for each `bpf`
    // call), and no other code knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

impl<K: PlainMapValue, V: PlainMapValue> BpfMap<K, V> {
    /// Creates a map of the type `kind`, with room for `max_entries` entries.
    pub(crate) fn create_map(kind: u32, max_entries: u32) -> io::Result<BpfMap<K, V>> {
        let mut attributes = MapCreateAttributes {
            map_type: kind,
            key_size: size_of::<K>() as u32,
            value_size: size_of::<V>() as u32,
            max_entries,
            flags: if kind == MAP_TYPE_HASH { BPF_F_NO_PREALLOC } else { 0 },
        };
        // SAFETY: the attributes contain no address.
        let fd = unsafe { bpf_system_call(BPF_MAP_CREATE, &mut attributes) }?;
        Ok(BpfMap { fd: take_ownership_of_fd(fd), key_and_value_types: std::marker::PhantomData })
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    fn element_attributes(&self, key: &K, value: u64, flags: u64) -> MapElementAttributes {
        MapElementAttributes {
            map_fd: self.fd.as_raw_fd() as u32,
            padding: 0,
            key: pointer_as_u64(key),
            value,
            flags,
        }
    }

    /// Returns the value of a key; `None` if the map has no entry for it.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let mut value = MaybeUninit::<V>::uninit();
        let mut attributes = self.element_attributes(key, pointer_as_u64(value.as_mut_ptr()), 0);
        // SAFETY: the map's keys and values have the sizes of `K` and `V`. The kernel reads the key and
        // writes the value.
        unsafe { bpf_system_call(BPF_MAP_LOOKUP_ELEM, &mut attributes) }.ok()?;
        // SAFETY: the kernel has written the whole value, and every bit pattern is valid.
        Some(unsafe { value.assume_init() })
    }

    /// Writes the value of a key. `flags` says whether the key may already be in the map ([`BPF_ANY`],
    /// [`BPF_NOEXIST`]).
    pub(crate) fn put_element(&self, key: &K, value: &V, flags: u64) -> io::Result<()> {
        let mut attributes = self.element_attributes(key, pointer_as_u64(value), flags);
        // SAFETY: the map's keys and values have the sizes of `K` and `V`. The kernel reads both.
        unsafe { bpf_system_call(BPF_MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
    }

    /// Removes the entry of a key.
    pub(crate) fn remove(&self, key: &K) -> io::Result<()> {
        let mut attributes = self.element_attributes(key, 0, 0);
        // SAFETY: the map's keys have the size of `K`. The kernel reads one key.
        unsafe { bpf_system_call(BPF_MAP_DELETE_ELEM, &mut attributes) }.map(drop)
    }
}

/// Loads a socket filter. Its instructions name maps by their index in `maps` (`carnet_bpf::STEERING`).
pub(crate) fn load_socket_filter(
    instructions: &[u8],
    maps: &[&OwnedFd],
    license: &CStr,
) -> io::Result<OwnedFd> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let (given, rest) = instructions.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(invalid());
    }
    // The kernel requires that the instructions begin at a multiple of eight octets.
    let mut linked: Vec<u64> = Vec::with_capacity(given.len());
    for instruction in given {
        let mut octets = *instruction;
        // 0x18 is BPF_LD | BPF_IMM | BPF_DW. If its source register is BPF_PSEUDO_MAP_FD, its immediate value
        // names a map.
        if let [0x18, registers, _, _, immediate @ ..] = &mut octets
            && *registers & if cfg!(target_endian = "little") { 0xf0 } else { 0x0f } != 0
        {
            let number = u32::from_ne_bytes(*immediate) as usize;
            *immediate = maps.get(number).ok_or_else(invalid)?.as_raw_fd().to_ne_bytes();
        }
        linked.push(u64::from_ne_bytes(octets));
    }
    let mut attributes = ProgramLoadAttributes {
        program_type: BPF_PROG_TYPE_SOCKET_FILTER,
        instruction_count: linked.len() as u32,
        instructions_address: pointer_as_u64(linked.as_ptr()),
        license_address: pointer_as_u64(license.as_ptr()),
        log_level: 0,
        log_size: 0,
        log_address: 0,
    };
    let mut answer = Err(invalid());
    for _ in 0..MAX_LOAD_ATTEMPTS {
        // SAFETY: the attributes contain the right number of instructions, and the licence ends with a zero
        // octet. The kernel reads both.
        answer = unsafe { bpf_system_call(BPF_PROG_LOAD, &mut attributes) };
        if !matches!(&answer, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            break;
        }
    }
    answer.map(take_ownership_of_fd)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const BPF_PROG_TEST_RUN: libc::c_long = 10;

    #[repr(C)]
    struct TestRunAttributes {
        program_fd: u32,
        return_value: u32,
        input_size: u32,
        output_size: u32,
        input_address: u64,
        output_address: u64,
        repeat_count: u32,
        duration: u32,
    }

    /// Runs a program once on a frame (`BPF_PROG_TEST_RUN`), and returns the program's result.
    pub(crate) fn run_on_frame(program: &OwnedFd, frame: &[u8]) -> u32 {
        let mut attributes = TestRunAttributes {
            program_fd: program.as_raw_fd() as u32,
            return_value: 0,
            input_size: frame.len() as u32,
            output_size: 0,
            input_address: pointer_as_u64(frame.as_ptr()),
            output_address: 0,
            repeat_count: 1,
            duration: 0,
        };
        // SAFETY: the attributes contain the frame's right length. The kernel reads the frame and writes only
        // the attributes.
        unsafe { bpf_system_call(BPF_PROG_TEST_RUN, &mut attributes) }.expect("the kernel runs the program");
        attributes.return_value
    }

    #[test]
    fn invalid_bpf_program_is_refused() {
        for instructions in [&[0x95, 0, 0][..], &[0x18, 0xff, 0, 0, 9, 0, 0, 0], &[0xff; 16]] {
            assert!(load_socket_filter(instructions, &[], c"GPL").is_err(), "{instructions:?}");
        }
    }
}
