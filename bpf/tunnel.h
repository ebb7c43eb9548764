/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the tc and the XDP programs of the fast path have in common: the decisions.
 *
 * The fast path is an accelerator of the slow path (crates/station/src/forwarding). It takes the common packets
 * of a tunnel and does with them just what the kernel and the slow path together would do; whatever is not common
 * it leaves alone, and the kernel leads it to the slow path as if there were no fast path. So nothing here drops a
 * packet or answers one, and everything here may fail without harm. Left to the slow path are in particular: hop
 * limits that run out, packets too large for the path (Packet Too Big, outer fragments), TCP SYN (the slow path
 * clamps the maximum segment size), extension headers, tunnels in tunnels, copies into several tunnels, congestion marks that cannot be passed
 * on (RFC 6040 4.2), packets that are not the binding's, and what the kernel would not route into the tunnel.
 *
 * Routing is the kernel's. bpf_fib_lookup asks its tables and rules as the slow path's packets would meet them: an
 * inner packet must be routed to the tunnel device, an outer packet and a decapsulated one are routed as coming from
 * there. An operator's own rules for these hold on both paths; of outer packets that arrive the kernel is not asked.
 * Neither netfilter nor IPsec policies (xfrm) see packets of the fast path.
 *
 * The maps are in state.h, headers outside in outside.h, what distributes packets among several tunnels in choice.h; a home
 * agent with many bindings remembers more than flows: ways.h.
 *
 * The maps are written by carnet only, one value for a change: a packet sees a binding before a handover or after
 * it, nothing between.
 */
#pragma once

#include "state.h"

#ifndef MAY_LEAVE
#error "expected MAY_LEAVE(ifindex, result): whether a packet may be sent there, `result` being bpf_fib_lookup's"
#endif
#ifndef KERNEL_ROUTES
#error "expected KERNEL_ROUTES: whether the kernel looks for the next hop of a packet that leaves by a known interface"
#endif

inline_always __u64 high(const struct address *address)
{
	return be64_to_cpu(*(const __u64 *)&address->word[0]);
}

inline_always __u64 low(const struct address *address)
{
	return be64_to_cpu(*(const __u64 *)&address->word[2]);
}

inline_always int same(const struct address *a, const struct address *b)
{
	return high(a) == high(b) && low(a) == low(b);
}

/* Whether the first four octets are ports, or something that the kernel's rules take for them. */
inline_always int has_ports(__u8 next_header)
{
	return next_header == PROTOCOL_TCP || next_header == PROTOCOL_UDP || next_header == PROTOCOL_DCCP ||
	       next_header == PROTOCOL_ESP || next_header == PROTOCOL_SCTP || next_header == PROTOCOL_UDP_LITE;
}

#include "choice.h"
#include "outside.h"

/* What is known of a packet that looks like one of ours. */
struct plan {
	union outer outer; /* encapsulation: as it will be; decapsulation: as IPv6 */
	struct ipv6 inner; /* as it came in */
	struct flow *flow;
	__u32 outside; /* decapsulation: enum outside */
	__u32 outer_ports; /* decapsulation: as in struct path */
	/* As the kernel's rules see them: the protocol is that behind a fragment header, and then there are no ports. */
	__u32 protocol;
	__u32 ports;
	__u32 generation; /* before anything was asked */
	__u32 routes; /* likewise, at a home agent */
	__u32 version; /* see VERSIONS: before the binding was looked up */
	__u32 now; /* likewise, in ticks */
	__u32 syn; /* whether it opens a TCP connection */
	__u32 is_agents; /* encapsulation: at which end of the tunnel */
	__u32 chosen; /* encapsulation: which of the binding's paths */
	__u32 has_way; /* whether the flow holds for other packets as well: see ways.h */
	__be32 first; /* decapsulation: of the inner header as it leaves */
};

inline_always void count(enum outcome outcome)
{
	__u32 key = outcome;
	__u64 *counter = bpf_map_lookup_elem(&COUNTS, &key);

	if (counter)
		(*counter)++;
}

