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

/// Placeholder for the number of the first function in the programs' calls. The other functions have the
/// placeholders that follow.
const FIRST_PLACEHOLDER: u32 = 0x6b66_0000;
/// Names of the functions, in the order of their placeholders.
const FUNCTION_NAMES: [&str; 4] =
    ["bpf_skb_ct_lookup", "bpf_xdp_ct_lookup", "bpf_ct_release", "bpf_ct_change_timeout"];

/// Operation code of a call, and source register of a call of a kernel function (`BPF_PSEUDO_KFUNC_CALL`).
const BPF_CALL_OPCODE: u8 = 0x85;
const BPF_PSEUDO_KFUNC_CALL: u8 = 2;
/// The instruction `r0 = 0`.
const RETURN_ZERO_INSTRUCTION: [u8; 8] = [0xb7, 0, 0, 0, 0, 0, 0, 0];

const KERNEL_BTF_FILE: &str = "/sys/kernel/btf/vmlinux";
const CONNTRACK_BTF_FILE: &str = "/sys/kernel/btf/nf_conntrack";

// Kinds of types in BTF, the kernel's type data (`linux/btf.h`).
const BTF_KIND_STRUCT: u32 = 4;
const BTF_KIND_UNION: u32 = 5;
const BTF_KIND_FUNCTION: u32 = 12;

/// Functions of connection tracking, and offsets of the fields that the programs read in `struct nf_conn`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KernelFunctions {
    function_numbers: [u32; FUNCTION_NAMES.len()],
    pub(super) status_offset: u32,
    pub(super) tcp_state_offset: u32,
}

impl KernelFunctions {
    /// Finds the functions in the running kernel.
    ///
    /// # Errors
    /// Returns why the programs cannot call the functions.
    pub(super) fn find_in_kernel_btf() -> Result<KernelFunctions, String> {
        let read = |path: &str| fs::read(path).map_err(|error| format!("cannot read {path}: {error}"));
        let missing = match KernelFunctions::find_in_btf(&read(KERNEL_BTF_FILE)?) {
            Ok(found) => return Ok(found),
            Err(missing) => missing,
        };
        Err(match fs::exists(CONNTRACK_BTF_FILE) {
            Ok(true) => "its connection tracking is a module (nf_conntrack)".into(),
            _ => format!("it has no {missing} (needs Linux 6.0)"),
        })
    }

    /// Finds the functions in a BTF type table. If a function is missing, returns its name as the error.
    fn find_in_btf(octets: &[u8]) -> Result<KernelFunctions, &'static str> {
        const UNREADABLE_BTF: &str = "readable BTF";
        let types = BtfTypes::parse(octets).ok_or(UNREADABLE_BTF)?;
        let mut numbers = [None; FUNCTION_NAMES.len()];
        let (mut status, mut protocol, mut tcp, mut state) = (None, None, None, None);
        types.visit_types(|number, of| {
            let set = |offset: &mut Option<u32>, member: &str| {
                *offset = offset.or_else(|| types.member_offset(&of, member));
            };
            match (of.kind, of.name) {
                (BTF_KIND_FUNCTION, name) => {
                    if let Some(at) = FUNCTION_NAMES.iter().position(|known| known.as_bytes() == name) {
                        numbers[at] = Some(number);
                    }
                }
                (BTF_KIND_STRUCT, b"nf_conn") => {
                    set(&mut status, "status");
                    set(&mut protocol, "proto");
                }
                (BTF_KIND_UNION, b"nf_conntrack_proto") => set(&mut tcp, "tcp"),
                (BTF_KIND_STRUCT, b"ip_ct_tcp") => set(&mut state, "state"),
                _ => {}
            }
        });
        if let Some((_, name)) = numbers.iter().zip(FUNCTION_NAMES).find(|(number, _)| number.is_none()) {
            return Err(name);
        }
        let low_half = if cfg!(all(target_endian = "big", target_pointer_width = "64")) { 4 } else { 0 };
        Ok(KernelFunctions {
            function_numbers: numbers.map(Option::unwrap_or_default),
            status_offset: status.ok_or("nf_conn.status")? + low_half,
            tcp_state_offset: protocol.ok_or("nf_conn.proto")?
                + tcp.ok_or("nf_conntrack_proto.tcp")?
                + state.ok_or("ip_ct_tcp.state")?,
        })
    }
}

