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
 * * packets that rules of the packet filter use, unless their connection is tracked (tracked.h);
 * * IPv4 packets with options, fragments, and IPv4 packets that may need the home agent's NAT.
 *
 * The kernel decides the routes. bpf_fib_lookup uses its tables and rules as for the slow path's packets: an
 * inner packet must be routed to the tunnel device, and outer and decapsulated packets are routed as if they
 * came from there. An operator's own rules for these packets apply on both paths. The programs look up no
 * route for arriving outer packets. Neither netfilter nor IPsec policies (xfrm) see packets of the fast path.
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

/* Finds the slot of the binding into whose tunnel a packet has to go. Returns whether such a binding
 * exists. */
inline_always int find_sender(struct flow *flow, __u32 roles)
{
	__u32 found = 0;

	if (roles & AGENT)
		found = find_slot(&flow->destination, HOME_AGENT);
	flow->is_agents = found != 0;
	if (!found && (roles & ENCAPSULATE_FROM)) {
		found = find_slot(&flow->source, MOBILE_ROUTER);
		/* Leave a packet between two links of the mobile network to the kernel. */
		if (found && find_slot(&flow->destination, MOBILE_ROUTER))
			return 0;
	}
	flow->slot = found - 1;
	return found != 0;
}

/* Returns whether an inner packet has an address that the slow path refuses. */
inline_always int is_out_of_scope(const struct flow *flow)
{
	if (flow->protocol & INSIDE_IPV4)
		return is_special_ipv4(&flow->source) || is_special_ipv4(&flow->destination);
	return is_special(&flow->source) || is_special(&flow->destination);
}

/* Returns whether the slow path must handle an inner packet because of the header after its IP header. */
inline_always int is_unusual(const struct flow *flow)
{
	__u8 next_header = flow->next_header;

	return has_extension(next_header) ||
	       ((flow->protocol & INSIDE_IPV4) && (next_header == PROTOCOL_IPV4 || next_header == PROTOCOL_IPV6 ||
						   next_header == PROTOCOL_FRAGMENT));
}

/* Returns whether an IPv4 packet at the home agent may need NAT: one address is private, and the other is
 * not. The operator may have rules of NAT that carnet does not know. The kernel must see both directions. */
inline_always int may_need_nat(const struct flow *flow)
{
	return (flow->protocol & INSIDE_IPV4) && is_private(&flow->source) != is_private(&flow->destination);
}

/* Finds the binding and the path by which the flow's packets leave. */
verified_once int find_path(struct flow *flow, __u32 roles)
{
	const struct binding *binding;
	const struct path *path;
	__u32 chosen = 0;

	if (!flow || !find_sender(flow, roles))
		return NOT_OURS;
	binding = binding_of(flow);
	if (!binding)
		return NOT_OURS;
	if (find_filter(flow, flow->arrival) == UNTRACKABLE || (flow->is_agents && may_need_nat(flow)))
		return PASS_FILTER;
	if (is_out_of_scope(flow))
		return PASS_SCOPE;
	/* The slow path limits tunnels inside tunnels. An outer fragment that this station has sent would
	 * hide the number of tunnels (RFC 2473 4.1). */
	if (is_unusual(flow) || flow->next_header == PROTOCOL_IPV6)
		return PASS_EXTENSION;
	if (!binding->transmit)
		return PASS_NO_PATH;
	/* The rules have different selectors for IPv6 and IPv4, so the slow path distributes IPv4 packets. */
	if (binding->rules)
		chosen = flow->protocol & INSIDE_IPV4 ? PATHS : choose(flow, binding->rules);
	if (chosen >= binding->transmit)
		return PASS_POLICY;
	chosen &= PATHS - 1;
	path = &binding->paths[chosen];
	if (same(&flow->source, &path->local))
		return PASS_EXTENSION;
	flow->counter = counter(flow->slot, chosen);
	flow->path = *path;
	flow->outside = outside_of(path);
	flow->mtu = binding->mtu[chosen];
	flow->may_be_way = flow->is_agents && flow->outside == IN_IPV6 && !binding->rules &&
			   !(flow->protocol & INSIDE_IPV4) && flow->filter == UNFILTERED;
	return TAKEN;
}

