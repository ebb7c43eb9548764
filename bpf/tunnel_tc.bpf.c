/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The fast path as tc programs (clsact or tcx, ingress). They encapsulate and decapsulate IPv6 and IPv4
 * in IPv6 (RFC 2473), in IPv4 and in UDP (RFC 5555), in whole socket buffers. Super packets of TCP and UDP
 * stay whole: the interface, or the kernel just before it, adds the outer header to each segment. The kernel
 * resolves the neighbour (bpf_redirect_neigh).
 *
 * There is one program for each kind of interface: by its role for the station, and by whether its packets
 * have an Ethernet header (modems and tunnels have none).
 */
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

/* A packet may leave by every interface, because the kernel resolves the neighbour. */
#define CONTEXT struct __sk_buff
#define MAY_LEAVE(ifindex, result) 1
#define KERNEL_ROUTES 1
#define IS_SKB 1
#include "tunnel.h"

/* Passes the packet to the next program, or to the kernel. */
#define PASS TC_ACT_UNSPEC
/* Result of handle() for a packet that may have IPv4 inside; no verdict of the kernel. */
#define TRY_IPV4 1000

/* Returns TRY_IPV4 as a value that the compiler does not know. Otherwise the compiler would load the value
 * into the result's register for each IPv6 packet, too. */
inline_always int try_ipv4(void)
{
	int verdict = TRY_IPV4;

	asm volatile("" : "+r"(verdict));
	return verdict;
}

/* Reads the header after the inner IP header that ends at `offset`: protocol, ports, and TCP
 * flags. Returns the length of the longest sent packet, with super packets cut into segments; 0 if it is
 * unknown. */
inline_always __u32 look_inside(struct __sk_buff *skb, struct plan *plan, __u32 offset, const int ipv4)
{
	const __u32 ip_header = ipv4 ? IPV4_HEADER : IPV6_HEADER;
	__u32 header[4] = {}; /* first 16 octets of TCP: ports, numbers, data offset and flags */
	const __u8 *octets = (const __u8 *)header;
	__u32 segment = skb->gso_size;
	__u8 next_header = plan->inner.next_header;

	plan->flags = 0;
	plan->ports = 0;
	plan->protocol = next_header | (ipv4 ? INSIDE_IPV4 : 0);
	if (next_header == PROTOCOL_TCP) {
		if (bpf_skb_load_bytes(skb, offset, header, 16))
			return 0;
		plan->ports = header[0];
		plan->flags = flags_of(octets[13]);
		return segment ? ip_header + (octets[12] >> 4) * 4 + segment : inner_length(plan, ipv4);
	}
	if (has_ports(next_header)) {
		if (bpf_skb_load_bytes(skb, offset, header, 4))
			return 0;
		plan->ports = header[0];
		if (segment && next_header == PROTOCOL_UDP)
			return ip_header + UDP_HEADER + segment;
	}
	if (!ipv4 && next_header == PROTOCOL_FRAGMENT) {
		if (bpf_skb_load_bytes(skb, offset, header, FRAGMENT_HEADER))
			return 0;
		plan->protocol = octets[0] | IN_FRAGMENTS;
		plan->flags = is_first_of_tcp(octets) ? TCP_SYN : 0;
	}
	return segment ? 0 : inner_length(plan, ipv4);
}

/* Returns the number of packets after segmentation, and their total octets; `length` is the length of the
 * longest packet. */
inline_always __u32 packets_of(struct __sk_buff *skb, const struct plan *plan, __u32 length, __u32 *octets,
			       const int ipv4)
{
	__u32 segment = skb->gso_size, headers = length - segment, packets;

	*octets = inner_length(plan, ipv4);
	if (!segment || *octets <= length)
		return 1;
	packets = (*octets - headers + segment - 1) / segment;
	*octets += (packets - 1) * headers;
	return packets;
}

