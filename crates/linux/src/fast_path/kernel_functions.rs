//! Finds the functions of the kernel's connection tracking that the programs call, and writes their numbers
//! into the programs' calls before the programs are loaded.
//!
//! A BPF program calls a function of the kernel by the number of the function's type. `/sys/kernel/btf` has
//! the types of the kernel (`vmlinux`) and of each module. The object of carnet's programs has placeholders
//! in its calls (`bpf/helpers.h`). aya's loader leaves them alone, and cannot put numbers in their place. See
//! `docs/decisions/0086-kernel-functions-by-number.md`.
//!
//! Left out: functions of a kernel module. To call one, the loader must pass the module's types to the
//! kernel, which aya does not.

use std::fs;

/// Placeholder of the first function, with the numbers of the next ones after it.
const PLACEHOLDER: u32 = 0x6b66_0000;
/// Names of the functions, in the order of their placeholders.
const NAMES: [&str; 4] =
    ["bpf_skb_ct_lookup", "bpf_xdp_ct_lookup", "bpf_ct_release", "bpf_ct_change_timeout"];

/// Operation code of a call, and source register of a call of a kernel function (`BPF_PSEUDO_KFUNC_CALL`).
const CALL: u8 = 0x85;
const KERNEL_FUNCTION: u8 = 2;
/// The instruction `r0 = 0`.
const ZERO: [u8; 8] = [0xb7, 0, 0, 0, 0, 0, 0, 0];

const TYPES_OF_KERNEL: &str = "/sys/kernel/btf/vmlinux";
const TYPES_OF_MODULE: &str = "/sys/kernel/btf/nf_conntrack";

// Kinds of types, `linux/btf.h`.
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FUNCTION: u32 = 12;

/// Functions of connection tracking, and offsets of the fields that the programs read in `struct nf_conn`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KernelFunctions {
    numbers: [u32; NAMES.len()],
    pub(super) status: u32,
    pub(super) tcp_state: u32,
}

impl KernelFunctions {
    /// Finds the functions in the running kernel.
    ///
    /// # Errors
    /// Returns why the programs cannot call the functions.
    pub(super) fn find() -> Result<KernelFunctions, String> {
        let read = |path: &str| fs::read(path).map_err(|error| format!("cannot read {path}: {error}"));
        let missing = match KernelFunctions::among(&read(TYPES_OF_KERNEL)?) {
            Ok(found) => return Ok(found),
            Err(missing) => missing,
        };
        Err(match fs::exists(TYPES_OF_MODULE) {
            Ok(true) => "its connection tracking is a module (nf_conntrack)".into(),
            _ => format!("it has no {missing} (needs Linux 6.0)"),
        })
    }

    /// Finds the functions among types. Returns the name of the first one that is missing.
    fn among(octets: &[u8]) -> Result<KernelFunctions, &'static str> {
        const BROKEN: &str = "readable BTF";
        let types = Types::parse(octets).ok_or(BROKEN)?;
        let mut numbers = [None; NAMES.len()];
        let (mut status, mut protocol, mut tcp, mut state) = (None, None, None, None);
        types.visit(|number, of| {
            let set = |offset: &mut Option<u32>, member: &str| {
                *offset = offset.or_else(|| types.offset_of(&of, member));
            };
            match (of.kind, of.name) {
                (FUNCTION, name) => {
                    if let Some(at) = NAMES.iter().position(|known| known.as_bytes() == name) {
                        numbers[at] = Some(number);
                    }
                }
                (STRUCT, b"nf_conn") => {
                    set(&mut status, "status");
                    set(&mut protocol, "proto");
                }
                (UNION, b"nf_conntrack_proto") => set(&mut tcp, "tcp"),
                (STRUCT, b"ip_ct_tcp") => set(&mut state, "state"),
                _ => {}
            }
        });
        if let Some((_, name)) = numbers.iter().zip(NAMES).find(|(number, _)| number.is_none()) {
            return Err(name);
        }
        let low_half = if cfg!(all(target_endian = "big", target_pointer_width = "64")) { 4 } else { 0 };
        Ok(KernelFunctions {
            numbers: numbers.map(Option::unwrap_or_default),
            status: status.ok_or("nf_conn.status")? + low_half,
            tcp_state: protocol.ok_or("nf_conn.proto")?
                + tcp.ok_or("nf_conntrack_proto.tcp")?
                + state.ok_or("ip_ct_tcp.state")?,
        })
    }
}

/// Writes the numbers of the functions into the calls of an ELF object. Without functions it replaces each
/// call with `r0 = 0`, which old kernels accept. The programs do not execute it, because `HAS_CONNTRACK` is
/// 0.
pub(super) fn link(object: &mut [u8], functions: Option<&KernelFunctions>) {
    let (instructions, _) = object.as_chunks_mut::<8>();
    for instruction in instructions {
        let [CALL, 0, 0, 0, immediate @ ..] = *instruction else { continue };
        let Some(place) = u32::from_ne_bytes(immediate).checked_sub(PLACEHOLDER) else { continue };
        if place as usize >= NAMES.len() {
            continue;
        }
        let number = functions.and_then(|functions| functions.numbers.get(place as usize));
        *instruction = match number {
            Some(number) => {
                let [a, b, c, d] = number.to_ne_bytes();
                let source =
                    if cfg!(target_endian = "little") { KERNEL_FUNCTION << 4 } else { KERNEL_FUNCTION };
                [CALL, source, 0, 0, a, b, c, d]
            }
            None => ZERO,
        };
    }
}

/// Types in the BPF Type Format (BTF): a header, the types, and the strings with their names.
struct Types<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

struct Type<'a> {
    kind: u32,
    name: &'a [u8],
    /// Whether a member's offset also contains the size of a bit field.
    has_sizes: bool,
    members: &'a [u8],
}