/* Finds the route of the flow's packets on the path that find_path() has stored. `length` is that of the
 * longest sent packet, `generation` the value of GENERATION before the first lookup. */
verified_once int find_encapsulation(CONTEXT *ctx, struct flow *flow, __u32 length, __u32 generation)
{
	struct bpf_fib_lookup route;
	__u32 overhead;
	__u8 protocol;
	long result;

	if (!flow)
		return NOT_OURS;
	protocol = flow->protocol & INSIDE_IPV4 ? PROTOCOL_IPV4 : PROTOCOL_IPV6;
	/* Check that the kernel would route the packet into the tunnel. */
	result = ask_inside(ctx, &route, flow, 0, flow->arrival);
	if (!is_forwarded(result) || route.ifindex != TUNNEL_DEVICE)
		return PASS_ROUTE;
	if ((flow->protocol & INSIDE_IPV4) && !is_from_there(ctx, &route, flow))
		return PASS_ROUTE;
	overhead = outside_length(flow->outside);
	flow->label = 0;
	if (flow->outside == IN_IPV6) {
		flow->label = cpu_to_be32(flow_label(&flow->source, &flow->destination, flow->first));
		result = ask(ctx, &route, &flow->path.local, &flow->path.remote,
			     (flow->first & cpu_to_be32(0xfff00000)) | flow->label, protocol, 0, length + overhead,
			     TUNNEL_DEVICE);
	} else {
		result = ask_ipv4(ctx, &route, &flow->path, flow->outside == IN_UDP ? PROTOCOL_UDP : protocol,
				  be32_to_cpu(flow->first) >> 20, length + overhead);
	}
	if (result == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return PASS_TOO_BIG;
	if (!is_forwarded(result) || route.ifindex == TUNNEL_DEVICE)
		return PASS_ROUTE;
	remember(flow, &route, result, generation);
	if (SEEKS && !flow->is_agents && !(flow->protocol & INSIDE_IPV4))
		bpf_map_update_elem(&SOUGHT, &flow->destination, &flow->slot, BPF_ANY);
	if (flow->mtu > route.mtu_result - overhead)
		flow->mtu = route.mtu_result - overhead;
	flow->may_be_way = flow->may_be_way && flow->generation && flow->may_leave;
	return TAKEN;
}

/* Decides about a packet from or to a mobile network. The caller has set `plan->inner` and the results of
 * look_inside(). `length` is that of the longest sent packet, `ifindex` the interface of arrival. `ipv4` says
 * that the inner packet is an IPv4 packet. Afterwards the plan contains the outer header if it is IPv4;
 * write_outer() writes an outer IPv6 header. */
inline_always enum outcome plan_encapsulation(CONTEXT *ctx, __u32 roles, struct plan *plan, __u32 length,
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
			struct flow *flow = begin_flow(plan, ifindex);
			__u32 outcome;

			if (!flow)
				return NOT_OURS;
			outcome = find_path(flow, roles);
			if (outcome == TAKEN)
				outcome = find_encapsulation(ctx, flow, length, plan->generation);
			if (outcome != TAKEN)
				return outcome;
			if (!is_accepted(ctx, flow, ifindex, TUNNEL_DEVICE, plan->flags))
				return PASS_FILTER;
			if ((roles & AGENT) && flow->may_be_way)
				keep_way(flow, plan->routes, 1);
			*plan->flow = *flow;
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

/* Returns the number of the binding's path by which the flow's packets arrive; PATHS if the binding does not
 * accept packets from there (RFC 6275 10.4.5). */
inline_always __u32 path_of(const struct binding *binding, const struct flow *flow)
{
#pragma unroll
	for (__u32 i = 0; i < PATHS; i++) {
		const struct path *path = &binding->paths[i];

		if (i < binding->accepted && same(&path->local, &flow->path.local) &&
		    same(&path->remote, &flow->path.remote) && path->ports == flow->path.ports &&
		    (!path->interface || path->interface == (flow->arrival & ~IN_TUNNEL)))
			return i;
	}
	return PATHS;
}

/* Finds the binding of packets out of a tunnel. Returns TAKEN; NOT_OURS if the inner packet belongs to no
 * binding; PASS_INNER_SOURCE if its source may not send through this tunnel. */
inline_always enum outcome find_receiver(struct flow *flow, __u32 roles)
{
	__u32 found = 0;

	if (roles & AGENT)
		found = find_slot(&flow->source, HOME_AGENT);
	flow->is_agents = found != 0;
	if (!found && (roles & DECAPSULATE_CARE_OF)) {
		found = find_slot(&flow->destination, MOBILE_ROUTER);
		/* A packet from outside cannot have a source address of the mobile network. */
		if (found && find_slot(&flow->source, MOBILE_ROUTER))
			return PASS_INNER_SOURCE;
	}
	flow->slot = found - 1;
	return found ? TAKEN : NOT_OURS;
}

/* Finds the binding of the flow's packets, which arrived through the tunnel in `path`. */
verified_once int find_origin(struct flow *flow, __u32 roles)
{
	const struct binding *binding;
	__u32 outcome, path;

	if (!flow)
		return NOT_OURS;
	outcome = find_receiver(flow, roles);
	if (outcome != TAKEN)
		return outcome;
	binding = binding_of(flow);
	if (!binding)
		return NOT_OURS;
	path = path_of(binding, flow);
	if (path >= PATHS)
		return PASS_OUTER_SOURCE;
	if ((be32_to_cpu(flow->first) >> 28) != 6)
		return PASS_MALFORMED;
	if (is_out_of_scope(flow))
		return PASS_SCOPE;
	if (is_unusual(flow))
		return PASS_EXTENSION;
	if (flow->is_agents && may_need_nat(flow))
		return PASS_FILTER;
	flow->counter = counter(flow->slot, path);
	flow->may_be_way = flow->is_agents && flow->outside == IN_IPV6 && !binding->rules;
	return TAKEN;
}

/* Finds the route of the flow's packets out of the tunnel. `length` is that of the longest inner packet,
 * `generation` the value of GENERATION before the first lookup. */
verified_once int find_decapsulation(CONTEXT *ctx, struct flow *flow, __u32 length, __u32 generation)
{
	struct bpf_fib_lookup route;
	long result;

	if (!flow)
		return NOT_OURS;
	result = ask_inside(ctx, &route, flow, length, TUNNEL_DEVICE);
	if (result == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return PASS_TOO_BIG;
	if (!is_forwarded(result) || route.ifindex == TUNNEL_DEVICE)
		return PASS_ROUTE;
	if (find_filter(flow, route.ifindex) == UNTRACKABLE)
		return PASS_FILTER;
	remember(flow, &route, result, generation);
	flow->mtu = route.mtu_result;
	flow->may_be_way = flow->may_be_way && flow->generation && flow->filter == UNFILTERED;
	if (flow->is_agents && flow->generation && !(flow->protocol & INSIDE_IPV4) &&
	    flow->filter == UNFILTERED)
		keep_destination(flow);
	return TAKEN;
}

/* Decides about a packet that arrived through a tunnel. The caller has set `plan->outer`, `inner` and the
 * results of look_inside(). `length` is that of the longest inner packet, `ifindex` the interface of arrival.
 * `ipv4` says that the inner packet is an IPv4 packet. */
inline_always enum outcome plan_decapsulation(CONTEXT *ctx, __u32 roles, struct plan *plan, __u32 length,
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
			struct flow *flow = begin_flow(plan, ifindex | IN_TUNNEL);
			__u32 outcome;

			if (!flow)
				return NOT_OURS;
			flow->path.local = outer->destination;
			flow->path.remote = outer->source;
			flow->path.ports = plan->outer_ports;
			flow->outside = plan->outside;
			outcome = find_origin(flow, roles);
			if (outcome == TAKEN)
				outcome = find_decapsulation(ctx, flow, length, plan->generation);
			if (outcome != TAKEN)
				return outcome;
			if (!is_accepted(ctx, flow, TUNNEL_DEVICE, flow->departure, plan->flags))
				return PASS_FILTER;
			if (!ipv4 && (roles & AGENT) && flow->may_be_way)
				keep_way(flow, plan->routes, 0);
			*plan->flow = *flow;
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