inline_always int finish(enum outcome outcome)
{
	if (outcome < OUTCOMES)
		count(outcome);
	return outcome == FAILED ? TC_ACT_SHOT : PASS;
}

/* Sends the packet to the flow's next hop. */
inline_always int send(struct __sk_buff *skb, struct plan *plan, __u32 link_header)
{
	const struct address *address = &plan->flow->next_hop;
	/* Use the plan's memory, because the stack is small and the headers are already in the packet. */
	struct bpf_redir_neigh *next_hop = (void *)&plan->outer;

	/* The kernel drops a redirected packet without an Ethernet header; the content of the header does not
	 * matter. */
	if (!link_header && bpf_skb_change_head(skb, ETH_HLEN, 0))
		return finish(FAILED);
	__builtin_memset(&plan->outer, 0, sizeof plan->outer);
	if (is_mapped(address)) {
		next_hop->nh_family = FAMILY_INET;
		next_hop->ipv4_nh = address->word[3];
	} else if (high(address) || low(address)) {
		next_hop->nh_family = FAMILY_INET6;
		copy_words(next_hop->ipv6_nh, address, 16);
	} else {
		return bpf_redirect_neigh(plan->flow->departure, 0, 0, 0);
	}
	return bpf_redirect_neigh(plan->flow->departure, next_hop, sizeof *next_hop, 0);
}

/* Adds an outer header of `length` octets, from the end of the plan's `outer`, before the packet, and writes
 * the inner header to send. `ipv4` is that header as received if it is IPv4, otherwise 0. */
inline_always int prepend(struct __sk_buff *skb, struct plan *plan, __u32 link_header, __u32 length,
			  __u64 flags, struct ipv4 *ipv4)
{
	const __u8 *from = (const __u8 *)&plan->outer + IPV6_HEADER - length;

	if (bpf_skb_adjust_room(skb, length, BPF_ADJ_ROOM_MAC,
				flags | BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET))
		return PASS_TOO_BIG;
	if (ipv4) {
		forward_ipv4(ipv4, plan->inner.first);
		copy_words(&plan->inner, ipv4, IPV4_HEADER);
	} else {
		begin_forwarded(&plan->inner, &plan->inner, plan->inner.first);
	}
	/* The flag also updates the checksum over the whole packet that some interfaces have computed. */
	return bpf_skb_store_bytes(skb, link_header, from, length + (ipv4 ? IPV4_HEADER : IPV6_HEADER),
				   BPF_F_RECOMPUTE_CSUM) ?
		       FAILED :
		       TAKEN;
}

inline_always int encapsulate(struct __sk_buff *skb, __u32 roles, __u32 link_header, struct plan *plan,
			      struct ipv4 *ipv4)
{
	__u32 length, packets, octets;
	enum outcome outcome;

	if (!ipv4 && (roles & AGENT))
		fetch_way(&plan->inner.destination);
	length = look_inside(skb, plan, link_header + (ipv4 ? IPV4_HEADER : IPV6_HEADER), ipv4 != 0);
	if (!length)
		return PASS;
	outcome = plan_encapsulation(skb, roles, plan, length, skb->ingress_ifindex, ipv4 != 0);
	if (outcome != TAKEN)
		return finish(outcome);

