/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The fast path as XDP programs. They encapsulate and decapsulate IPv6 and IPv4 in IPv6 (RFC 2473), in IPv4
 * and in UDP (RFC 5555) before the kernel has made a socket buffer of the packet. They suit many packets per
 * second. Large TCP transfers are faster through the tc programs, as super packets.
 *
 * The link-layer addresses are those of the kernel's neighbour table. A packet without an entry there is left
 * to the slow path, which causes its resolution. The kernel does not see the packets of the fast path, so
 * carnet tells it which neighbours are in use (NEIGHBOURS). The kernel also cannot bind a mobile router's
 * packets in IPv4 to one uplink. The programs send such packets only if the kernel forwards IPv4 there (its
 * setting `forwarding`, which carnet does not change).
 *
 * Packets leave by interfaces in PORTS only: those where carnet has an XDP program, on which every driver
 * accepts redirected frames.
 */
#include <linux/if_ether.h>

#include "helpers.h"

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} PORTS SEC(".maps");

/* Link-layer address of an interface, by index: the address in the first six octets of the value, and 1 in
 * the last octet of a valid value. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} ADDRESSES SEC(".maps");

/* Link-layer addresses, as in ADDRESSES, of interfaces whose index is beyond that array. Indices are large on
 * machines that create and remove many interfaces. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u64);
} FAR_ADDRESSES SEC(".maps");

/* Returns whether a frame is for this station. During a packet capture, an interface also receives frames for
 * other stations. */
inline_always int is_for_us(const struct xdp_md *xdp, const __u8 *destination)
{
	__u32 index = xdp->ingress_ifindex;
	const __u8 *address = bpf_map_lookup_elem(&ADDRESSES, &index);

	if (!address)
		address = bpf_map_lookup_elem(&FAR_ADDRESSES, &index);
	return address && address[7] == 1 && *(const __u32 *)address == *(const __u32 *)destination &&
	       *(const __u16 *)(address + 4) == *(const __u16 *)(destination + 4);
}

inline_always int may_leave(__u32 ifindex, long result)
{
	return result == BPF_FIB_LKUP_RET_SUCCESS && bpf_map_lookup_elem(&PORTS, &ifindex) != 0;
}

#define CONTEXT struct xdp_md
#define MAY_LEAVE(ifindex, result) may_leave(ifindex, result)
#define KERNEL_ROUTES 0
#define IS_SKB 0
#include "tunnel.h"

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

inline_always int finish(enum outcome outcome)
{
	if (outcome < OUTCOMES)
		count(outcome);
	return outcome == FAILED ? XDP_DROP : XDP_PASS;
}

/* Reads the header after the inner IP header that ends at `offset`: protocol, ports, and TCP
 * flags. Returns 0 if the packet is too short for its protocol. */
inline_always int look_inside(struct xdp_md *xdp, struct plan *plan, __u32 offset, const int ipv4)
{
	const __u8 *octets = (const __u8 *)(long)xdp->data + offset;
	const __u8 *end = (void *)(long)xdp->data_end;
	__u8 next_header = plan->inner.next_header;

	plan->flags = 0;
	plan->ports = 0;
	plan->protocol = next_header | (ipv4 ? INSIDE_IPV4 : 0);
	if (!has_ports(next_header) && (ipv4 || next_header != PROTOCOL_FRAGMENT))
		return 1;
	if (octets + UDP_HEADER > end)
		return 0;
	if (!ipv4 && next_header == PROTOCOL_FRAGMENT) {
		plan->protocol = octets[0] | IN_FRAGMENTS;
		plan->flags = is_first_of_tcp(octets) ? TCP_SYN : 0;
		return 1;
	}
	plan->ports = *(const __u32 *)octets;
	if (next_header != PROTOCOL_TCP)
		return 1;
	if (octets + TCP_HEADER > end)
		return 0;
	plan->flags = flags_of(octets[13]);
	return 1;
}

/* Writes the Ethernet header in the widest pieces that are aligned if an IPv6 header follows. */
inline_always void link_header(__u8 *data, const struct plan *plan)
{
	const __u8 *header = plan->flow->link.header;

	*(half *)data = *(const half *)header;
	*(word *)(data + 2) = *(const word *)(header + 2);
	*(quad *)(data + 6) = *(const quad *)(header + 6);
}

/* Adds an outer header of `length` octets before the packet: an IPv6 header, or the IPv4 headers at the end
 * of the plan's `outer`. */
inline_always enum outcome prepend(struct xdp_md *xdp, const struct plan *plan, __u32 length, const int ipv4)
{
	__u8 *data, *end;

	if (bpf_xdp_adjust_head(xdp, -(int)length))
		return PASS_TOO_BIG;
	data = (void *)(long)xdp->data;
	end = (void *)(long)xdp->data_end;
	if (data + ETH_HLEN + length + (ipv4 ? IPV4_HEADER : IPV6_HEADER) > end)
		return FAILED;
	link_header(data, plan);
	if (length == IPV6_HEADER)
		write_outer(data + ETH_HLEN, plan, ipv4);
	else
		copy_words(data + ETH_HLEN, (const __u8 *)&plan->outer + IPV6_HEADER - length, length);
	if (ipv4) {
		forward_ipv4((struct ipv4 *)(data + ETH_HLEN + length), plan->inner.first);
	} else {
		((struct ipv6 *)(data + ETH_HLEN + length))->hop_limit--;
	}
	return TAKEN;
}

