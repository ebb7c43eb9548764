/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Flows. struct plan contains what the program knows about a packet. struct flow caches the binding and the
 * kernel's route for the packets of a flow.
 */
#pragma once

#include "outside.h"
#include "packet.h"

#ifndef MAY_LEAVE
#error "expected MAY_LEAVE(ifindex, result): whether a packet may leave there, by bpf_fib_lookup's `result`"
#endif
#ifndef CONTEXT
#error "expected CONTEXT: the type of a packet's context"
#endif
#ifndef KERNEL_ROUTES
#error "expected KERNEL_ROUTES: whether the kernel finds the next hop of packets by a known interface"
#endif

/* What the program knows about a packet that may belong to a tunnel. */
struct plan {
	/* Encapsulation: the outer header to send; decapsulation: the received one, as an IPv6 header */
	union outer outer;
	/* The inner header as received; an IPv4 header has the form of IPv6 with IPv4-mapped addresses */
	struct ipv6 inner;
	struct flow *flow;
	__u32 outside; /* decapsulation: kind of the outer header, enum outside */
	__u32 outer_ports; /* decapsulation: ports of the outer header, as in struct path */
	/* Protocol and ports as the kernel's rules see them, with INSIDE_IPV4 for IPv4. After a fragment
	 * header the protocol is that of the payload, and there are no ports. */
	__u32 protocol;
	__u32 ports;
	__u32 generation; /* value of GENERATION before the first lookup */
	__u32 routes; /* value of ROUTES before the first lookup, at a home agent */
	__u32 now; /* time in ticks before the first lookup */
	/* TCP: flags FIN, SYN and RST of the packet, and TCP_ACK if the packet lacks that flag */
	__u32 flags;
	__be32 first; /* decapsulation: first word of the inner header to send, in the form of IPv6 */
};

inline_always void count(enum outcome outcome)
{
	__u32 key = outcome;
	__u64 *counter = bpf_map_lookup_elem(&COUNTS, &key);

	if (counter)
		(*counter)++;
}

/* Returns the length of the inner packet; `ipv4` says that it is an IPv4 packet. */
inline_always __u32 inner_length(const struct plan *plan, int ipv4)
{
	return (ipv4 ? IPV4_HEADER : IPV6_HEADER) + be16_to_cpu(plan->inner.payload_length);
}

/* Writes the outer header of a packet in an IPv6 tunnel, eight octets at a time, so that later code may also
 * copy it eight octets at a time. */
inline_always void write_outer(void *outer, const struct plan *plan, int ipv4)
{
	const __u8 protocol = ipv4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6;
	/* RFC 6040 4.1, normal mode: copy the ECN field. RFC 2983, uniform model: copy the DSCP. */
	__be32 first = (plan->inner.first & cpu_to_be32(0xfff00000)) | plan->flow->label;
	__u16 length = inner_length(plan, ipv4);

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	*(quad *)outer = first | (__u64)cpu_to_be16(length) << 32 |
			 (__u64)(TUNNEL_HOP_LIMIT << 8 | protocol) << 48;
#else
	*(quad *)outer = (__u64)first << 32 | (__u64)length << 16 | protocol << 8 | TUNNEL_HOP_LIMIT;
#endif
	copy_quads((quad *)outer + 1, &plan->flow->path, 2 * sizeof(struct address));
}

/* Writes the first eight octets of the inner header to send, with the hop limit decremented. `first` is the
 * header's first word. */
inline_always void begin_forwarded(void *to, const struct ipv6 *inner, __be32 first)
{
	const quad all = *(const quad *)inner;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	*(quad *)to = ((all >> 32 << 32) | first) - (1ULL << 56);
#else
	*(quad *)to = ((all & 0xffffffff) | (__u64)first << 32) - 1;
#endif
}

/* Returns the value of `flags` in struct plan for a TCP packet with these flags. */
inline_always __u32 flags_of(__u8 flags)
{
	return (flags ^ TCP_ACK) & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK);
}

/* Returns the present version number of a slot. A cached result of the slot is valid only if it has the same
 * number. */
inline_always __u32 version_of(__u32 slot)
{
	__u32 index = slot & (VERSIONS_MAX - 1);
	__u32 *version = bpf_map_lookup_elem(&VERSIONS, &index);

	return version ? *version : 0;
}

/* Returns the slot plus 1 of the binding with the longest prefix that contains the address; 0 if no prefix
 * contains it. */