/// Writes the numbers of the functions into the calls of an ELF object. Without functions it replaces each
/// call with `r0 = 0`, which old kernels accept. The programs do not execute it, because `HAS_CONNTRACK` is
/// 0.
pub(super) fn link_functions(object: &mut [u8], functions: Option<&KernelFunctions>) {
    let (instructions, _) = object.as_chunks_mut::<8>();
    for instruction in instructions {
        let [BPF_CALL_OPCODE, 0, 0, 0, immediate @ ..] = *instruction else { continue };
        let Some(place) = u32::from_ne_bytes(immediate).checked_sub(FIRST_PLACEHOLDER) else { continue };
        if place as usize >= FUNCTION_NAMES.len() {
            continue;
        }
        let number = functions.and_then(|functions| functions.function_numbers.get(place as usize));
        *instruction = match number {
            Some(number) => {
                let [a, b, c, d] = number.to_ne_bytes();
                let source = if cfg!(target_endian = "little") {
                    BPF_PSEUDO_KFUNC_CALL << 4
                } else {
                    BPF_PSEUDO_KFUNC_CALL
                };
                [BPF_CALL_OPCODE, source, 0, 0, a, b, c, d]
            }
            None => RETURN_ZERO_INSTRUCTION,
        };
    }
}

/// Types in the BPF Type Format (BTF): a header, the types, and the strings with their names.
struct BtfTypes<'a> {
    type_octets: &'a [u8],
    string_octets: &'a [u8],
}

struct BtfType<'a> {
    kind: u32,
    name: &'a [u8],
    /// Whether a member's offset also contains the size of a bit field.
    offsets_have_sizes: bool,
    member_octets: &'a [u8],
}

impl<'a> BtfTypes<'a> {
    fn parse(octets: &'a [u8]) -> Option<BtfTypes<'a>> {
        let word = |at: usize| u32_at(octets, at).map(|it| it as usize);
        if octets.first_chunk() != Some(&0xeb9f_u16.to_ne_bytes()) {
            return None;
        }
        let (header, types, types_length) = (word(4)?, word(8)?, word(12)?);
        let (strings, strings_length) = (word(16)?, word(20)?);
        let part = |from: usize, length: usize| {
            let from = header.checked_add(from)?;
            octets.get(from..from.checked_add(length)?)
        };
        Some(BtfTypes {
            type_octets: part(types, types_length)?,
            string_octets: part(strings, strings_length)?,
        })
    }

    /// Calls `visit` with each type and its number.
    fn visit_types(&self, mut visit: impl FnMut(u32, BtfType<'a>)) {
        let (mut rest, mut id) = (self.type_octets, 0);
        while let (Some(name), Some(info)) = (u32_at(rest, 0), u32_at(rest, 4)) {
            id += 1;
            let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let length = match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                BTF_KIND_STRUCT | BTF_KIND_UNION | 15 | 19 => 12 * count,
                6 | 13 => 8 * count,
                _ => 0,
            };
            let Some(members) = rest.get(12..12 + length) else { return };
            visit(
                id,
                BtfType {
                    kind,
                    name: self.name_at(name),
                    offsets_have_sizes: info >> 31 == 1,
                    member_octets: members,
                },
            );
            rest = rest.get(12 + length..).unwrap_or_default();
        }
    }

    fn name_at(&self, at: u32) -> &'a [u8] {
        let from = self.string_octets.get(at as usize..).unwrap_or_default();
        from.split(|octet| *octet == 0).next().unwrap_or_default()
    }

    /// Returns the offset in octets of a member of a structure; `None` if the structure has no such member.
    fn member_offset(&self, of: &BtfType<'a>, member: &str) -> Option<u32> {
        let members = of.member_octets.chunks_exact(12);
        let found = members
            .into_iter()
            .find(|it| u32_at(it, 0).is_some_and(|name| self.name_at(name) == member.as_bytes()))?;
        let bits = u32_at(found, 8)?;
        Some(if of.offsets_have_sizes { bits & 0xff_ffff } else { bits } / 8)
    }
}

fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(octets.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a BTF type table with the functions and structures of connection tracking, except `left_out`.
    fn btf_types_without(left_out: &str) -> Vec<u8> {
        let (mut types, mut strings) = (Vec::new(), vec![0_u8]);
        let mut name = |text: &str| {
            let at = strings.len() as u32;
            strings.extend(text.bytes().chain([0]));
            at
        };
        let mut add = |words: &[u32]| types.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        add(&[name("int"), 1 << 24, 4, 32]);
        for function in FUNCTION_NAMES.into_iter().filter(|it| *it != left_out) {
            add(&[name(function), BTF_KIND_FUNCTION << 24, 1]);
        }
        let nf_conn = [name("nf_conn"), BTF_KIND_STRUCT << 24 | 2, 200];
        add(&nf_conn);
        add(&[name("status"), 1, 128 * 8, name("proto"), 1, 160 * 8]);
        // The offset of a member in a structure with bit fields contains the size of the member.
        add(&[name("nf_conntrack_proto"), 1 << 31 | BTF_KIND_UNION << 24 | 1, 60, name("tcp"), 1, 7 << 24]);
        add(&[name("ip_ct_tcp"), BTF_KIND_STRUCT << 24 | 1, 60, name("state"), 1, 40 * 8]);
        let header = [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
        let mut octets = [0xeb9f_u16.to_ne_bytes(), [1, 0]].concat();
        octets.extend(header.iter().flat_map(|word| word.to_ne_bytes()));
        [octets, types, strings].concat()
    }

    #[test]
    fn kernel_functions_and_offsets_are_found_in_btf() {
        let found = KernelFunctions::find_in_btf(&btf_types_without("")).expect("all functions");
        let low_half = if cfg!(all(target_endian = "big", target_pointer_width = "64")) { 4 } else { 0 };
        assert_eq!(
            found,
            KernelFunctions {
                function_numbers: [2, 3, 4, 5],
                status_offset: 128 + low_half,
                tcp_state_offset: 200
            }
        );
    }

    #[test]
    fn error_names_missing_kernel_function() {
        for name in FUNCTION_NAMES {
            assert_eq!(KernelFunctions::find_in_btf(&btf_types_without(name)), Err(name));
        }
    }

    #[test]
    fn truncated_btf_gives_no_functions() {
        let whole = btf_types_without("");
        for length in 0..whole.len() {
            let _ = KernelFunctions::find_in_btf(&whole[..length]);
        }
        assert!(KernelFunctions::find_in_btf(&[]).is_err());
    }

    #[test]
    fn placeholder_calls_get_kernel_function_numbers_or_are_removed() {
        let functions = KernelFunctions::find_in_btf(&btf_types_without("")).expect("all functions");
        let call = |number: u32| {
            let [a, b, c, d] = number.to_ne_bytes();
            [BPF_CALL_OPCODE, 0, 0, 0, a, b, c, d]
        };
        let object = [call(7), call(FIRST_PLACEHOLDER + 1), call(FIRST_PLACEHOLDER + 4)].concat();
        let mut linked = object.clone();
        link_functions(&mut linked, Some(&functions));
        let [a, b, c, d] = 3_u32.to_ne_bytes();
        let source = if cfg!(target_endian = "little") { 0x20 } else { 2 };
        let call_of_function = [BPF_CALL_OPCODE, source, 0, 0, a, b, c, d];
        assert_eq!(linked, [call(7), call_of_function, call(FIRST_PLACEHOLDER + 4)].concat());
        let mut linked = object;
        link_functions(&mut linked, None);
        assert_eq!(linked, [call(7), RETURN_ZERO_INSTRUCTION, call(FIRST_PLACEHOLDER + 4)].concat());
    }

    /// carnet's two BPF objects with a fast path of tunnels call these functions.
    #[test]
    fn both_bpf_objects_contain_placeholder_calls() {
        for object in [carnet_bpf::TUNNEL_TC, carnet_bpf::TUNNEL_XDP] {
            let mut linked = object.unpack();
            let before = linked.clone();
            link_functions(&mut linked, None);
            assert_ne!(&linked[..], &before[..]);
        }
    }
}