/* Adds the outer header to a packet. An IPv4 packet has `padding` octets after it, which the function
 * removes. */
inline_always int encapsulate(struct xdp_md *xdp, __u32 roles, struct plan *plan, __u32 padding,
			      const int ipv4)
{
	enum outcome outcome;

	if (!look_inside(xdp, plan, ETH_HLEN + (ipv4 ? IPV4_HEADER : IPV6_HEADER), ipv4))
		return XDP_PASS;
	outcome = plan_encapsulation(xdp, roles, plan, inner_length(plan, ipv4), xdp->ingress_ifindex, ipv4);
	if (outcome != TAKEN)
		return finish(outcome);

	if (ipv4 && padding && bpf_xdp_adjust_tail(xdp, -(int)padding))
		return finish(PASS_MALFORMED);
	if (plan->flow->outside == IN_IPV6)
		outcome = prepend(xdp, plan, IPV6_HEADER, ipv4);
	else if (plan->flow->outside == IN_IPV4)
		outcome = prepend(xdp, plan, IPV4_HEADER, ipv4);
	else
		outcome = prepend(xdp, plan, IPV4_HEADER + UDP_HEADER, ipv4);
	if (outcome != TAKEN)
		return finish(outcome);
	count_encapsulated(plan, 1, inner_length(plan, ipv4));
	return bpf_redirect_map(&PORTS, plan->flow->departure, 0);
}

inline_always int decapsulate(struct xdp_md *xdp, __u32 roles, struct plan *plan, const int ipv4)
{
	const __u32 ip_header = ipv4 ? IPV4_HEADER : IPV6_HEADER;
	enum outcome outcome;
	__u8 *data, *end;

	if (!look_inside(xdp, plan, ETH_HLEN + outside_length(plan->outside) + ip_header, ipv4))
		return XDP_PASS;
	outcome = plan_decapsulation(xdp, roles, plan, inner_length(plan, ipv4), xdp->ingress_ifindex, ipv4);
	if (outcome != TAKEN)
		return finish(outcome);

	if (bpf_xdp_adjust_head(xdp, outside_length(plan->outside)))
		return finish(PASS_MALFORMED);
	data = (void *)(long)xdp->data;
	end = (void *)(long)xdp->data_end;
	if (data + ETH_HLEN + ip_header > end)
		return finish(FAILED);
	link_header(data, plan);
	if (ipv4) {
		forward_ipv4((struct ipv4 *)(data + ETH_HLEN), plan->first);
	} else {
		begin_forwarded(data + ETH_HLEN, &plan->inner, plan->first);
	}
	count_decapsulated(plan, 1, inner_length(plan, ipv4));
	return bpf_redirect_map(&PORTS, plan->flow->departure, 0);
}

/* Reads the headers of a packet in IPv4 whose inner packet has this protocol; returns IN_IPV6 if it is no
 * tunnel. Does not verify the UDP checksum yet. */
inline_always enum outside open_ipv4(struct xdp_md *xdp, struct plan *plan, __u8 protocol,
				     enum outcome *outcome)
{
	const __u8 *data = (const __u8 *)(long)xdp->data;
	const __u8 *end = (void *)(long)xdp->data_end;
	const struct ipv4 *ipv4 = (const void *)(data + ETH_HLEN);
	const struct udp *udp = (const void *)(ipv4 + 1);
	enum outside outside;

	if ((const __u8 *)(udp + 1) > end)
		return IN_IPV6;
	outside = read_outside(ipv4, udp, end - data - ETH_HLEN, protocol, &plan->outer.ipv6, &plan->outer_ports);
	if (outside == IN_UDP && udp->checksum)
		*outcome = PASS_CHECKSUM;
	return outside;
}

/* Handles a packet with IPv4 inside, for which handle() has returned TRY_IPV4. This is a function of its own,
 * so that IPv6 packets need no instruction for it. */