/* Writes the outer header of a packet that goes into a tunnel in IPv6, eight octets at a time: it may be copied so. */
inline_always void write_outer(void *outer, const struct plan *plan)
{
	/* RFC 6040 4.1, normal mode: the ECN field is copied; so is the DSCP (RFC 2983 uniform model). */
	__be32 first = (plan->inner.first & cpu_to_be32(0xfff00000)) | plan->flow->label;
	__u16 length = IPV6_HEADER + be16_to_cpu(plan->inner.payload_length);

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	*(quad *)outer = first | (__u64)cpu_to_be16(length) << 32 |
			 (__u64)(TUNNEL_HOP_LIMIT << 8 | PROTOCOL_IPV6) << 48;
#else
	*(quad *)outer = (__u64)first << 32 | (__u64)length << 16 | PROTOCOL_IPV6 << 8 | TUNNEL_HOP_LIMIT;
#endif
	copy_quads((quad *)outer + 1, &plan->flow->path, 2 * sizeof(struct address));
}

/* Writes the first eight octets of an inner header as it leaves, a hop further: `first` is its first word then. */
inline_always void begin_forwarded(void *to, const struct ipv6 *inner, __be32 first)
{
	const quad all = *(const quad *)inner;

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	*(quad *)to = ((all >> 32 << 32) | first) - (1ULL << 56);
#else
	*(quad *)to = ((all & 0xffffffff) | (__u64)first << 32) - 1;
#endif
}

/* Multicast, link-local, or reserved: of ::/8 without the prefixes of NAT64 (RFC 6052 2.1, RFC 8215). */
inline_always int is_special(const struct address *address)
{
	__u64 first = high(address);

	if ((first >> 56) == 0xff || (first >> 54) == 0x3fa)
		return 1;
	if (first >> 56)
		return 0;
	return (first != 0x0064ff9b00000000ULL || low(address) >> 32) && first >> 16 != 0x0064ff9b0001ULL;
}

/* The version that what is remembered of a slot must have. */
inline_always __u32 version_of(__u32 slot)
{
	__u32 index = slot & (VERSIONS_MAX - 1);
	__u32 *version = bpf_map_lookup_elem(&VERSIONS, &index);

	return version ? *version : 0;
}

/* The binding of the longest prefix that holds the address. Returns 0 where there is none. */
static __attribute__((noinline)) struct binding *binding_of(const struct address *address, __u32 end, __u32 *version)
{
	struct lengths *lengths = bpf_map_lookup_elem(&LENGTHS, &end);
	struct prefix key;
	__u64 first, last;
	__u32 *number;

	if (!lengths)
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
		if (number) {
			__u32 slot = *number, nothing;

			/* What is read of the binding is not older than its version: processors that read in any
			 * order keep to that where the one needs the other. */
			*version = nothing = version_of(slot);
			asm volatile("%0 ^= %0" : "+r"(nothing));
			slot += nothing;
			return bpf_map_lookup_elem(&BINDINGS, &slot);
		}
	}
	return 0;
}

/* The outer flow label: the same keyed hash as the slow path's (RFC 6438 3), which checks it in quoted packets. */
inline_always __u32 flow_label(const struct ipv6 *inner)
{
	const __u64 key = FLOW_LABEL_KEY;
	__u64 words[5] = { low(&inner->source), high(&inner->source), low(&inner->destination),
			   high(&inner->destination), be32_to_cpu(inner->first) & 0xfffff };
	__u64 hash = key;
	__u32 label;

#pragma unroll
	for (int i = 0; i < 5; i++) {
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 29;
	}
	/* The high half of the label. */
	hash *= 0x9e3779b97f4a7c15ULL;
	hash ^= hash >> 29;
	hash = (hash + ((key << 32) | (key >> 32))) * 0xbf58476d1ce4e5b9ULL;
	label = hash >> 44;
	return label ? label : 1;
}

/* Whether the slow path has to look at what is behind the IPv6 header. */
inline_always int has_extension(__u8 next_header)
{
	return next_header == PROTOCOL_HOP_BY_HOP || next_header == PROTOCOL_ROUTING ||
	       next_header == PROTOCOL_DESTINATION_OPTIONS || next_header == PROTOCOL_MOBILITY;
}