	/* Leave a burst of UDP inside UDP to the slow path. After the outer header is removed, the kernel
	 * would segment the rest as a tunnel. And if a virtual link carries the burst in one piece, the
	 * socket at the other end cannot separate the datagrams. */
	if (plan->flow->outside != IN_IPV6 && skb->gso_size && plan->inner.next_header != PROTOCOL_TCP)
		return finish(PASS_BURST);
	packets = packets_of(skb, plan, length, &octets, ipv4 != 0);
	/* Remove the padding of a short Ethernet frame. */
	if (ipv4 && skb->len > link_header + octets && !skb->gso_size &&
	    bpf_skb_change_tail(skb, link_header + octets, 0))
		return finish(PASS_MALFORMED);
	if (plan->flow->outside == IN_IPV6) {
		write_outer(&plan->outer, plan, ipv4 != 0);
		outcome = prepend(skb, plan, link_header, IPV6_HEADER, BPF_F_ADJ_ROOM_ENCAP_L3_IPV6, ipv4);
	} else if (plan->flow->outside == IN_IPV4) {
		outcome = prepend(skb, plan, link_header, IPV4_HEADER, BPF_F_ADJ_ROOM_ENCAP_L3_IPV4, ipv4);
	} else {
		outcome = prepend(skb, plan, link_header, IPV4_HEADER + UDP_HEADER,
				  BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP, ipv4);
	}
	if (outcome != TAKEN)
		return finish(outcome);
	count_encapsulated(plan, packets, octets);
	return send(skb, plan, link_header);
}

/* Removes the outer headers, and makes the kernel treat the packet as one of the inner family. */
inline_always enum outcome remove_outside(struct __sk_buff *skb, __u32 outside, const int ipv4)
{
	const __u64 flags = BPF_F_ADJ_ROOM_FIXED_GSO | BPF_F_ADJ_ROOM_NO_CSUM_RESET;
	const __u64 family = ipv4 ? BPF_F_ADJ_ROOM_DECAP_L3_IPV4 : BPF_F_ADJ_ROOM_DECAP_L3_IPV6;
	const __s32 length = outside_length(outside);
	__s32 grown;

	if (ipv4 ? outside != IN_IPV6 : outside == IN_IPV6)
		return bpf_skb_adjust_room(skb, -length, BPF_ADJ_ROOM_MAC, flags) ? PASS_MALFORMED : TAKEN;
	if (!bpf_skb_adjust_room(skb, -length, BPF_ADJ_ROOM_MAC, flags | family))
		return TAKEN;
	/* Before Linux 6.3 the kernel refuses the flag and leaves the packet as it is. So change the family
	 * first. For IPv6 that adds 20 octets, which are removed together with the outer headers. For IPv4
	 * that removes 20 octets of the outer header. */
	if (bpf_skb_change_proto(skb, cpu_to_be16(ipv4 ? ETH_P_IP : ETH_P_IPV6), 0))
		return PASS_MALFORMED;
	grown = ipv4 ? IPV4_HEADER - IPV6_HEADER : IPV6_HEADER - IPV4_HEADER;
	return bpf_skb_adjust_room(skb, -length - grown, BPF_ADJ_ROOM_MAC, flags) ? FAILED : TAKEN;
}

inline_always int decapsulate(struct __sk_buff *skb, __u32 roles, __u32 link_header, struct plan *plan,
			      struct ipv4 *ipv4)
{
	__u32 outside = plan->outside, length, packets, octets;
	enum outcome outcome;

	if (!ipv4 && (roles & AGENT))
		fetch_way(&plan->inner.source);
	length = look_inside(skb, plan, link_header + outside_length(outside) + (ipv4 ? IPV4_HEADER : IPV6_HEADER),
			     ipv4 != 0);
	if (!length)
		return PASS;
	outcome = plan_decapsulation(skb, roles, plan, length, skb->ingress_ifindex, ipv4 != 0);
	if (outcome != TAKEN)
		return finish(outcome);

	packets = packets_of(skb, plan, length, &octets, ipv4 != 0);
	outcome = remove_outside(skb, outside, ipv4 != 0);
	if (outcome != TAKEN)
		return finish(outcome);
	if (ipv4) {
		forward_ipv4(ipv4, plan->first);
		if (bpf_skb_store_bytes(skb, link_header, ipv4, IPV4_HEADER, BPF_F_RECOMPUTE_CSUM))
			return finish(FAILED);
	} else {
		begin_forwarded(&plan->inner, &plan->inner, plan->first);
		if (bpf_skb_store_bytes(skb, link_header, &plan->inner, 8, BPF_F_RECOMPUTE_CSUM))
			return finish(FAILED);
	}
	count_decapsulated(plan, packets, octets);
	return send(skb, plan, link_header);
}