static __attribute__((noinline)) int handle_ipv4(struct xdp_md *xdp, __u32 roles)
{
	const __u8 *data = (void *)(long)xdp->data;
	const __u8 *end = (void *)(long)xdp->data_end;
	enum outcome outcome = TAKEN;
	const struct ipv4 *header;
	__u32 offset = ETH_HLEN, length;
	int is_tunnelled = 0;
	struct plan plan;
	__be16 protocol;

	if (data + ETH_HLEN + IPV4_HEADER > end || !is_for_us(xdp, data))
		return XDP_PASS;
	protocol = *(const half *)(data + 2 * ETH_ALEN);
	plan.outside = IN_IPV6;
	plan.outer_ports = 0;
	if (protocol == cpu_to_be16(ETH_P_IPV6)) {
		if (data + ETH_HLEN + IPV6_HEADER > end)
			return XDP_PASS;
		copy_words(&plan.outer.ipv6, data + ETH_HLEN, IPV6_HEADER);
		is_tunnelled = 1;
	} else if (protocol != cpu_to_be16(ETH_P_IP)) {
		return XDP_PASS;
	} else if (roles & (AGENT | DECAPSULATE_CARE_OF)) {
		plan.outside = open_ipv4(xdp, &plan, PROTOCOL_IPV4, &outcome);
		is_tunnelled = plan.outside != IN_IPV6;
	}
	if (is_tunnelled)
		offset += outside_length(plan.outside);
	if (data + offset + IPV4_HEADER > end)
		return XDP_PASS;
	header = (const void *)(data + offset);
	length = be16_to_cpu(header->length);
	if (!is_common_ipv4(header) || (__u64)(end - data) < offset + length)
		return XDP_PASS;
	read_inside(&plan.inner, header);
	if (is_tunnelled)
		return outcome == TAKEN ? decapsulate(xdp, roles, &plan, 1) : finish(outcome);
	if (!(roles & (AGENT | ENCAPSULATE_FROM)))
		return XDP_PASS;
	return encapsulate(xdp, roles, &plan, end - data - ETH_HLEN - length, 1);
}

/* This function is not inline, so that each program has one copy, in which the verifier knows the program's
 * constants. */
static __attribute__((noinline)) int handle(struct xdp_md *xdp, __u32 roles)
{
	const __u8 *data = (void *)(long)xdp->data;
	const __u8 *end = (void *)(long)xdp->data_end;
	const struct ipv6 *ipv6;
	enum outcome outcome = TAKEN;
	struct plan plan;
	__be16 protocol;

	if (data + ETH_HLEN + IPV6_HEADER > end)
		return try_ipv4();
	if (!is_for_us(xdp, data))
		return XDP_PASS;
	protocol = *(const half *)(data + 2 * ETH_ALEN);
	plan.outside = IN_IPV6;
	plan.outer_ports = 0;
	if (protocol == cpu_to_be16(ETH_P_IP) && (roles & (AGENT | DECAPSULATE_CARE_OF))) {
		__u32 offset;

		plan.outside = open_ipv4(xdp, &plan, PROTOCOL_IPV6, &outcome);
		offset = ETH_HLEN + outside_length(plan.outside);
		if (plan.outside == IN_IPV6 || data + offset + IPV6_HEADER > end)
			return try_ipv4();
		copy_words(&plan.inner, data + offset, IPV6_HEADER);
		/* The payload of UDP may be an IPv4 packet or no packet. */
		if ((be32_to_cpu(plan.inner.first) >> 28) != 6)
			return try_ipv4();
		return outcome == TAKEN ? decapsulate(xdp, roles, &plan, 0) : finish(outcome);
	}
	if (protocol != cpu_to_be16(ETH_P_IPV6))
		return protocol == cpu_to_be16(ETH_P_IP) ? try_ipv4() : XDP_PASS;
	ipv6 = (const void *)(data + ETH_HLEN);
	/* Also leave a packet whose length differs from that in its header, or that has a jumbo payload. */
	if ((data[ETH_HLEN] >> 4) != 6 || !ipv6->payload_length || (__u64)(end - data) != ETH_HLEN + length_of(ipv6))
		return XDP_PASS;
	if ((roles & (AGENT | DECAPSULATE_CARE_OF)) && ipv6->next_header == PROTOCOL_IPV6) {
		if (data + ETH_HLEN + 2 * IPV6_HEADER > end)
			return XDP_PASS;
		copy_quads(&plan.outer.ipv6, ipv6, IPV6_HEADER);
		copy_quads(&plan.inner, ipv6 + 1, IPV6_HEADER);
		return decapsulate(xdp, roles, &plan, 0);
	}
	if ((roles & (AGENT | DECAPSULATE_CARE_OF)) && ipv6->next_header == PROTOCOL_IPV4)
		return try_ipv4();
	if (!(roles & (AGENT | ENCAPSULATE_FROM)))
		return XDP_PASS;
	copy_quads(&plan.inner, ipv6, IPV6_HEADER);
	return encapsulate(xdp, roles, &plan, 0, 0);
}

inline_always int handle_both(struct xdp_md *xdp, __u32 roles)
{
	int verdict = handle(xdp, roles);

	return verdict == TRY_IPV4 ? handle_ipv4(xdp, roles) : verdict;
}

#define PROGRAM(name, roles) \
	SEC("xdp") int name(struct xdp_md *xdp) { return handle_both(xdp, roles); }

PROGRAM(lan, ENCAPSULATE_FROM)
PROGRAM(uplink, DECAPSULATE_CARE_OF)
PROGRAM(agent, AGENT)
PROGRAM(agent_lan, AGENT | ENCAPSULATE_FROM)
PROGRAM(agent_uplink, AGENT | DECAPSULATE_CARE_OF)

char LICENSE[] SEC("license") = "Dual MIT/GPL";
