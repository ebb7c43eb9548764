//! Values of the maps of `bpf/geonet.bpf.c`, and the memory that its programs share with carnet.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use aya::Pod;
use aya::maps::Map;
use carnet_cits::geonetworking::acceleration::{ForwardingPath, SequenceNumbers};
use portable_atomic::AtomicU64;

/// Number of counters in shared memory: the sequence number, and a packet count for each destination of own
/// packets and of forwarded packets.
const SHARED_COUNTERS: usize = 1 + 2 * super::MAX_DESTINATIONS;

/// Returns a link-layer address as a number, in the programs' format.
pub(super) fn map_key_of(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// Returns the interface identifier of a link-layer address, its modified EUI-64 (RFC 4291 appendix A).
pub(super) fn interface_identifier_of(mac: [u8; 6]) -> [u8; 8] {
    let [a, b, c, d, e, f] = mac;
    [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

/// Copy of `struct state` in C.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct StateValue {
    pub(super) valid_until: u64,
    pub(super) radio_interface: u32,
    pub(super) virtual_interface: u32,
    pub(super) veth_interface: u32,
    pub(super) flags: u32,
    pub(super) mtu: u32,
    pub(super) duplicate_list_length: u32,
    pub(super) mac: [u8; 6],
    pub(super) padding: [u8; 2],
    pub(super) interface_identifier: [u8; 8],
    pub(super) position_vector: [u8; 24],
}

impl StateValue {
    pub(super) const STATE_FLAG_DELIVERS: u32 = 1;
    pub(super) const STATE_FLAG_SENDS: u32 = 2;
}

/// Copy of `struct way` in C.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnPacketPathValue {
    pub(super) valid_until: u64,
    pub(super) counter_slot: u32,
    pub(super) next_hop: [u8; 6],
    pub(super) padding: [u8; 2],
    pub(super) frame_headers: [u8; 60],
}

/// Copy of `struct onward` in C.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct ForwardingPathValue {
    valid_until: u64,
    counter_slot: u32,
    next_hop: [u8; 6],
    flags: u8,
    padding: u8,
    position_octets: [u8; 8],
    known_fields: [u8; 12],
}

impl ForwardingPathValue {
    const FLAG_HAS_POSITION: u8 = 1;
    const FLAG_HAS_KNOWN_FIELDS: u8 = 2;

    pub(super) fn new(onward: &ForwardingPath, slot: u32, until: u64) -> ForwardingPathValue {
        let (mut flags, mut place, mut known) = (0, [0; 8], [0; 12]);
        if let Some((latitude, longitude)) = onward.place {
            flags |= Self::FLAG_HAS_POSITION;
            let (first, second) = place.split_at_mut(4);
            first.copy_from_slice(&latitude.to_be_bytes());
            second.copy_from_slice(&longitude.to_be_bytes());
        }
        // In a source position vector (SPV), TST, latitude and longitude follow the address.
        if let Some(octets) = onward.known.get(8..20) {
            flags |= Self::FLAG_HAS_KNOWN_FIELDS;
            known.copy_from_slice(octets);
        }
        ForwardingPathValue {
            valid_until: until,
            counter_slot: slot,
            next_hop: onward.next_hop,
            flags,
            padding: 0,
            position_octets: place,
            known_fields: known,
        }
    }
}

/// Copy of `struct source` in C.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct SourceValue {
    spin_lock: u32,
    next_sequence_index: u32,
    first_seen_at: u64,
    pub(super) packet_count: u32,
    pub(super) octet_count: u32,
    pub(super) direct_packet_count: u32,
    taken_sequence_mask: u16,
    used_sequence_count: u16,
    taken_sequence_numbers: [u16; SourceValue::SEQUENCES_PER_SOURCE],
    pub(super) position_vector: [u8; 24],
}

// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for StateValue {}
// SAFETY: the type is `repr(C)` of integers and octets, and any octets are valid. No code reads the 4 octets
// of padding at its end, which exist in C too.
unsafe impl Pod for OwnPacketPathValue {}
// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for ForwardingPathValue {}
// SAFETY: the type is `repr(C)` of integers and octets, without padding, and any octets are a valid value.
unsafe impl Pod for SourceValue {}

const _: () = assert!(size_of::<StateValue>() == 72 && size_of::<OwnPacketPathValue>() == 80);
const _: () = assert!(size_of::<ForwardingPathValue>() == 40 && size_of::<SourceValue>() == 88);

impl SourceValue {
    /// Number of sequence numbers that the entry of a source holds.
    pub(super) const SEQUENCES_PER_SOURCE: usize = 16;

