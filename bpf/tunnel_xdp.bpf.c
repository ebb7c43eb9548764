/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The fast path as XDP programs: IPv6-in-IPv6 encapsulation and decapsulation (RFC 2473) before the kernel has made
 * a socket buffer of the packet. For many packets a second; what is large by TCP goes faster as super packets
 * through the tc programs.
 *
 * The link-layer addresses are those of the kernel's neighbour table. A packet whose neighbour is not known there is
 * left to the slow path, which has it resolved. So is one in a thousand, and one a second of each binding on each
 * CPU: the kernel does not see what passes here, and would else never ask whether a neighbour is still there.
 *
 * Packets leave by interfaces in PORTS only: those on which carnet has an XDP program, where a driver that can
 * receive redirected frames does so.
 */
#include <linux/if_ether.h>

#include "tunnel.h"

#define REFRESH_EVERY 1024 /* a power of two */
#define REFRESH_NANOSECONDS 1000000000ULL

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} PORTS SEC(".maps");

/* When a packet of a binding last went to the slow path. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} REFRESHED SEC(".maps");

inline_always int finish(enum outcome outcome)
{
	if (outcome < OUTCOMES)
		count(outcome);
	return outcome == FAILED ? XDP_DROP : XDP_PASS;
}

/* Whether this packet goes to the slow path, so that the kernel looks after the neighbour. */
inline_always int is_for_refresh(const struct plan *plan)
{
	__u32 slot = plan->binding->slot;
	__u64 *last = bpf_map_lookup_elem(&REFRESHED, &slot);
	__u64 now = bpf_ktime_get_coarse_ns();

	if ((bpf_get_prandom_u32() & (REFRESH_EVERY - 1)) == 0)
		return 1;
	if (!last || now - *last < REFRESH_NANOSECONDS)
		return 0;
	*last = now;
	return 1;
}

inline_always int is_port(const struct plan *plan)
{
	__u32 ifindex = plan->route.ifindex;

	return bpf_map_lookup_elem(&PORTS, &ifindex) != 0;
}

/* Notes a TCP SYN; 0 when the packet is too short for its protocol. */
inline_always int look_inside(struct xdp_md *xdp, struct plan *plan, __u32 offset)
{
	const __u8 *data = (void *)(long)xdp->data;
	const __u8 *end = (void *)(long)xdp->data_end;

	plan->syn = 0;
	if (plan->inner.next_header != PROTOCOL_TCP)
		return 1;
	if (data + offset + TCP_HEADER > end)
		return 0;
	plan->syn = data[offset + 13] & TCP_SYN;
	return 1;
}

inline_always void link_header(void *data, const struct plan *plan)
{
	struct ethhdr *ethernet = data;

	__builtin_memcpy(ethernet->h_dest, plan->route.dmac, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, plan->route.smac, ETH_ALEN);
	ethernet->h_proto = cpu_to_be16(ETH_P_IPV6);
}

inline_always int encapsulate(struct xdp_md *xdp, __u32 roles, struct plan *plan)
{
	enum outcome outcome;
	__u8 *data, *end;

	if (!look_inside(xdp, plan, ETH_HLEN + IPV6_HEADER))
		return XDP_PASS;
	outcome = plan_encapsulation(xdp, roles, plan, length_of(&plan->inner), xdp->ingress_ifindex);
	if (outcome == TAKEN && (!is_port(plan) || is_for_refresh(plan)))
		outcome = PASS_NEIGHBOUR;
	if (outcome != TAKEN)
		return finish(outcome);

	if (bpf_xdp_adjust_head(xdp, -IPV6_HEADER))
		return finish(PASS_TOO_BIG);
	data = (void *)(long)xdp->data;
	end = (void *)(long)xdp->data_end;
	if (data + ETH_HLEN + 2 * IPV6_HEADER > end)
		return finish(FAILED);
	link_header(data, plan);
	outer_header(plan, (struct ipv6 *)(data + ETH_HLEN));
	((struct ipv6 *)(data + ETH_HLEN + IPV6_HEADER))->hop_limit--;
	count_encapsulated(plan, 1, length_of(&plan->inner));
	return bpf_redirect_map(&PORTS, plan->route.ifindex, 0);
}

inline_always int decapsulate(struct xdp_md *xdp, __u32 roles, const struct ipv6 *outer, struct plan *plan)
{
	enum outcome outcome;
	struct ipv6 *inner;
	__u8 *data, *end;

	if (!look_inside(xdp, plan, ETH_HLEN + 2 * IPV6_HEADER))
		return XDP_PASS;
	outcome = plan_decapsulation(xdp, roles, plan, outer, length_of(&plan->inner));
	if (outcome == TAKEN && (!is_port(plan) || is_for_refresh(plan)))
		outcome = PASS_NEIGHBOUR;
	if (outcome != TAKEN)
		return finish(outcome);

	if (bpf_xdp_adjust_head(xdp, IPV6_HEADER))
		return finish(PASS_MALFORMED);
	data = (void *)(long)xdp->data;
	end = (void *)(long)xdp->data_end;
	if (data + ETH_HLEN + IPV6_HEADER > end)
		return finish(FAILED);
	link_header(data, plan);
	inner = (struct ipv6 *)(data + ETH_HLEN);
	inner->first = plan->first;
	inner->hop_limit--;
	count_decapsulated(plan, 1, length_of(&plan->inner));
	return bpf_redirect_map(&PORTS, plan->route.ifindex, 0);
}

/* Not inline: there is one copy of it, for which the verifier knows the constants of each program. */
static __attribute__((noinline)) int handle(struct xdp_md *xdp, __u32 roles)
{
	const __u8 *data = (void *)(long)xdp->data;
	const __u8 *end = (void *)(long)xdp->data_end;
	const struct ethhdr *ethernet = (const void *)data;
	struct ipv6 outer;
	struct plan plan;

	if (data + ETH_HLEN + IPV6_HEADER > end || ethernet->h_proto != cpu_to_be16(ETH_P_IPV6))
		return XDP_PASS;
	__builtin_memcpy(&plan.inner, data + ETH_HLEN, IPV6_HEADER);
	/* Also: shorter than it says, or a jumbo payload. */
	if ((be32_to_cpu(plan.inner.first) >> 28) != 6 || !plan.inner.payload_length ||
	    (__u64)(end - data) < ETH_HLEN + length_of(&plan.inner))
		return XDP_PASS;
	if ((roles & (AGENT | DECAPSULATE_CARE_OF)) && plan.inner.next_header == PROTOCOL_IPV6) {
		outer = plan.inner;
		if (be16_to_cpu(outer.payload_length) < IPV6_HEADER ||
		    data + ETH_HLEN + 2 * IPV6_HEADER > end)
			return XDP_PASS;
		__builtin_memcpy(&plan.inner, data + ETH_HLEN + IPV6_HEADER, IPV6_HEADER);
		return decapsulate(xdp, roles, &outer, &plan);
	}
	if (roles & (AGENT | ENCAPSULATE_FROM))
		return encapsulate(xdp, roles, &plan);
	return XDP_PASS;
}

#define PROGRAM(name, roles) \
	SEC("xdp") int name(struct xdp_md *xdp) { return handle(xdp, roles); }

PROGRAM(lan, ENCAPSULATE_FROM)
PROGRAM(uplink, DECAPSULATE_CARE_OF)
PROGRAM(agent, AGENT)
PROGRAM(agent_lan, AGENT | ENCAPSULATE_FROM)
PROGRAM(agent_uplink, AGENT | DECAPSULATE_CARE_OF)

char LICENSE[] SEC("license") = "Dual MIT/GPL";
