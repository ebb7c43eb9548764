//! The BPF programs of carnet as ELF objects, for a loader.
//!
//! The programs are in C, in the folder of this crate. `tunnel_tc.bpf.c` and `tunnel_xdp.bpf.c` are the fast
//! path of the tunnels (their common part is in `tunnel.h`), `geonet.bpf.c` that of IPv6 over GeoNetworking.
//! `sink.bpf.c` counts and drops packets for the benchmarks, and `source.bpf.c` helps to send them.
//! `steering.bpf.c` chooses among the TUN device's queues; it is not stored as an object, see [`STEERING`].
//! All programs use the kernel's user-space headers only, so one object fits every kernel. The programs are
//! licensed `Dual MIT/GPL`, because some of the kernel's helpers are only for GPL programs. This crate only
//! stores the objects.
#![forbid(unsafe_code)]

// Only the build script uses this function.
mod instructions;
mod packed;

pub use instructions::STEERING_MAPS;

/// Socket filter that selects the queue of the TUN device for a packet: only the instructions, in the
/// kernel's format. The program is small, and every station may run it. A loader would need more memory than
/// the rest of the program, because it reads all of the kernel's types. An instruction that loads a map has
/// the number of the map in [`STEERING_MAPS`]. The loading program replaces this number with the map's
/// descriptor.
pub const STEERING: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steering.bpf.instructions"));

/// A packed ELF object.
#[derive(Debug, Clone, Copy)]
pub struct PackedObject(&'static [u8]);

/// An ELF object at an address that a 64-bit ELF parser accepts.
#[derive(Debug, Clone)]
pub struct Object {
    octets: Vec<u8>,
    start: usize,
}

impl PackedObject {
    /// Returns the unpacked object.
    pub fn unpack(self) -> Object {
        const ALIGNMENT: usize = align_of::<u64>();
        let size = self.0.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        let mut octets: Vec<u8> = Vec::with_capacity(ALIGNMENT + size);
        // The buffer has its final size, so it does not move again.
        let start = octets.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        octets.resize(start, 0);
        packed::unpack(self.0, &mut octets);
        Object { octets, start }
    }
}

impl std::ops::Deref for Object {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.octets.get(self.start..).unwrap_or_default()
    }
}

impl std::ops::DerefMut for Object {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.octets.get_mut(self.start..).unwrap_or_default()
    }
}

macro_rules! objects {
    ($($(#[$about:meta])* $name:ident, $file:literal;)*) => {
        $(
            $(#[$about])*
            pub const $name: PackedObject =
                PackedObject(include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".packed")));
        )*

        #[cfg(test)]
        const ALL_OBJECTS: &[(PackedObject, &[u8])] =
            &[$(($name, include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".o")))),*];
    };
}

objects! {
    /// The fast path as tc programs, for packets with and without an Ethernet header.
    TUNNEL_TC, "tunnel_tc.bpf";
    /// The fast path as XDP programs.
    TUNNEL_XDP, "tunnel_xdp.bpf";
    /// XDP programs that count and drop the packets that arrive, or let all of them pass.
    SINK, "sink.bpf";
    /// tc programs that make room before the packets of the benchmark's source, or add an outer header to
    /// them.
    SOURCE, "source.bpf";
    /// The fast path of IPv6 over GeoNetworking as tc programs.
    GEONET, "geonet.bpf";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bpf_objects_are_unchanged() {
        for (packed, object) in ALL_OBJECTS {
            let unpacked = packed.unpack();
            assert_eq!(&*unpacked, *object);
            assert_eq!(unpacked.as_ptr() as usize % 8, 0);
            assert!(packed.0.len() < object.len() * 2 / 3, "{} of {}", packed.0.len(), object.len());
        }
    }

    #[test]
    fn steering_program_loads_its_own_maps() {
        let (instructions, rest) = STEERING.as_chunks::<8>();
        assert!(rest.is_empty() && !instructions.is_empty());
        assert_eq!(instructions.last().map(|last| last[0]), Some(0x95), "exit");
        // An instruction that loads a map is BPF_LD | BPF_IMM | BPF_DW with the source BPF_PSEUDO_MAP_FD.
        let is_map = |it: &&[u8; 8]| {
            it[0] == 0x18 && it[1] & if cfg!(target_endian = "little") { 0xf0 } else { 0x0f } != 0
        };
        let maps: Vec<u32> = instructions
            .iter()
            .filter(is_map)
            .map(|it| u32::from_ne_bytes([it[4], it[5], it[6], it[7]]))
            .collect();
        for number in 0..STEERING_MAPS.len() as u32 {
            assert!(maps.contains(&number), "{maps:?}");
        }
        assert!(maps.iter().all(|number| (*number as usize) < STEERING_MAPS.len()), "{maps:?}");
    }

    #[test]
    fn build_links_only_the_expected_bpf_objects() {
        for (_, object) in ALL_OBJECTS {
            assert_eq!(instructions::link_instructions(object, "no such section", &STEERING_MAPS), None);
            for length in 0..object.len().min(200) {
                assert_eq!(
                    instructions::link_instructions(&object[..length], "socket", &STEERING_MAPS),
                    None
                );
            }
        }
    }

    #[test]
    fn packed_octets_are_unpacked_unchanged() {
        let repeated = [7; 1000];
        let numbers: Vec<u8> = (0..5000_u32).flat_map(|n| (n * n / 3).to_le_bytes()).collect();
        for octets in [&[][..], &[1], &[1, 2, 3, 4, 1, 2, 3, 4], &repeated, &numbers] {
            let mut unpacked = Vec::new();
            packed::unpack(&packed::pack(octets), &mut unpacked);
            assert_eq!(unpacked, octets);
        }
    }

    #[test]
    fn unpacking_random_octets_ends() {
        for packed in [&[][..], &[9, 0, 0, 0, 5, 1], &[9, 0, 0, 0, 0, 4, 7], &[9, 0, 0, 0, 1, 1, 4, 0, 255]] {
            packed::unpack(packed, &mut Vec::new());
        }
    }
}
