/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The sink of a benchmark. `count_and_drop`, `take` and `take_numbered` count packets and octets for each CPU
 * and drop the packets, so that receiving costs almost no time. `pass` lets all packets pass; its presence
 * makes a veth accept frames that are redirected to its peer.
 *
 * `take` and `take_numbered` drop only packets of the benchmark: UDP to the discard port (RFC 863), in IPv4,
 * in IPv6 or inside one more IPv6 header. Other packets pass, because the network needs them. `take_numbered`
 * also reads the number at the beginning of the payload, in network byte order. It counts numbers that arrive
 * twice, and numbers that arrive after a higher one.
 */
#include "helpers.h"

struct count {
	__u64 packets;
	__u64 octets;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct count);
} COUNT SEC(".maps");

SEC("xdp")
int count_and_drop(struct xdp_md *xdp)
{
	__u32 zero = 0;
	struct count *count = bpf_map_lookup_elem(&COUNT, &zero);

	if (count) {
		count->packets++;
		count->octets += xdp->data_end - xdp->data;
	}
	return XDP_DROP;
}

SEC("xdp")
int pass(struct xdp_md *xdp)
{
	(void)xdp;
	return XDP_PASS;
}

#define DISCARD 9
#define PROTOCOL_UDP 17
#define PROTOCOL_IPV6 41
/* Number of different packet numbers that `take_numbered` distinguishes. */
#define NUMBERS (1 << 26)

struct outer {
	__u8 link[12];
	__be16 type;
	__u8 first[6];
	__u8 next_header;
	__u8 rest[33];
} __attribute__((packed));

struct outer_ipv4 {
	__u8 link[12];
	__be16 type;
	__u8 version;
	__u8 first[8];
	__u8 protocol;
	__u8 rest[10];
} __attribute__((packed));

struct inner {
	__u8 first[6];
	__u8 next_header;
	__u8 rest[33];
} __attribute__((packed));

struct datagram {
	__be16 source;
	__be16 destination;
	__be16 length;
	__be16 checksum;
	__be32 number;
} __attribute__((packed));

struct numbers {
	__u64 duplicated;
	__u64 reordered;
	__u64 next; /* highest number plus one */
	__u64 foreign; /* numbers out of range */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct count);
} TAKEN SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct numbers);
} NUMBERED SEC(".maps");

/* One bit for each packet number. The bit is set if the number has arrived. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NUMBERS / 64);
	__type(key, __u32);
	__type(value, __u64);
} SEEN SEC(".maps");

/* Returns the UDP header of a packet of the benchmark; 0 for any other packet. */
inline_always struct datagram *find(struct xdp_md *xdp)
{
	void *data = (void *)(long)xdp->data, *end = (void *)(long)xdp->data_end;
	struct outer *outer = data;
	struct datagram *datagram;
	struct inner *inner;

	if ((void *)(outer + 1) > end)
		return 0;
	if (outer->type == cpu_to_be16(0x0800)) {
		struct outer_ipv4 *ipv4 = data;

		/* An IPv4 header without options. */
		if (ipv4->version != 0x45 || ipv4->protocol != PROTOCOL_UDP)
			return 0;
		datagram = (void *)(ipv4 + 1);
	} else if (outer->type != cpu_to_be16(0x86dd)) {
		return 0;
	} else if (outer->next_header == PROTOCOL_IPV6) {
		inner = (void *)(outer + 1);
		if ((void *)(inner + 1) > end || inner->next_header != PROTOCOL_UDP)
			return 0;
		datagram = (void *)(inner + 1);
	} else if (outer->next_header == PROTOCOL_UDP) {
		datagram = (void *)(outer + 1);
	} else {
		return 0;
	}
	if ((void *)(datagram + 1) > end || datagram->destination != cpu_to_be16(DISCARD))
		return 0;
	return datagram;
}

inline_always void taken(struct xdp_md *xdp)
{
	__u32 zero = 0;
	struct count *count = bpf_map_lookup_elem(&TAKEN, &zero);

	if (count) {
		count->packets++;
		count->octets += xdp->data_end - xdp->data;
	}
}

SEC("xdp")
int take(struct xdp_md *xdp)
{
	if (!find(xdp))
		return XDP_PASS;
	taken(xdp);
	return XDP_DROP;
}

SEC("xdp")
int take_numbered(struct xdp_md *xdp)
{
	struct datagram *datagram = find(xdp);
	struct numbers *numbers;
	__u32 zero = 0, number, word;
	__u64 *seen, bit;

	if (!datagram)
		return XDP_PASS;
	taken(xdp);
	numbers = bpf_map_lookup_elem(&NUMBERED, &zero);
	if (!numbers)
		return XDP_DROP;
	number = be32_to_cpu(datagram->number);
	if (number >= NUMBERS) {
		__sync_fetch_and_add(&numbers->foreign, 1);
		return XDP_DROP;
	}
	word = number / 64;
	bit = 1ULL << (number % 64);
	seen = bpf_map_lookup_elem(&SEEN, &word);
	if (!seen)
		return XDP_DROP;
	if (__sync_fetch_and_or(seen, bit) & bit)
		__sync_fetch_and_add(&numbers->duplicated, 1);
	else if (number < numbers->next)
		__sync_fetch_and_add(&numbers->reordered, 1);
	if (number >= numbers->next)
		numbers->next = number + 1;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
