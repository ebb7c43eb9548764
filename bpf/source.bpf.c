/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The source of a benchmark: programs at the egress of an interface, for packets to the discard port (RFC
 * 863).
 *
 * `reserve` makes as much room before the packets as the drivers of network cards leave (NET_SKB_PAD). `push`
 * also puts an outer IPv6 header (RFC 2473) around them, because a packet socket accepts a super packet of
 * UDP, but not one inside a tunnel. Both programs see super packets before the kernel cuts them.
 */
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include "helpers.h"

#define IPV4_HEADER 20
#define IPV6_HEADER 40
#define UDP_HEADER 8
#define PROTOCOL_UDP 17
#define DISCARD 9
#define ROOM 64
#define AS_THEY_ARE (BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET)

struct header {
	__u8 octets[IPV6_HEADER];
} __attribute__((aligned(8)));

/* The outer header that `push` adds, except for its length. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct header);
} OUTER SEC(".maps");

inline_always int is_ours(struct __sk_buff *skb)
{
	__u8 inner[IPV6_HEADER + UDP_HEADER];

	if (skb->protocol == cpu_to_be16(ETH_P_IP))
		return !bpf_skb_load_bytes(skb, ETH_HLEN, inner, IPV4_HEADER + UDP_HEADER) && inner[9] == PROTOCOL_UDP &&
		       !inner[IPV4_HEADER + 2] && inner[IPV4_HEADER + 3] == DISCARD;
	return skb->protocol == cpu_to_be16(ETH_P_IPV6) && !bpf_skb_load_bytes(skb, ETH_HLEN, inner, sizeof inner) &&
	       inner[6] == PROTOCOL_UDP && !inner[IPV6_HEADER + 2] && inner[IPV6_HEADER + 3] == DISCARD;
}

/* A single packet may become too long for the interface with the room; then send it without the room. */
inline_always int make_room(struct __sk_buff *skb)
{
	if (!bpf_skb_adjust_room(skb, ROOM, BPF_ADJ_ROOM_MAC, AS_THEY_ARE) &&
	    bpf_skb_adjust_room(skb, -ROOM, BPF_ADJ_ROOM_MAC, AS_THEY_ARE))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

SEC("classifier")
int reserve(struct __sk_buff *skb)
{
	return is_ours(skb) ? make_room(skb) : TC_ACT_UNSPEC;
}

SEC("classifier")
int push(struct __sk_buff *skb)
{
	__u32 zero = 0, length = skb->len - ETH_HLEN;
	struct header *wanted, outer;

	wanted = bpf_map_lookup_elem(&OUTER, &zero);
	if (!wanted || !is_ours(skb))
		return TC_ACT_UNSPEC;
	outer = *wanted;
	outer.octets[4] = length >> 8;
	outer.octets[5] = length;
	if (make_room(skb) != TC_ACT_UNSPEC ||
	    bpf_skb_adjust_room(skb, IPV6_HEADER, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 | AS_THEY_ARE) ||
	    bpf_skb_store_bytes(skb, ETH_HLEN, &outer, IPV6_HEADER, 0))
		return TC_ACT_SHOT;
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
