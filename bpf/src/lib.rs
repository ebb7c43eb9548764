//! The BPF programs of carnet as ELF objects, for a loader.
//!
//! The programs are C, in the folder of this crate: `tunnel_tc.bpf.c` and `tunnel_xdp.bpf.c` are the fast path
//! of the tunnels (what they share is in `tunnel.h`), `geonet.bpf.c` that of IPv6 over GeoNetworking, `sink.bpf.c` counts and drops for the benchmarks,
//! `source.bpf.c` helps to send. They use the kernel's user-space headers only, so one object fits every kernel. The programs are licensed `Dual
//! MIT/GPL`, because some of the kernel's helpers are for GPL programs; this crate just carries the objects.
#![forbid(unsafe_code)]

mod packed;

/// An ELF object as it lies in the program.
#[derive(Debug, Clone, Copy)]
pub struct Packed(&'static [u8]);

/// An ELF object at an address that a 64-bit ELF parser accepts.
#[derive(Debug, Clone)]
pub struct Object {
    octets: Vec<u8>,
    start: usize,
}

impl Packed {
    /// The object.
    pub fn unpack(self) -> Object {
        const ALIGNMENT: usize = align_of::<u64>();
        let size = self.0.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        let mut octets: Vec<u8> = Vec::with_capacity(ALIGNMENT + size);
        // It is moved no more: there is room for all of it.
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

macro_rules! objects {
    ($($(#[$about:meta])* $name:ident, $file:literal;)*) => {
        $(
            $(#[$about])*
            pub const $name: Packed = Packed(include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".packed")));
        )*

        #[cfg(test)]
        const ALL: &[(Packed, &[u8])] =
            &[$(($name, include_bytes!(concat!(env!("OUT_DIR"), "/", $file, ".o")))),*];
    };
}

objects! {
    /// The fast path as tc programs, for packets with and without an Ethernet header.
    TUNNEL_TC, "tunnel_tc.bpf";
    /// The fast path as XDP programs.
    TUNNEL_XDP, "tunnel_xdp.bpf";
    /// XDP programs that count and drop what arrives, or only let it pass.
    SINK, "sink.bpf";
    /// A tc program that puts an outer header around what the benchmark's source sends.
    SOURCE, "source.bpf";
    /// The fast path of IPv6 over GeoNetworking as tc programs.
    GEONET, "geonet.bpf";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_what_they_were() {
        for (packed, object) in ALL {
            let unpacked = packed.unpack();
            assert_eq!(&*unpacked, *object);
            assert_eq!(unpacked.as_ptr() as usize % 8, 0);
            assert!(packed.0.len() < object.len() * 2 / 3, "{} of {}", packed.0.len(), object.len());
        }
    }

    #[test]
    fn whatever_is_packed_comes_out_again() {
        let repeated = [7; 1000];
        let numbers: Vec<u8> = (0..5000_u32).flat_map(|n| (n * n / 3).to_le_bytes()).collect();
        for octets in [&[][..], &[1], &[1, 2, 3, 4, 1, 2, 3, 4], &repeated, &numbers] {
            let mut unpacked = Vec::new();
            packed::unpack(&packed::pack(octets), &mut unpacked);
            assert_eq!(unpacked, octets);
        }
    }

    #[test]
    fn nonsense_comes_to_an_end() {
        for packed in [&[][..], &[9, 0, 0, 0, 5, 1], &[9, 0, 0, 0, 0, 4, 7], &[9, 0, 0, 0, 1, 1, 4, 0, 255]] {
            packed::unpack(packed, &mut Vec::new());
        }
    }
}
