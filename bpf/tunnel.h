/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The decisions of the fast path, common to its tc and XDP programs.
 *
 * The fast path accelerates the slow path (crates/nemo/src/forwarding). It handles the common packets of a
 * tunnel exactly like the kernel and the slow path together. It leaves all other packets alone, and the
 * kernel passes them to the slow path as if there were no fast path. So the programs drop no packet and
 * answer none, and every function may fail without harm. The slow path handles in particular:
 *
 * * expired hop limits, and packets too large for the path (Packet Too Big, outer fragments);
 * * TCP SYNs (it clamps the maximum segment size), extension headers, and tunnels in tunnels;
 * * copies into several tunnels, and congestion marks that the inner packet cannot carry (RFC 6040 4.2);
 * * packets of another binding, and packets that the kernel would not route into the tunnel;
 * * packets at which rules of the packet filter look, unless their connection is tracked (tracked.h);
 * * IPv4 packets with options, fragments, and IPv4 packets that may need the home agent's NAT.
 *
 * The kernel decides the routes. bpf_fib_lookup uses its tables and rules as for the slow path's packets: an
 * inner packet must be routed to the tunnel device, and outer and decapsulated packets are routed as if they
 * came from there. An operator's own rules for these packets apply on both paths. For arriving outer packets
 * the kernel is not asked. Neither netfilter nor IPsec policies (xfrm) see packets of the fast path.
 *
 * Each header includes only headers below it: helpers.h, state.h (maps), packet.h (addresses and IPv6
 * headers), choice.h (distribution among several tunnels) and outside.h (outer headers), flow.h, tracked.h
 * (packet filter) and ways.h (cached next hops), tunnel.h.
 *
 * Only carnet writes the maps, with one value for each change. So a packet sees the binding before a handover
 * or after it, and no state between.
 */
#pragma once

#include "choice.h"
#include "tracked.h"
#include "ways.h"

/* Returns the binding into whose tunnel a packet has to go; 0 without one. */
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
		/* Leave a packet between two links of the mobile network to the kernel. */
		if (binding && binding_of(&inner->destination, MOBILE_ROUTER, &other))
			return 0;
	}
	return binding;
}

/* Returns whether an inner packet has an address that the slow path refuses. */
inline_always int is_out_of_scope(const struct plan *plan)
{
	const struct ipv6 *inner = &plan->inner;

	if (plan->protocol & INSIDE_IPV4)
		return is_special_ipv4(&inner->source) || is_special_ipv4(&inner->destination);
	return is_special(&inner->source) || is_special(&inner->destination);
}

/* Returns whether the slow path must handle an inner packet because of the header after its IP header. */
inline_always int is_unusual(const struct plan *plan)
{
	__u8 next_header = plan->inner.next_header;

	return has_extension(next_header) ||
	       ((plan->protocol & INSIDE_IPV4) && (next_header == PROTOCOL_IPV4 || next_header == PROTOCOL_IPV6 ||
						   next_header == PROTOCOL_FRAGMENT));
}

/* Returns whether an IPv4 packet at the home agent may need NAT: one address is private, and the other is
 * not. The operator may have rules of NAT that carnet does not know. The kernel must see both directions. */
inline_always int may_need_nat(const struct plan *plan)
{
	const struct ipv6 *inner = &plan->inner;

	return (plan->protocol & INSIDE_IPV4) && is_private(&inner->source) != is_private(&inner->destination);
}