verified_once __u32 find_slot(const struct address *address, __u32 end)
{
	struct lengths *lengths = bpf_map_lookup_elem(&LENGTHS, &end);
	struct prefix key;
	__u64 first, last;
	__u32 *number;

	if (!lengths || !address)
		return 0;
	first = high(address);
	last = low(address);
	key.end = end;
	for (__u32 i = 0; i < LENGTHS_MAX; i++) {
		__u32 length;

		if (i >= lengths->count)
			return 0;
		length = lengths->length[i];
		if (length > 128)
			return 0;
		key.length = length;
		if (length >= 64) {
			key.high = first;
			key.low = length == 64 ? 0 : last & (~0ULL << (128 - length));
		} else {
			key.high = length == 0 ? 0 : first & (~0ULL << (64 - length));
			key.low = 0;
		}
		number = bpf_map_lookup_elem(&PREFIXES, &key);
		if (number)
			return *number + 1;
	}
	return 0;
}

/* Returns the binding in the flow's slot, and stores its version in the flow. */
inline_always struct binding *binding_of(struct flow *flow)
{
	__u32 slot = flow->slot, nothing;

	/* Read the version before the binding. A processor that reorders reads keeps the order of a read that
	 * depends on an earlier one. So make the index depend on the version. */
	flow->version = nothing = version_of(slot);
	asm volatile("%0 ^= %0" : "+r"(nothing));
	slot += nothing;
	return bpf_map_lookup_elem(&BINDINGS, &slot);
}

/* Asks the kernel for the route of a packet of this length that arrived at an interface. */
inline_always long ask(CONTEXT *ctx, struct bpf_fib_lookup *route, const struct address *source,
		       const struct address *destination, __be32 first, __u32 protocol, __u32 ports,
		       __u32 length, __u32 ifindex)
{
	__builtin_memset(route, 0, sizeof *route);
	route->family = FAMILY_INET6;
	route->l4_protocol = protocol;
	route->sport = ((const __be16 *)&ports)[0];
	route->dport = ((const __be16 *)&ports)[1];
	route->tot_len = length;
	route->ifindex = ifindex;
	route->flowinfo = first & cpu_to_be32(0x0fffffff);
	__builtin_memcpy(route->ipv6_src, source, 16);
	__builtin_memcpy(route->ipv6_dst, destination, 16);
	return bpf_fib_lookup(ctx, route, sizeof *route, 0);
}

/* Asks for the route of an outer IPv4 packet to the other end of the tunnel. If the path names an interface,
 * the packet leaves by this interface, as from the slow path's socket, which is bound to it. */
inline_always long ask_ipv4(CONTEXT *ctx, struct bpf_fib_lookup *route, const struct path *path,
			    __u8 protocol, __u8 class, __u32 length)
{
	__builtin_memset(route, 0, sizeof *route);
	if (KERNEL_ROUTES && path->interface) {
		/* The kernel looks up the route of each packet when the program sends it, so no route is
		 * needed here. */
		route->family = FAMILY_INET6;
		route->ifindex = path->interface;
		route->mtu_result = 0xffff;
		return BPF_FIB_LKUP_RET_SUCCESS;
	}
	route->family = FAMILY_INET;
	route->l4_protocol = protocol;
	route->sport = ((const __be16 *)&path->ports)[0];
	route->dport = ((const __be16 *)&path->ports)[1];
	route->tot_len = length;
	route->tos = class;
	route->ipv4_src = path->local.word[3];
	route->ipv4_dst = path->remote.word[3];
	route->ifindex = path->interface ? path->interface : TUNNEL_DEVICE;
	return bpf_fib_lookup(ctx, route, sizeof *route, path->interface ? BPF_FIB_LOOKUP_OUTPUT : 0);
}

/* Asks for the route of the flow's inner packets of this length that arrived at an interface. Returns -1 if
 * the next hop of an IPv4 packet is an IPv6 address. */
inline_always long ask_inside(CONTEXT *ctx, struct bpf_fib_lookup *route, const struct flow *flow,
			      __u32 length, __u32 ifindex)
{
	long result;

	if (!(flow->protocol & INSIDE_IPV4))
		return ask(ctx, route, &flow->source, &flow->destination, flow->first, flow->protocol,
			   flow->ports, length, ifindex);
	__builtin_memset(route, 0, sizeof *route);
	route->family = FAMILY_INET;
	route->l4_protocol = flow->protocol;
	route->sport = ((const __be16 *)&flow->ports)[0];
	route->dport = ((const __be16 *)&flow->ports)[1];
	route->tot_len = length;
	route->ifindex = ifindex;
	route->tos = be32_to_cpu(flow->first) >> 20;
	route->ipv4_src = flow->source.word[3];
	route->ipv4_dst = flow->destination.word[3];
	result = bpf_fib_lookup(ctx, route, sizeof *route, 0);
	return result == BPF_FIB_LKUP_RET_SUCCESS && route->family != FAMILY_INET ? -1 : result;
}

inline_always int is_forwarded(long result)
{
	return result == BPF_FIB_LKUP_RET_SUCCESS || result == BPF_FIB_LKUP_RET_NO_NEIGH;
}