/* Whether a Fragment header stands before the first fragment of a TCP segment, which may be a SYN. */
inline_always int is_first_of_tcp(const __u8 *fragment)
{
	return fragment[0] == PROTOCOL_TCP && !fragment[2] && !(fragment[3] & 0xf8);
}

inline_always __u32 length_of(const struct ipv6 *header)
{
	return IPV6_HEADER + be16_to_cpu(header->payload_length);
}

/* Asks the kernel for the way of a packet of this length that comes from an interface. */
inline_always long ask(void *ctx, struct bpf_fib_lookup *route, const struct ipv6 *header, __u32 protocol,
		       __u32 ports, __u32 length, __u32 ifindex)
{
	__builtin_memset(route, 0, sizeof *route);
	route->family = FAMILY_INET6;
	route->l4_protocol = protocol;
	route->sport = ((const __be16 *)&ports)[0];
	route->dport = ((const __be16 *)&ports)[1];
	route->tot_len = length;
	route->ifindex = ifindex;
	route->flowinfo = header->first & cpu_to_be32(0x0fffffff);
	__builtin_memcpy(route->ipv6_src, &header->source, 16);
	__builtin_memcpy(route->ipv6_dst, &header->destination, 16);
	return bpf_fib_lookup(ctx, route, sizeof *route, 0);
}

/* Where a packet to the other end goes that is put into IPv4. One with an interface of its own leaves there, as by the
 * slow path's socket, which is bound to it. */
