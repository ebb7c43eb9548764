//! The BPF programs of carnet as ELF objects, for a loader.
//!
//! The programs are C, in the folder of this crate: `tunnel_tc.bpf.c` and `tunnel_xdp.bpf.c` are the fast path
//! of the tunnels (what they share is in `tunnel.h`), `geonet.bpf.c` that of IPv6 over GeoNetworking, `sink.bpf.c` counts and drops for the benchmarks,
//! `source.bpf.c` helps to send. They use the kernel's user-space headers only, so one object fits every kernel. The programs are licensed `Dual
//! MIT/GPL`, because some of the kernel's helpers are for GPL programs; this crate just carries the objects.
#![forbid(unsafe_code)]

/// Octets at an address that a 64-bit ELF parser accepts.
#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

macro_rules! object {
    ($(#[$about:meta])* $name:ident, $file:literal) => {
        $(#[$about])*
        pub const $name: &[u8] = {
            const ALIGNED: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $file)));
            &ALIGNED.0
        };
    };
}

object!(
    /// The fast path as tc programs, for packets with and without an Ethernet header.
    TUNNEL_TC,
    "tunnel_tc.bpf.o"
);
object!(
    /// The fast path as XDP programs.
    TUNNEL_XDP,
    "tunnel_xdp.bpf.o"
);
object!(
    /// XDP programs that count and drop what arrives, or only let it pass.
    SINK,
    "sink.bpf.o"
);
object!(
    /// A tc program that puts an outer header around what the benchmark's source sends.
    SOURCE,
    "source.bpf.o"
);
object!(
    /// The fast path of IPv6 over GeoNetworking as tc programs.
    GEONET,
    "geonet.bpf.o"
);
