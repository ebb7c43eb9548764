/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Definitions that BPF programs need in addition to the kernel's user-space headers: section names, map
 * declarations and the helpers that carnet calls, by their numbers in <linux/bpf.h>. */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

/* With these flags bpf_skb_adjust_room gives a packet the inner family, from Linux 6.3 on. Older headers lack
 * them. */
#ifndef BPF_F_ADJ_ROOM_DECAP_L3_IPV4
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV4 (1ULL << 7)
#define BPF_F_ADJ_ROOM_DECAP_L3_IPV6 (1ULL << 8)
#endif

#define SEC(name) __attribute__((section(name), used))
#define inline_always static inline __attribute__((always_inline))
/* A function that the verifier follows once for each program, and not once for each state of its callers. Its
 * parameters are the packet's context, numbers, and pointers to structures, which it has to test. It returns
 * a number. Structures behind a pointer contain no pointers for the verifier. */
#define verified_once __attribute__((noinline))

/* Macros that describe a map in BTF: __uint(key, number), __type(key, type). */
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define cpu_to_be16(x) __builtin_bswap16(x)
#define cpu_to_be32(x) __builtin_bswap32(x)
#define be64_to_cpu(x) __builtin_bswap64(x)
#else
#define cpu_to_be16(x) (x)
#define cpu_to_be32(x) (x)
#define be64_to_cpu(x) (x)
#endif
#define be16_to_cpu(x) cpu_to_be16(x)
#define be32_to_cpu(x) cpu_to_be32(x)

/* Types to copy headers. On machines where alignment matters, headers in packets are aligned to four octets
 * (NET_IP_ALIGN), and link-layer addresses to two. Without these types the compiler would copy octet by
 * octet. */
typedef __u32 __attribute__((may_alias)) word;
typedef __u16 __attribute__((may_alias)) half;

inline_always void copy_words(void *to, const void *from, __u32 octets)
{
#pragma unroll
	for (__u32 i = 0; i < octets / 4; i++)
		((word *)to)[i] = ((const word *)from)[i];
}

/* Type to copy eight octets at a time, for an IPv6 header after an Ethernet header, perhaps with another
 * header between. Each IPv6 header begins at a multiple of eight octets. Octets that the program reads eight
 * at a time soon after must also be written eight at a time. A processor cannot combine two written halves
 * for one read before they are in its cache, so the read would wait. */
typedef __u64 __attribute__((may_alias)) quad;

inline_always void copy_quads(void *to, const void *from, __u32 octets)
{
#pragma unroll
	for (__u32 i = 0; i < octets / 8; i++)
		((quad *)to)[i] = ((const quad *)from)[i];
}

inline_always void copy_address(void *to, const void *from)
{
#pragma unroll
	for (int i = 0; i < 3; i++)
		((half *)to)[i] = ((const half *)from)[i];
}

/* Functions of the kernel's connection tracking. carnet replaces these numbers in the calls with the kernel's
 * own before it loads the programs (crates/linux/src/fast_path/kernel_functions.rs). */
struct nf_conn;

struct conntrack_options {
	__s32 namespace;
	__s32 error;
	__u8 protocol;
	__u8 direction;
	__u16 zone;
};

static struct nf_conn *(*bpf_skb_ct_lookup)(void *skb, const struct bpf_sock_tuple *tuple, __u32 size,
					    struct conntrack_options *options, __u32 options_size) =
	(void *)0x6b660000;
static struct nf_conn *(*bpf_xdp_ct_lookup)(void *xdp, const struct bpf_sock_tuple *tuple, __u32 size,
					    struct conntrack_options *options, __u32 options_size) =
	(void *)0x6b660001;
static void (*bpf_ct_release)(struct nf_conn *connection) = (void *)0x6b660002;
static int (*bpf_ct_change_timeout)(struct nf_conn *connection, __u32 milliseconds) = (void *)0x6b660003;

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, __u64 flags) =
	(void *)BPF_FUNC_map_update_elem;
static long (*bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;
static long (*bpf_redirect_neigh)(__u32 ifindex, struct bpf_redir_neigh *next_hop, int length, __u64 flags) =
	(void *)BPF_FUNC_redirect_neigh;
static long (*bpf_fib_lookup)(void *ctx, struct bpf_fib_lookup *params, int length, __u32 flags) =
	(void *)BPF_FUNC_fib_lookup;
static long (*bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 length) =
	(void *)BPF_FUNC_skb_load_bytes;
static long (*bpf_skb_load_bytes_relative)(const void *skb, __u32 offset, void *to, __u32 length,
					   __u32 start) = (void *)BPF_FUNC_skb_load_bytes_relative;
static long (*bpf_skb_store_bytes)(struct __sk_buff *skb, __u32 offset, const void *from, __u32 length,
				   __u64 flags) = (void *)BPF_FUNC_skb_store_bytes;
static long (*bpf_skb_adjust_room)(struct __sk_buff *skb, __s32 difference, __u32 mode, __u64 flags) =
	(void *)BPF_FUNC_skb_adjust_room;
static long (*bpf_skb_change_proto)(struct __sk_buff *skb, __be16 protocol, __u64 flags) =
	(void *)BPF_FUNC_skb_change_proto;
static long (*bpf_skb_change_tail)(struct __sk_buff *skb, __u32 length, __u64 flags) =
	(void *)BPF_FUNC_skb_change_tail;
static long (*bpf_csum_level)(struct __sk_buff *skb, __u64 level) = (void *)BPF_FUNC_csum_level;
static long (*bpf_skb_change_head)(struct __sk_buff *skb, __u32 length, __u64 flags) =
	(void *)BPF_FUNC_skb_change_head;
static long (*bpf_xdp_adjust_head)(struct xdp_md *xdp, int difference) = (void *)BPF_FUNC_xdp_adjust_head;
static long (*bpf_xdp_adjust_tail)(struct xdp_md *xdp, int difference) = (void *)BPF_FUNC_xdp_adjust_tail;
static __u64 (*bpf_jiffies64)(void) = (void *)BPF_FUNC_jiffies64;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static __u64 (*bpf_ktime_get_coarse_ns)(void) = (void *)BPF_FUNC_ktime_get_coarse_ns;
static __u32 (*bpf_get_smp_processor_id)(void) = (void *)BPF_FUNC_get_smp_processor_id;
static long (*bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*bpf_skb_vlan_push)(struct __sk_buff *skb, __be16 protocol, __u16 tag) =
	(void *)BPF_FUNC_skb_vlan_push;
static long (*bpf_skb_vlan_pop)(struct __sk_buff *skb) = (void *)BPF_FUNC_skb_vlan_pop;
static long (*bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)BPF_FUNC_spin_lock;
static long (*bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)BPF_FUNC_spin_unlock;