    /// Creates the value of a source whose packets had these sequence numbers, oldest first. The slow path
    /// has handled all of these packets.
    pub(super) fn new(since: u64, sequences: &[u16]) -> SourceValue {
        let mut numbers = [0; SourceValue::SEQUENCES_PER_SOURCE];
        let kept =
            sequences.get(sequences.len().saturating_sub(Self::SEQUENCES_PER_SOURCE)..).unwrap_or_default();
        numbers.iter_mut().zip(kept).for_each(|(to, from)| *to = *from);
        SourceValue {
            spin_lock: 0,
            next_sequence_index: (kept.len() % Self::SEQUENCES_PER_SOURCE) as u32,
            first_seen_at: since,
            packet_count: 0,
            octet_count: 0,
            direct_packet_count: 0,
            taken_sequence_mask: 0,
            used_sequence_count: kept.len() as u16,
            taken_sequence_numbers: numbers,
            position_vector: [0; 24],
        }
    }

    /// Returns the sequence numbers of the source's packets that the programs handled, oldest first.
    pub(super) fn recorded_sequence_numbers(&self) -> Vec<u16> {
        let used = usize::from(self.used_sequence_count).min(Self::SEQUENCES_PER_SOURCE);
        let next = (self.next_sequence_index as usize).min(used);
        let taken = (next..used).chain(0..next).filter(|at| self.taken_sequence_mask >> at & 1 != 0);
        taken.filter_map(|at| self.taken_sequence_numbers.get(at).copied()).collect()
    }
}

/// The BPF map `SHARED`, mapped into carnet's memory.
#[derive(Debug, Clone)]
pub(super) struct SharedCounters(Arc<SharedMapping>);

#[derive(Debug)]
struct SharedMapping {
    counter_memory: *const AtomicU64,
    length: usize,
}

// SAFETY: the memory exists as long as the value, and is accessed only by atomic operations.
unsafe impl Send for SharedMapping {}
// SAFETY: the memory exists as long as the value, and is accessed only by atomic operations.
unsafe impl Sync for SharedMapping {}

impl SharedCounters {
    /// Maps the BPF map into carnet's memory.
    pub(super) fn map_into_memory(map: &Map) -> Result<SharedCounters, String> {
        let Map::Array(data) = map else { return Err("the BPF map SHARED is not an array".into()) };
        // SAFETY: the call only reads a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(4096);
        let length = (SHARED_COUNTERS * size_of::<u64>()).next_multiple_of(page);
        let descriptor = data.fd().as_fd().as_raw_fd();
        // SAFETY: the descriptor is open, no fixed address is requested, and the kernel checks the length.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                descriptor,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(format!("cannot map a BPF map: {}", std::io::Error::last_os_error()));
        }
        Ok(SharedCounters(Arc::new(SharedMapping { counter_memory: memory.cast_const().cast(), length })))
    }

    fn counter_at(&self, at: usize) -> &AtomicU64 {
        let at = at.min(SHARED_COUNTERS - 1);
        // SAFETY: the mapping is page-aligned, has at least `SHARED_COUNTERS` counters, and lives as long as
        // `self`.
        unsafe { &*self.0.counter_memory.add(at) }
    }

    /// Draws the sequence number of the next packet.
    pub(super) fn next_sequence_number(&self) -> u16 {
        self.counter_at(0).load(Ordering::Relaxed) as u16
    }

    /// Returns the number of packets to the destination in a slot.
    pub(super) fn packets_sent_in_slot(&self, slot: u32) -> u64 {
        self.counter_at(1 + slot as usize).load(Ordering::Relaxed)
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the memory was mapped with this length, and no other code refers to it.
        unsafe { libc::munmap(self.counter_memory.cast_mut().cast(), self.length) };
    }
}

/// Sequence numbers that the router and the programs draw from one counter.
#[derive(Debug)]
pub(super) struct SharedSequence(SharedCounters);

impl SharedSequence {
    pub(super) fn new(shared: &SharedCounters) -> SharedSequence {
        SharedSequence(shared.clone())
    }
}

impl SequenceNumbers for SharedSequence {
    fn next_sequence_index(&mut self) -> u16 {
        self.0.counter_at(0).fetch_add(1, Ordering::Relaxed) as u16
    }

    fn restart_sequence(&mut self) {
        self.0.counter_at(0).store(0, Ordering::Relaxed);
    }

    /// Do nothing: the recorded numbers come from the shared counter itself, which has already advanced.
    fn set_next_sequence(&mut self, _next: u16) {}
}