impl<'a> Types<'a> {
    fn parse(octets: &'a [u8]) -> Option<Types<'a>> {
        let word = |at: usize| number(octets, at).map(|it| it as usize);
        if octets.first_chunk() != Some(&0xeb9f_u16.to_ne_bytes()) {
            return None;
        }
        let (header, types, types_length) = (word(4)?, word(8)?, word(12)?);
        let (strings, strings_length) = (word(16)?, word(20)?);
        let part = |from: usize, length: usize| {
            let from = header.checked_add(from)?;
            octets.get(from..from.checked_add(length)?)
        };
        Some(Types { types: part(types, types_length)?, strings: part(strings, strings_length)? })
    }

    /// Calls `visit` with each type and its number.
    fn visit(&self, mut visit: impl FnMut(u32, Type<'a>)) {
        let (mut rest, mut id) = (self.types, 0);
        while let (Some(name), Some(info)) = (number(rest, 0), number(rest, 4)) {
            id += 1;
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let length = match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                STRUCT | UNION | 15 | 19 => 12 * count,
                6 | 13 => 8 * count,
                _ => 0,
            };
            let Some(members) = rest.get(12..12 + length) else { return };
            visit(id, Type { kind, name: self.name(name), has_sizes: info >> 31 == 1, members });
            rest = rest.get(12 + length..).unwrap_or_default();
        }
    }

    fn name(&self, at: u32) -> &'a [u8] {
        let from = self.strings.get(at as usize..).unwrap_or_default();
        from.split(|octet| *octet == 0).next().unwrap_or_default()
    }

    /// Returns the offset in octets of a member of a structure.
    fn offset_of(&self, of: &Type<'a>, member: &str) -> Option<u32> {
        let members = of.members.chunks_exact(12);
        let found = members
            .into_iter()
            .find(|it| number(it, 0).is_some_and(|name| self.name(name) == member.as_bytes()))?;
        let bits = number(found, 8)?;
        Some(if of.has_sizes { bits & 0xff_ffff } else { bits } / 8)
    }
}

fn number(octets: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(octets.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns types with the functions and structures of connection tracking, without `left_out`.
    fn types(left_out: &str) -> Vec<u8> {
        let (mut types, mut strings) = (Vec::new(), vec![0_u8]);
        let mut name = |text: &str| {
            let at = strings.len() as u32;
            strings.extend(text.bytes().chain([0]));
            at
        };
        let mut add = |words: &[u32]| types.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        add(&[name("int"), 1 << 24, 4, 32]);
        for function in NAMES.into_iter().filter(|it| *it != left_out) {
            add(&[name(function), FUNCTION << 24, 1]);
        }
        let nf_conn = [name("nf_conn"), STRUCT << 24 | 2, 200];
        add(&nf_conn);
        add(&[name("status"), 1, 128 * 8, name("proto"), 1, 160 * 8]);
        // The offset of a member in a structure with bit fields contains the size of the member.
        add(&[name("nf_conntrack_proto"), 1 << 31 | UNION << 24 | 1, 60, name("tcp"), 1, 7 << 24]);
        add(&[name("ip_ct_tcp"), STRUCT << 24 | 1, 60, name("state"), 1, 40 * 8]);
        let header = [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
        let mut octets = [0xeb9f_u16.to_ne_bytes(), [1, 0]].concat();
        octets.extend(header.iter().flat_map(|word| word.to_ne_bytes()));
        [octets, types, strings].concat()
    }

    #[test]
    fn functions_and_offsets_are_found_among_types() {
        let found = KernelFunctions::among(&types("")).expect("all functions");
        let low_half = if cfg!(all(target_endian = "big", target_pointer_width = "64")) { 4 } else { 0 };
        assert_eq!(found, KernelFunctions { numbers: [2, 3, 4, 5], status: 128 + low_half, tcp_state: 200 });
    }

    #[test]
    fn missing_function_is_named() {
        for name in NAMES {
            assert_eq!(KernelFunctions::among(&types(name)), Err(name));
        }
    }

    #[test]
    fn truncated_types_are_no_functions() {
        let whole = types("");
        for length in 0..whole.len() {
            let _ = KernelFunctions::among(&whole[..length]);
        }
        assert!(KernelFunctions::among(&[]).is_err());
    }

    #[test]
    fn calls_get_numbers_of_kernel_or_are_removed() {
        let functions = KernelFunctions::among(&types("")).expect("all functions");
        let call = |number: u32| {
            let [a, b, c, d] = number.to_ne_bytes();
            [CALL, 0, 0, 0, a, b, c, d]
        };
        let object = [call(7), call(PLACEHOLDER + 1), call(PLACEHOLDER + 4)].concat();
        let mut linked = object.clone();
        link(&mut linked, Some(&functions));
        let [a, b, c, d] = 3_u32.to_ne_bytes();
        let source = if cfg!(target_endian = "little") { 0x20 } else { 2 };
        let call_of_function = [CALL, source, 0, 0, a, b, c, d];
        assert_eq!(linked, [call(7), call_of_function, call(PLACEHOLDER + 4)].concat());
        let mut linked = object;
        link(&mut linked, None);
        assert_eq!(linked, [call(7), ZERO, call(PLACEHOLDER + 4)].concat());
    }

    /// Each of carnet's objects with a fast path of tunnels calls these functions.
    #[test]
    fn objects_have_placeholders() {
        for object in [carnet_bpf::TUNNEL_TC, carnet_bpf::TUNNEL_XDP] {
            let mut linked = object.unpack();
            let before = linked.clone();
            link(&mut linked, None);
            assert_ne!(&linked[..], &before[..]);
        }
    }
}