/* Finds the route of a packet that the binding sends on the chosen path. */
static __attribute__((noinline)) enum outcome find_encapsulation(void *ctx, struct plan *plan,
								 const struct binding *binding, __u32 length,
								 __u32 ifindex)
{
	const struct ipv6 *inner = &plan->inner;
	struct ipv6 *outer = &plan->outer.ipv6;
	struct bpf_fib_lookup route;
	const struct path *path;
	__u32 chosen = plan->chosen & (PATHS - 1), overhead;
	__u8 protocol = plan->protocol & INSIDE_IPV4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6;
	enum outside outside;
	__be32 label = 0;
	long result;

	if (find_filter(plan, ifindex) == UNTRACKABLE || (plan->is_agents && may_need_nat(plan)))
		return PASS_FILTER;
	if (is_out_of_scope(plan))
		return PASS_SCOPE;
	/* The slow path limits tunnels inside tunnels. An outer fragment that this station has sent would
	 * hide the number of tunnels (RFC 2473 4.1). */
	if (is_unusual(plan) || inner->next_header == PROTOCOL_IPV6)
		return PASS_EXTENSION;
	if (!binding->transmit)
		return PASS_NO_PATH;
	if (plan->chosen >= binding->transmit)
		return PASS_POLICY;
	path = &binding->paths[chosen];
	if (same(&inner->source, &path->local))
		return PASS_EXTENSION;

	/* Check that the kernel would route the packet into the tunnel. */
	result = ask_inside(ctx, &route, plan, 0, ifindex);
	if (!is_forwarded(result) || route.ifindex != TUNNEL_DEVICE)
		return PASS_ROUTE;
	if ((plan->protocol & INSIDE_IPV4) && !is_from_there(ctx, &route, plan, ifindex))
		return PASS_ROUTE;
	outside = outside_of(path);
	overhead = outside_length(outside);
	if (outside == IN_IPV6) {
		label = cpu_to_be32(flow_label(inner));
		outer->first = (inner->first & cpu_to_be32(0xfff00000)) | label;
		outer->next_header = protocol;
		outer->source = path->local;
		outer->destination = path->remote;
		result = ask(ctx, &route, outer, protocol, 0, length + overhead, TUNNEL_DEVICE);
	} else {
		result = ask_ipv4(ctx, &route, path, outside == IN_UDP ? PROTOCOL_UDP : protocol,
				  be32_to_cpu(inner->first) >> 20, length + overhead);
	}
	if (result == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return PASS_TOO_BIG;
	if (!is_forwarded(result) || route.ifindex == TUNNEL_DEVICE)
		return PASS_ROUTE;
	remember(plan, binding, chosen, &route, result, ifindex);
	if (SEEKS && !plan->is_agents && !(plan->protocol & INSIDE_IPV4))
		bpf_map_update_elem(&SOUGHT, &plan->flow->destination, &plan->flow->slot, BPF_ANY);
	plan->flow->label = label;
	plan->flow->outside = outside;
	plan->flow->path = *path;
	plan->flow->mtu = route.mtu_result - overhead;
	if (plan->flow->mtu > binding->mtu[chosen])
		plan->flow->mtu = binding->mtu[chosen];
	plan->has_way = plan->is_agents && outside == IN_IPV6 && !binding->rules && plan->flow->generation &&
			plan->flow->may_leave && !(plan->protocol & INSIDE_IPV4) &&
			plan->flow->filter == UNFILTERED;
	return TAKEN;
}

/* Decides about a packet from or to a mobile network. The caller has set `plan->inner` and the results of
 * look_inside(). `length` is that of the longest sent packet, `ifindex` the interface of arrival. `ipv4` says
 * that the inner packet is an IPv4 packet. Afterwards the plan contains the outer header if it is IPv4;
 * write_outer() writes an outer IPv6 header. */
inline_always enum outcome plan_encapsulation(void *ctx, __u32 roles, struct plan *plan, __u32 length,
					      __u32 ifindex, const int ipv4)
{
	plan->generation = GENERATION;
	plan->routes = roles & AGENT ? ROUTES : 0;
	plan->now = bpf_jiffies64();
	if (ipv4 || !(roles & AGENT) || !take_way(plan, ifindex)) {
		plan->flow = place_of(plan);
		if (!plan->flow)
			return NOT_OURS;
		if (!is_remembered(plan, ifindex) || !is_current(plan->flow)) {
			const struct binding *binding = sender(roles, plan);
			enum outcome outcome;

			if (!binding)
				return NOT_OURS;
			/* Choose the path here and not inside find_encapsulation(), because the stack allows
			 * only a limited depth of calls. */
			plan->chosen = 0;
			/* The rules' selectors of IPv6 and IPv4 differ, so the slow path distributes IPv4. */
			if (ipv4 && binding->rules)
				plan->chosen = PATHS;
			else if (binding->rules)
				plan->chosen = choose(&plan->inner, plan->protocol, plan->ports, binding->rules,
						      plan->is_agents);
			outcome = find_encapsulation(ctx, plan, binding, length, ifindex);
			if (outcome != TAKEN)
				return outcome;
			if (!is_accepted(ctx, plan, ifindex, TUNNEL_DEVICE)) {
				plan->flow->generation = 0;
				return PASS_FILTER;
			}
			if (!ipv4 && (roles & AGENT) && plan->has_way)
				keep_way(&plan->inner.destination, plan, ifindex, 1);
		}
	}
	if (!plan->flow->may_leave)
		return PASS_NEIGHBOUR;
	if (plan->inner.hop_limit <= 1)
		return PASS_HOP_LIMIT;
	if (plan->flags & plan->flow->stops)
		return plan->flags & TCP_SYN ? PASS_SYN : PASS_FILTER;
	if (length > plan->flow->mtu || inner_length(plan, ipv4) > 0xffff)
		return PASS_TOO_BIG;
	if (plan->flow->outside != IN_IPV6) {
		if (inner_length(plan, ipv4) > 0xffff - IPV4_HEADER - UDP_HEADER)
			return PASS_TOO_BIG;
		write_outside(&plan->outer, plan->flow->outside, &plan->flow->path,
			      ipv4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6, be32_to_cpu(plan->inner.first) >> 20,
			      inner_length(plan, ipv4));
		return TAKEN;
	}
	return TAKEN;
}

/* Returns the number of the binding's path by which a packet arrived; PATHS if the binding does not accept
 * packets from there (RFC 6275 10.4.5). */
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

/* Returns the binding of packets out of a tunnel, and whether this is the home agent's end. Returns 0 if the
 * inner packet belongs to no binding. */
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
		/* A packet from outside cannot have a source address of the mobile network. */
		if (binding && binding_of(&inner->source, MOBILE_ROUTER, &other))
			return 0;
	}
	return binding;
}