/* Returns whether the kernel would route a packet to the source of the flow's IPv4 packets back to the
 * interface of arrival. The kernel's reverse path filter (RFC 3704) may refuse other sources, and refuses the
 * machine's own addresses. IPv6 has no such filter. */
inline_always int is_from_there(CONTEXT *ctx, struct bpf_fib_lookup *route, const struct flow *flow)
{
	__builtin_memset(route, 0, sizeof *route);
	route->family = FAMILY_INET;
	route->ifindex = flow->arrival;
	route->tos = be32_to_cpu(flow->first) >> 20;
	route->ipv4_src = flow->destination.word[3];
	route->ipv4_dst = flow->source.word[3];
	return is_forwarded(bpf_fib_lookup(ctx, route, sizeof *route, 0)) && route->ifindex == flow->arrival;
}

/* Returns the cache entry for the plan's packet. */
inline_always struct flow *place_of(const struct plan *plan)
{
	const struct ipv6 *inner = &plan->inner;
	__u64 hash = low(&inner->source) ^ (low(&inner->destination) << 1) ^ high(&inner->source) ^
		     (high(&inner->destination) >> 1) ^ (inner->first & ~ECN) ^ ((__u64)plan->ports << 32) ^
		     plan->protocol;
	__u32 index;

	hash *= 0x9e3779b97f4a7c15ULL;
	index = (hash >> 40) & (FLOWS_MAX - 1);
	return bpf_map_lookup_elem(&FLOWS, &index);
}

/* Returns whether the cache entry belongs to the flow of the plan's packet. */
inline_always int is_remembered(const struct plan *plan, __u32 arrival)
{
	const struct flow *flow = plan->flow;

	return same(&flow->source, &plan->inner.source) && same(&flow->destination, &plan->inner.destination) &&
	       flow->first == (plan->inner.first & ~ECN) && flow->ports == plan->ports &&
	       flow->protocol == plan->protocol && flow->arrival == arrival &&
	       flow->generation == plan->generation && plan->now - flow->asked < FLOW_TICKS;
}

/* Returns whether the binding of a cached flow is unchanged. */
inline_always int is_current(const struct flow *flow)
{
	return version_of(flow->slot) == flow->version;
}

/* Returns the index of the packet counters of a binding's path. */
inline_always __u32 counter(__u32 slot, __u32 path)
{
	return slot * COUNTERS + (COUNTERS > 1 ? path : 0);
}

/* Returns this CPU's flow for lookups, with the values that the plan's packet shares with the packets of its
 * flow. All other values of the flow are still those of an earlier packet. */
inline_always struct flow *begin_flow(const struct plan *plan, __u32 arrival)
{
	__u32 zero = 0;
	struct flow *flow = bpf_map_lookup_elem(&SCRATCH, &zero);

	if (!flow)
		return 0;
	flow->source = plan->inner.source;
	flow->destination = plan->inner.destination;
	flow->first = plan->inner.first & ~ECN;
	flow->ports = plan->ports;
	flow->protocol = plan->protocol;
	flow->next_header = plan->inner.next_header;
	flow->arrival = arrival;
	flow->asked = plan->now;
	return flow;
}

/* Stores the kernel's route in the flow. `generation` is the value of GENERATION before the first lookup. */
inline_always void remember(struct flow *flow, const struct bpf_fib_lookup *route, long result,
			    __u32 generation)
{
	struct neighbour neighbour = {};
	__u64 now = bpf_ktime_get_coarse_ns();

	/* Without a neighbour entry the kernel reports no MTU, and its answer will change soon. So do not
	 * cache the answer. */
	flow->generation = result == BPF_FIB_LKUP_RET_SUCCESS ? generation : 0;
	flow->departure = route->ifindex;
	flow->may_leave = MAY_LEAVE(route->ifindex, result);
	/* The filter is UNFILTERED (0) or TRACKED (1) here. This expression needs no branch. */
	flow->stops = TCP_SYN | (-flow->filter & (TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK));
	if (route->family == FAMILY_INET)
		map(&flow->next_hop, route->ipv4_dst);
	else
		__builtin_memcpy(&flow->next_hop, route->ipv6_dst, 16);
	if (result == BPF_FIB_LKUP_RET_SUCCESS) {
		copy_address(flow->link.header, route->dmac);
		copy_address(flow->link.header + ETH_ALEN, route->smac);
		*(half *)(flow->link.header + 2 * ETH_ALEN) =
			cpu_to_be16(route->family == FAMILY_INET ? ETH_P_IP : ETH_P_IPV6);
		neighbour.address = flow->next_hop;
		neighbour.ifindex = flow->departure;
		bpf_map_update_elem(&NEIGHBOURS, &neighbour, &now, BPF_ANY);
	}
}