/* Copies the header of `length` octets at `offset`; returns 0 if the packet is too short. */
inline_always int read_header(struct __sk_buff *skb, __u32 offset, void *header, const __u32 length)
{
	const __u8 *data = (void *)(long)skb->data;
	const __u8 *end = (void *)(long)skb->data_end;

	if (data + offset + length <= end) {
		copy_words(header, data + offset, length);
		return 1;
	}
	/* The header may be outside of the linear part of the socket buffer. */
	return !bpf_skb_load_bytes(skb, offset, header, length);
}

/* Reads the headers of a packet in IPv4 whose inner packet has this protocol; returns IN_IPV6 if it is no
 * tunnel. */
inline_always enum outside open_ipv4(struct __sk_buff *skb, __u32 link_header, struct plan *plan,
				     __u8 protocol, enum outcome *outcome)
{
	__u32 length = skb->len - link_header;
	enum outside outside;
	/* Use the plan's memory for the inner header, because the stack is small and that header is not read
	 * yet. */
	const struct ipv4 *ipv4 = (const void *)&plan->inner;
	const struct udp *udp = (const void *)(ipv4 + 1);

	if (bpf_skb_load_bytes(skb, link_header, &plan->inner, IPV4_HEADER + UDP_HEADER))
		return IN_IPV6;
	outside = read_outside(ipv4, udp, length, protocol, &plan->outer.ipv6, &plan->outer_ports);
	if (outside == IN_UDP && udp->checksum && bpf_csum_level(skb, BPF_CSUM_LEVEL_QUERY) < 0)
		*outcome = PASS_CHECKSUM;
	return outside;
}

/* Handles a packet with IPv4 inside, for which handle() has returned TRY_IPV4. This is a function of its own,
 * so that IPv6 packets need no instruction for it. */
static __attribute__((noinline)) int handle_ipv4(struct __sk_buff *skb, __u32 roles, __u32 link_header)
{
	enum outcome outcome = TAKEN;
	int is_tunnelled = 0;
	struct ipv4 header;
	struct plan plan;
	__u32 offset = link_header;

	plan.outside = IN_IPV6;
	plan.outer_ports = 0;
	if (skb->protocol == cpu_to_be16(ETH_P_IPV6)) {
		if (!read_header(skb, link_header, &plan.outer.ipv6, IPV6_HEADER))
			return PASS;
		is_tunnelled = 1;
	} else if (roles & (AGENT | DECAPSULATE_CARE_OF)) {
		plan.outside = open_ipv4(skb, link_header, &plan, PROTOCOL_IPV4, &outcome);
		is_tunnelled = plan.outside != IN_IPV6;
	}
	if (is_tunnelled)
		offset += outside_length(plan.outside);
	if (!read_header(skb, offset, &header, IPV4_HEADER) || !is_common_ipv4(&header) ||
	    skb->len < offset + be16_to_cpu(header.length))
		return PASS;
	read_inside(&plan.inner, &header);
	if (is_tunnelled) {
		/* Leave a burst of datagrams to the socket. */
		if (plan.outside == IN_UDP && skb->gso_size &&
		    inner_length(&plan, 1) != be16_to_cpu(plan.outer.ipv6.payload_length))
			return PASS;
		return outcome == TAKEN ? decapsulate(skb, roles, link_header, &plan, &header) : finish(outcome);
	}
	return roles & (AGENT | ENCAPSULATE_FROM) ? encapsulate(skb, roles, link_header, &plan, &header) : PASS;
}

/* This function is not inline, so that each program has one copy, in which the verifier knows the program's
 * constants. */