/* Finds the binding and the route of a packet that arrived through a tunnel. */
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
	if (is_out_of_scope(plan))
		return PASS_SCOPE;
	if (is_unusual(plan))
		return PASS_EXTENSION;
	if (is_agents && may_need_nat(plan))
		return PASS_FILTER;
	result = ask_inside(ctx, &route, plan, length, TUNNEL_DEVICE);
	if (result == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return PASS_TOO_BIG;
	if (!is_forwarded(result) || route.ifindex == TUNNEL_DEVICE)
		return PASS_ROUTE;
	if (find_filter(plan, route.ifindex) == UNTRACKABLE)
		return PASS_FILTER;
	remember(plan, binding, path, &route, result, ifindex | IN_TUNNEL);
	plan->flow->path.local = plan->outer.ipv6.destination;
	plan->flow->path.remote = plan->outer.ipv6.source;
	plan->flow->path.ports = plan->outer_ports;
	plan->flow->mtu = route.mtu_result;
	plan->has_way = is_agents && plan->outside == IN_IPV6 && !binding->rules && plan->flow->generation &&
			plan->flow->filter == UNFILTERED;
	if (is_agents && plan->flow->generation && !(plan->protocol & INSIDE_IPV4) &&
	    plan->flow->filter == UNFILTERED)
		keep_destination(plan);
	return TAKEN;
}

/* Decides about a packet that arrived through a tunnel. The caller has set `plan->outer`, `inner` and the
 * results of look_inside(). `length` is that of the longest inner packet, `ifindex` the interface of arrival.
 * `ipv4` says that the inner packet is an IPv4 packet. */
inline_always enum outcome plan_decapsulation(void *ctx, __u32 roles, struct plan *plan, __u32 length,
					      __u32 ifindex, const int ipv4)
{
	const struct ipv6 *outer = &plan->outer.ipv6;
	const struct ipv6 *inner = &plan->inner;
	__u32 inner_ecn, outer_ecn;

	plan->generation = GENERATION;
	plan->routes = roles & AGENT ? ROUTES : 0;
	plan->now = bpf_jiffies64();
	if (ipv4 || !(roles & AGENT) || !take_destination(plan)) {
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
			if (!is_accepted(ctx, plan, TUNNEL_DEVICE, plan->flow->departure)) {
				plan->flow->generation = 0;
				return PASS_FILTER;
			}
			if (!ipv4 && (roles & AGENT) && plan->has_way)
				keep_way(&inner->source, plan, 0, 0);
		}
	}
	if (!plan->flow->may_leave)
		return PASS_NEIGHBOUR;
	/* Leave a packet with octets after the inner packet to the slow path, which cuts them off. */
	if (inner_length(plan, ipv4) != be16_to_cpu(outer->payload_length))
		return PASS_MALFORMED;
	if (inner->hop_limit <= 1)
		return PASS_HOP_LIMIT;
	if (plan->flags & plan->flow->stops)
		return plan->flags & TCP_SYN ? PASS_SYN : PASS_FILTER;
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

/* Returns this CPU's counters for the plan's flow. */
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