inline_always long ask_ipv4(void *ctx, struct bpf_fib_lookup *route, const struct path *path, __u8 protocol,
			    __u8 class, __u32 length)
{
	__builtin_memset(route, 0, sizeof *route);
	if (KERNEL_ROUTES && path->interface) {
		/* Asked for each packet when it is sent. */
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

inline_always int is_forwarded(long result)
{
	return result == BPF_FIB_LKUP_RET_SUCCESS || result == BPF_FIB_LKUP_RET_NO_NEIGH;
}

/* The place where a flow is remembered, if it is. */
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

/* Whether the plan's packet belongs to the flow that is remembered in its place. */
inline_always int is_remembered(const struct plan *plan, __u32 arrival)
{
	const struct flow *flow = plan->flow;

	return same(&flow->source, &plan->inner.source) && same(&flow->destination, &plan->inner.destination) &&
	       flow->first == (plan->inner.first & ~ECN) && flow->ports == plan->ports &&
	       flow->protocol == plan->protocol && flow->arrival == arrival &&
	       flow->generation == plan->generation && plan->now - flow->asked < FLOW_TICKS;
}

/* Whether the binding of a remembered flow is what it was. */
inline_always int is_current(const struct flow *flow)
{
	return version_of(flow->slot) == flow->version;
}

/* Where the packets of a binding's path are counted. */
inline_always __u32 counter(__u32 slot, __u32 path)
{
	return slot * COUNTERS + (COUNTERS > 1 ? path : 0);
}

/* Notes what the kernel and the binding said. */
inline_always void remember(struct plan *plan, const struct binding *binding, __u32 path,
			    const struct bpf_fib_lookup *route, long result, __u32 arrival)
{
	struct flow *flow = plan->flow;
	struct neighbour neighbour = {};
	__u64 now = bpf_ktime_get_coarse_ns();

	flow->source = plan->inner.source;
	flow->destination = plan->inner.destination;
	flow->first = plan->inner.first & ~ECN;
	flow->ports = plan->ports;
	flow->protocol = plan->protocol;
	flow->arrival = arrival;
	/* Without a neighbour the kernel does not tell the MTU, and will soon have more to say. */
	flow->generation = result == BPF_FIB_LKUP_RET_SUCCESS ? plan->generation : 0;
	flow->asked = plan->now;
	flow->slot = binding->slot;
	flow->version = plan->version;
	flow->counter = counter(binding->slot, path);
	flow->departure = route->ifindex;
	flow->may_leave = MAY_LEAVE(route->ifindex, result);
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

#include "ways.h"

/* Whose a packet is that came in from a mobile network or for one. */
inline_always struct binding *sender(__u32 roles, struct plan *plan)
{
	const struct ipv6 *inner = &plan->inner;
	struct binding *binding = 0;
	__u32 other;

	if (roles & AGENT)
		binding = binding_of(&inner->destination, HOME_AGENT, &plan->version);
	plan->is_agents = binding != 0;
	if (!binding && (roles & ENCAPSULATE_FROM)) {
		binding = binding_of(&inner->source, MOBILE_ROUTER, &plan->version);
		/* From one of the mobile network's links to another. */
		if (binding && binding_of(&inner->destination, MOBILE_ROUTER, &other))
			return 0;
	}
	return binding;
}

/* Looks for the way of such a packet by the path that was chosen. */
static __attribute__((noinline)) enum outcome find_encapsulation(void *ctx, struct plan *plan,
								 const struct binding *binding, __u32 length,
								 __u32 ifindex)
{
	const struct ipv6 *inner = &plan->inner;
	struct ipv6 *outer = &plan->outer.ipv6;
	struct bpf_fib_lookup route;
	const struct path *path;
	__u32 chosen = plan->chosen & (PATHS - 1), overhead;
	enum outside outside;
	__be32 label = 0;
	long result;

	if (is_special(&inner->destination) || is_special(&inner->source))
		return PASS_SCOPE;
	/* Tunnels in tunnels are counted, and a fragment of our own does not show how deep it is (RFC 2473 4.1). */
	if (has_extension(inner->next_header) || inner->next_header == PROTOCOL_IPV6)
		return PASS_EXTENSION;
	if (!binding->transmit)
		return PASS_NO_PATH;
	if (plan->chosen >= binding->transmit)
		return PASS_POLICY;
	path = &binding->paths[chosen];
	if (same(&inner->source, &path->local))
		return PASS_EXTENSION;

	/* Would the kernel route it into the tunnel? */
	result = ask(ctx, &route, inner, plan->protocol, plan->ports, 0, ifindex);
	if (!is_forwarded(result) || route.ifindex != TUNNEL_DEVICE)
		return PASS_ROUTE;
	outside = outside_of(path);
	overhead = outside_length(outside);
	if (outside == IN_IPV6) {
		label = cpu_to_be32(flow_label(inner));
		outer->first = (inner->first & cpu_to_be32(0xfff00000)) | label;
		outer->next_header = PROTOCOL_IPV6;
		outer->source = path->local;
		outer->destination = path->remote;
		result = ask(ctx, &route, outer, PROTOCOL_IPV6, 0, length + overhead, TUNNEL_DEVICE);
	} else {
		result = ask_ipv4(ctx, &route, path, outside == IN_UDP ? PROTOCOL_UDP : PROTOCOL_IPV6,
				  be32_to_cpu(inner->first) >> 20, length + overhead);
	}
	if (result == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return PASS_TOO_BIG;
	if (!is_forwarded(result) || route.ifindex == TUNNEL_DEVICE)
		return PASS_ROUTE;
	remember(plan, binding, chosen, &route, result, ifindex);
	if (SEEKS && !plan->is_agents)
		bpf_map_update_elem(&SOUGHT, &plan->flow->destination, &plan->flow->slot, BPF_ANY);
	plan->flow->label = label;
	plan->flow->outside = outside;
	plan->flow->path = *path;
	plan->flow->mtu = route.mtu_result - overhead;
	if (plan->flow->mtu > binding->mtu[chosen])
		plan->flow->mtu = binding->mtu[chosen];
	plan->has_way = plan->is_agents && outside == IN_IPV6 && !binding->rules && plan->flow->generation &&
			plan->flow->may_leave;
	return TAKEN;
}

/* Decides about a packet that came in from a mobile network or for one. `plan->inner` and what look_inside() tells
 * are filled in; `length` is that of the longest packet that leaves, `ifindex` where it came in. An outer header of IPv4 is
 * in the plan then, one of IPv6 is write_outer()'s. */
inline_always enum outcome plan_encapsulation(void *ctx, __u32 roles, struct plan *plan, __u32 length,
					      __u32 ifindex)
{
	plan->generation = GENERATION;
	plan->routes = roles & AGENT ? ROUTES : 0;
	plan->now = bpf_jiffies64();
	if (!(roles & AGENT) || !take_way(plan, ifindex)) {
		plan->flow = place_of(plan);
		if (!plan->flow)
			return NOT_OURS;
		if (!is_remembered(plan, ifindex) || !is_current(plan->flow)) {
			const struct binding *binding = sender(roles, plan);
			enum outcome outcome;

			if (!binding)
				return NOT_OURS;
			/* Not in there: the stack has room for so many calls. */
			plan->chosen = 0;
			if (binding->rules)
				plan->chosen = choose(&plan->inner, plan->protocol, plan->ports, binding->rules,
						      plan->is_agents);
			outcome = find_encapsulation(ctx, plan, binding, length, ifindex);
			if (outcome != TAKEN)
				return outcome;
			if ((roles & AGENT) && plan->has_way)
				keep_way(&plan->inner.destination, plan, ifindex, 1);
		}
	}
	if (!plan->flow->may_leave)
		return PASS_NEIGHBOUR;
	if (plan->inner.hop_limit <= 1)
		return PASS_HOP_LIMIT;
	if (plan->syn)
		return PASS_SYN;
	if (length > plan->flow->mtu || length_of(&plan->inner) > 0xffff)
		return PASS_TOO_BIG;
	if (plan->flow->outside != IN_IPV6) {
		if (length_of(&plan->inner) > 0xffff - IPV4_HEADER - UDP_HEADER)
			return PASS_TOO_BIG;
		write_outside(&plan->outer, plan->flow->outside, &plan->flow->path,
			      be32_to_cpu(plan->inner.first) >> 20, length_of(&plan->inner));
		return TAKEN;
	}
	return TAKEN;
}

/* The path of the binding that a packet came by; PATHS where none is accepted from there (RFC 6275 10.4.5). */
inline_always __u32 path_of(const struct binding *binding, const struct plan *plan, __u32 ifindex)
{
	const struct ipv6 *outer = &plan->outer.ipv6;

#pragma unroll
	for (__u32 i = 0; i < PATHS; i++) {
		const struct path *path = &binding->paths[i];

		if (i < binding->accepted && same(&path->local, &outer->destination) &&
		    same(&path->remote, &outer->source) && path->ports == plan->outer_ports &&
		    (!path->interface || path->interface == ifindex))
			return i;
	}
	return PATHS;
}

/* Whose packets come out of a tunnel, and whether at the home agent's end. 0 where the inner packet belongs to nobody. */
inline_always struct binding *receiver(__u32 roles, struct plan *plan, int *is_agents)
{
	const struct ipv6 *inner = &plan->inner;
	__u32 other;
	struct binding *binding = 0;

	if (roles & AGENT)
		binding = binding_of(&inner->source, HOME_AGENT, &plan->version);
	*is_agents = binding != 0;
	if (!binding && (roles & DECAPSULATE_CARE_OF)) {
		binding = binding_of(&inner->destination, MOBILE_ROUTER, &plan->version);
		/* Nobody outside sends from an address inside. */
		if (binding && binding_of(&inner->source, MOBILE_ROUTER, &other))
			return 0;
	}
	return binding;
}

/* Looks for the binding and the way of a packet that came in a tunnel. */
static __attribute__((noinline)) enum outcome find_decapsulation(void *ctx, __u32 roles, struct plan *plan,
								 __u32 length, __u32 ifindex)
{
	const struct ipv6 *inner = &plan->inner;
	int is_agents = 0;
	struct binding *binding = receiver(roles, plan, &is_agents);
	struct bpf_fib_lookup route;
	__u32 path;
	long result;

	if (!binding && (roles & DECAPSULATE_CARE_OF) && binding_of(&inner->destination, MOBILE_ROUTER, &plan->version))
		return PASS_INNER_SOURCE;
	if (!binding)
		return NOT_OURS;
	path = path_of(binding, plan, ifindex);
	if (path >= PATHS)
		return PASS_OUTER_SOURCE;
	if ((be32_to_cpu(inner->first) >> 28) != 6)
		return PASS_MALFORMED;
	if (is_special(&inner->source) || is_special(&inner->destination))
		return PASS_SCOPE;
	if (has_extension(inner->next_header))
		return PASS_EXTENSION;
	result = ask(ctx, &route, inner, plan->protocol, plan->ports, length, TUNNEL_DEVICE);
	if (result == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return PASS_TOO_BIG;
	if (!is_forwarded(result) || route.ifindex == TUNNEL_DEVICE)
		return PASS_ROUTE;
	remember(plan, binding, path, &route, result, ifindex | IN_TUNNEL);
	plan->flow->path.local = plan->outer.ipv6.destination;
	plan->flow->path.remote = plan->outer.ipv6.source;
	plan->flow->path.ports = plan->outer_ports;
	plan->flow->mtu = route.mtu_result;
	plan->has_way = is_agents && plan->outside == IN_IPV6 && !binding->rules && plan->flow->generation;
	if (is_agents && plan->flow->generation)
		keep_destination(plan);
	return TAKEN;
}

/* Decides about a packet with an IPv6 header in an outer one. `plan->outer`, `inner` and what look_inside() tells are
 * filled in; `length` is that of the longest inner packet, `ifindex` where it came in. */
inline_always enum outcome plan_decapsulation(void *ctx, __u32 roles, struct plan *plan, __u32 length,
					      __u32 ifindex)
{
	const struct ipv6 *outer = &plan->outer.ipv6;
	const struct ipv6 *inner = &plan->inner;
	__u32 inner_ecn, outer_ecn;

	plan->generation = GENERATION;
	plan->routes = roles & AGENT ? ROUTES : 0;
	plan->now = bpf_jiffies64();
	if (!(roles & AGENT) || !take_destination(plan)) {
		plan->flow = place_of(plan);
		if (!plan->flow)
			return NOT_OURS;
		if (!is_remembered(plan, ifindex | IN_TUNNEL) || !is_current(plan->flow) ||
		    !same(&plan->flow->path.local, &outer->destination) ||
		    !same(&plan->flow->path.remote, &outer->source) ||
		    plan->flow->path.ports != plan->outer_ports) {
			enum outcome outcome = find_decapsulation(ctx, roles, plan, length, ifindex);

			if (outcome != TAKEN)
				return outcome;
			if ((roles & AGENT) && plan->has_way)
				keep_way(&inner->source, plan, 0, 0);
		}
	}
	if (!plan->flow->may_leave)
		return PASS_NEIGHBOUR;
	/* What follows the inner packet inside the outer one is the slow path's to cut off. */
	if (length_of(inner) != be16_to_cpu(outer->payload_length))
		return PASS_MALFORMED;
	if (inner->hop_limit <= 1)
		return PASS_HOP_LIMIT;
	if (plan->syn)
		return PASS_SYN;
	if (length > plan->flow->mtu)
		return PASS_TOO_BIG;

	/* RFC 6040 figure 4. ECN is bits 20 and 21 of the first word: 1 is ECT(1), 2 ECT(0), 3 CE. */
	inner_ecn = (be32_to_cpu(inner->first) >> 20) & 3;
	outer_ecn = (be32_to_cpu(outer->first) >> 20) & 3;
	if (inner_ecn == 0 && outer_ecn == 3)
		return PASS_CONGESTION;
	plan->first = inner->first;
	if (inner_ecn != 0 && (outer_ecn == 3 || (outer_ecn == 1 && inner_ecn == 2)))
		plan->first = (inner->first & ~ECN) | cpu_to_be32(outer_ecn << 20);
	return TAKEN;
}

/* Where this CPU counts the packets of the plan's flow. */
inline_always struct traffic *traffic_of(const struct plan *plan)
{
	__u32 counter = bpf_get_smp_processor_id() * TRAFFIC_MAX + plan->flow->counter;

	return bpf_map_lookup_elem(&TRAFFIC, &counter);
}

inline_always void count_encapsulated(const struct plan *plan, __u32 packets, __u32 octets)
{
	struct traffic *traffic = traffic_of(plan);

	if (traffic) {
		traffic->encapsulated_packets += packets;
		traffic->encapsulated_octets += octets;
	}
}

inline_always void count_decapsulated(const struct plan *plan, __u32 packets, __u32 octets)
{
	struct traffic *traffic = traffic_of(plan);

	if (traffic) {
		traffic->decapsulated_packets += packets;
		traffic->decapsulated_octets += octets;
	}
}