static __attribute__((noinline)) int handle(struct __sk_buff *skb, __u32 roles, __u32 link_header)
{
	enum outcome outcome = TAKEN;
	struct plan plan;

	/* Skip packets for other stations, which an interface receives during a packet capture. */
	/* Skip packets with a mark, because a rule may route them by the mark, which only the slow path
	 * keeps. */
	if (skb->vlan_present || skb->mark || (link_header && skb->pkt_type != PACKET_HOST))
		return PASS;
	plan.outside = IN_IPV6;
	plan.outer_ports = 0;
	if (skb->protocol == cpu_to_be16(ETH_P_IP) && (roles & (AGENT | DECAPSULATE_CARE_OF))) {
		plan.outside = open_ipv4(skb, link_header, &plan, PROTOCOL_IPV6, &outcome);
		if (plan.outside == IN_IPV6)
			return try_ipv4();
	} else if (skb->protocol != cpu_to_be16(ETH_P_IPV6) ||
		   !read_header(skb, link_header, &plan.inner, IPV6_HEADER)) {
		return skb->protocol == cpu_to_be16(ETH_P_IP) ? try_ipv4() : PASS;
	/* Also leave a packet that is shorter than its header says, or that has a jumbo payload. */
	} else if ((be32_to_cpu(plan.inner.first) >> 28) != 6 || !plan.inner.payload_length ||
		   skb->len != link_header + length_of(&plan.inner)) {
		return PASS;
	}
	if (plan.outside != IN_IPV6 ||
	    ((roles & (AGENT | DECAPSULATE_CARE_OF)) && plan.inner.next_header == PROTOCOL_IPV6)) {
		if (plan.outside == IN_IPV6)
			plan.outer.ipv6 = plan.inner;
		/* A packet that is too short for an inner IPv6 header may have an inner IPv4 header. */
		if (be16_to_cpu(plan.outer.ipv6.payload_length) < IPV6_HEADER ||
		    !read_header(skb, link_header + outside_length(plan.outside), &plan.inner,
				 IPV6_HEADER))
			return plan.outside == IN_UDP ? try_ipv4() : PASS;
		if (plan.outside != IN_IPV6) {
			/* The payload of UDP may be an IPv4 packet or no packet. Leave a burst of datagrams
			 * to the socket. */
			if ((be32_to_cpu(plan.inner.first) >> 28) == 4)
				return try_ipv4();
			if ((be32_to_cpu(plan.inner.first) >> 28) != 6 ||
			    (skb->gso_size && length_of(&plan.inner) != be16_to_cpu(plan.outer.ipv6.payload_length)))
				return PASS;
			if (outcome != TAKEN)
				return finish(outcome);
		}
		return decapsulate(skb, roles, link_header, &plan, 0);
	}
	if ((roles & (AGENT | DECAPSULATE_CARE_OF)) && plan.inner.next_header == PROTOCOL_IPV4)
		return try_ipv4();
	if (roles & (AGENT | ENCAPSULATE_FROM))
		return encapsulate(skb, roles, link_header, &plan, 0);
	return PASS;
}

inline_always int handle_both(struct __sk_buff *skb, __u32 roles, __u32 link_header)
{
	int verdict = handle(skb, roles, link_header);

	return verdict == TRY_IPV4 ? handle_ipv4(skb, roles, link_header) : verdict;
}

#define PROGRAMS(name, roles) \
	SEC("classifier") int name(struct __sk_buff *skb) { return handle_both(skb, roles, ETH_HLEN); } \
	SEC("classifier") int name##_bare(struct __sk_buff *skb) { return handle_both(skb, roles, 0); }

PROGRAMS(lan, ENCAPSULATE_FROM)
PROGRAMS(uplink, DECAPSULATE_CARE_OF)
PROGRAMS(agent, AGENT)
PROGRAMS(agent_lan, AGENT | ENCAPSULATE_FROM)
PROGRAMS(agent_uplink, AGENT | DECAPSULATE_CARE_OF)

char LICENSE[] SEC("license") = "Dual MIT/GPL";
