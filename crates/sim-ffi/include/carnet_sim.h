// C interface of a carnet station, for simulators. The test `header` of crates/sim-ffi writes this file
// (CARNET_UPDATE=1 cargo test -p carnet-sim-ffi --test header). The head of its lib.rs explains the use.
//
// SPDX-License-Identifier: Apache-2.0 OR MIT

#ifndef CARNET_SIM_H
#define CARNET_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Version of this header, to compare with `carnet_sim_abi_version`.
#define CARNET_SIM_ABI_VERSION 1

// Result of `carnet_sim_deadline` if no timer runs.
#define CARNET_SIM_NEVER UINT64_MAX

// Result of a call.
typedef enum CarnetSimStatus {
  // The call succeeded; `carnet_sim_poll_output` has written an output.
  CARNET_SIM_STATUS_DONE = 0,
  // There is no further output.
  CARNET_SIM_STATUS_EMPTY = 1,
  // A pointer is null where null is not allowed, or a value is not one of its enumeration.
  CARNET_SIM_STATUS_BAD_ARGUMENT = 2,
  // The caller has not called `carnet_sim_poll_output` until it returned `Empty`.
  CARNET_SIM_STATUS_NOT_DRAINED = 3,
  // The time is before the time of an earlier call.
  CARNET_SIM_STATUS_TIME_RUNS_BACKWARDS = 4,
  // The station refuses the input; `carnet_sim_last_error` has the reason.
  CARNET_SIM_STATUS_REFUSED = 5,
  // The station has panicked in this call or before. The caller can only free it.
  CARNET_SIM_STATUS_PANICKED = 6,
} CarnetSimStatus;

// Kind of an output.
typedef enum CarnetSimOutputKind {
  // A frame of EtherType 0x8947 for the radio: `source`, `destination`, the octets behind the EtherType.
  CARNET_SIM_OUTPUT_KIND_FRAME = 0,
  // A frame for the host: `link`, `source`, `destination`, `ether_type`, the octets behind it.
  CARNET_SIM_OUTPUT_KIND_HOST_FRAME = 1,
  // A payload received over GeoNetworking, for its receiver: `station`, `next_header`, `hops`, the
  // payload.
  CARNET_SIM_OUTPUT_KIND_DELIVERED = 2,
  // An IPv6 packet from the tunnel device, for the host's routing.
  CARNET_SIM_OUTPUT_KIND_PACKET = 3,
  // Any other output, as JSON like in the answer of `carnet replay`.
  CARNET_SIM_OUTPUT_KIND_OTHER = 4,
} CarnetSimOutputKind;

// Transport of a payload.
typedef enum CarnetSimTransport {
  // To a station: `destination`.
  CARNET_SIM_TRANSPORT_GEO_UNICAST = 0,
  // To all stations in the circle of `radius` around `latitude`, `longitude`.
  CARNET_SIM_TRANSPORT_GEO_BROADCAST = 1,
  // To any one station in the circle.
  CARNET_SIM_TRANSPORT_GEO_ANYCAST = 2,
  // To all stations within `hop_limit` hops.
  CARNET_SIM_TRANSPORT_TOPOLOGICALLY_SCOPED = 3,
  // To all stations in range; it replaces a beacon.
  CARNET_SIM_TRANSPORT_SINGLE_HOP = 4,
} CarnetSimTransport;

// A station of one node.
typedef struct CarnetSimStation CarnetSimStation;

// Options of a new station.
typedef struct CarnetSimOptions {
  // Text of the config file, UTF-8, without a terminating zero.
  const uint8_t *config;
  // Length of the text in octets.
  size_t config_length;
  // Path of a recording, UTF-8; null for no recording.
  const uint8_t *record;
  // Length of the path in octets.
  size_t record_length;
  // GN address; 0 for a station without GeoNetworking.
  uint64_t gn_address;
  // Seed of all random numbers of the station.
  uint64_t seed;
  // Nanoseconds since the simulation began.
  uint64_t now;
  // Date at `now`, nanoseconds since 1970 (UTC).
  uint64_t wall;
} CarnetSimOptions;

// An IPv6 address of the host.
typedef struct CarnetSimAddress {
  // The address, in network order.
  uint8_t address[16];
  // Prefix length in bits.
  uint8_t prefix_length;
} CarnetSimAddress;

// Position of a node, in the units of EN 302 636-4-1 9.5.2.
typedef struct CarnetSimPosition {
  // TAI milliseconds since 2004-01-01, modulo 2^32.
  uint32_t timestamp;
  // Tenths of a microdegree, north positive.
  int32_t latitude;
  // Tenths of a microdegree, east positive.
  int32_t longitude;
  // Centimetres per second.
  int16_t speed;
  // Tenths of a degree clockwise from North.
  uint16_t heading;
  // Position accuracy indicator (PAI).
  bool accurate;
} CarnetSimPosition;

// A payload to send (GN-DATA.request).
typedef struct CarnetSimRequest {
  // A `CarnetSimTransport`.
  uint32_t transport;
  // GN address for `GeoUnicast`.
  uint64_t destination;
  // Centre of the circle, tenths of a microdegree.
  int32_t latitude;
  // Centre of the circle, tenths of a microdegree.
  int32_t longitude;
  // Radius of the circle, metres.
  uint16_t radius;
  // NH of the Common Header: 0 any, 1 BTP-A, 2 BTP-B, 3 IPv6.
  uint8_t next_header;
  // Hop limit; 0 for the default.
  uint8_t hop_limit;
  // Lifetime in milliseconds; 0 for the default.
  uint64_t lifetime_ms;
  // Whether the packet may wait for a neighbour (SCF).
  bool store;
} CarnetSimRequest;

// An output of a station.
typedef struct CarnetSimOutput {
  // Kind of the output.
  enum CarnetSimOutputKind kind;
  // Virtual interface of a frame for the host.
  uint32_t link;
  // GN address of the station that sent a payload; 0 if unknown.
  uint64_t station;
  // Link-layer source of a frame.
  uint8_t source[6];
  // Link-layer destination of a frame.
  uint8_t destination[6];
  // EtherType of a frame for the host.
  uint16_t ether_type;
  // NH of a payload.
  uint8_t next_header;
  // Hops that a payload, or an IPv6 packet, has taken; 0 if unknown.
  uint8_t hops;
  // Octets of the output, valid until the next call for this station.
  const uint8_t *octets;
  // Number of octets of the output.
  size_t length;
} CarnetSimOutput;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of this interface, which must equal the header's `CARNET_SIM_ABI_VERSION`.
uint32_t carnet_sim_abi_version(void);

// Returns whether a panic ends only one station, because the library was built with unwinding. If false, a
// panic ends the process.
bool carnet_sim_contains_panics(void);

// Creates a station, to be freed by `carnet_sim_free`; the outputs of its start wait. On failure returns
// null and writes the reason to `error`, cut to `error_capacity` octets with a terminating zero.
//
// # Safety
// `options` points to options whose pointers point to as many octets as their lengths say. `error` is null
// or points to `error_capacity` writable octets.
struct CarnetSimStation *carnet_sim_new(const struct CarnetSimOptions *options,
                                        char *error,
                                        size_t error_capacity);

// Ends a station and its recording. Null is allowed.
//
// # Safety
// `station` is null, or comes from `carnet_sim_new` and has not been freed. The caller does not use it any
// more.
void carnet_sim_free(struct CarnetSimStation *station);

// Takes a frame of EtherType 0x8947 from the radio; `packet` are the octets behind the EtherType.
//
// # Safety
// `station` is null or comes from `carnet_sim_new`, and no other thread uses it during the call. `source`
// and `destination` are null or point to 6 octets, `packet` to `length` octets.
enum CarnetSimStatus carnet_sim_handle_frame(struct CarnetSimStation *station,
                                             uint64_t now,
                                             const uint8_t *source,
                                             const uint8_t *destination,
                                             const uint8_t *packet,
                                             size_t length);

// Handles a frame that this station sent to one other station, which did not acknowledge it; `packet` are
// the octets behind the EtherType.
//
// # Safety
// As for `carnet_sim_handle_frame`.
enum CarnetSimStatus carnet_sim_handle_unacknowledged(struct CarnetSimStation *station,
                                                      uint64_t now,
                                                      const uint8_t *source,
                                                      const uint8_t *destination,
                                                      const uint8_t *packet,
                                                      size_t length);

// Takes a frame that the host has sent on the virtual interface `link`; 0 is the interface of the config key
// `ipv6_interface`.
//
// # Safety
// As for `carnet_sim_handle_frame`; `payload` is null or points to `length` octets.
enum CarnetSimStatus carnet_sim_handle_host_frame(struct CarnetSimStation *station,
                                                  uint64_t now,
                                                  uint32_t link,
                                                  const uint8_t *source,
                                                  const uint8_t *destination,
                                                  uint16_t ether_type,
                                                  const uint8_t *payload,
                                                  size_t length);

// Takes the complete list of the host's IPv6 addresses on the virtual interface `link`.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`; `addresses` is null or points to `count` addresses.
enum CarnetSimStatus carnet_sim_handle_addresses(struct CarnetSimStation *station,
                                                 uint64_t now,
                                                 uint32_t link,
                                                 const struct CarnetSimAddress *addresses,
                                                 size_t count);

// Takes the present position of the node. The caller passes it before all other events of the same time.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`; `position` is null or points to a position.
enum CarnetSimStatus carnet_sim_handle_position(struct CarnetSimStation *station,
                                                uint64_t now,
                                                const struct CarnetSimPosition *position);

// Takes a payload to send over GeoNetworking.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`; `request` is null or points to a request, `payload` to
// `length` octets.
enum CarnetSimStatus carnet_sim_handle_request(struct CarnetSimStation *station,
                                               uint64_t now,
                                               const struct CarnetSimRequest *request,
                                               const uint8_t *payload,
                                               size_t length);

// Takes an IPv6 packet that the host's routing sends into the tunnel device.
//
// # Safety
// As for `carnet_sim_handle_frame`.
enum CarnetSimStatus carnet_sim_handle_packet(struct CarnetSimStation *station,
                                              uint64_t now,
                                              const uint8_t *packet,
                                              size_t length);

// Takes any other input as JSON: the value of `"input"` in a line of a recording.
//
// # Safety
// As for `carnet_sim_handle_frame`; `json` is null or points to `length` octets.
enum CarnetSimStatus carnet_sim_handle_input(struct CarnetSimStation *station,
                                             uint64_t now,
                                             const uint8_t *json,
                                             size_t length);

// Runs the timers that are due; the caller calls it when `carnet_sim_deadline` is reached.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`.
enum CarnetSimStatus carnet_sim_handle_timeout(struct CarnetSimStation *station, uint64_t now);

// Returns when `carnet_sim_handle_timeout` is due, nanoseconds; `CARNET_SIM_NEVER` if no timer runs.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`.
uint64_t carnet_sim_deadline(struct CarnetSimStation *station);

// Takes the next output; returns `Empty` if no output is left. Before that, the station refuses every input.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`; `output` is null or points to a writable output.
enum CarnetSimStatus carnet_sim_poll_output(struct CarnetSimStation *station,
                                            struct CarnetSimOutput *output);

// Writes all counters to `text` as a JSON object, cut to `capacity` octets with a terminating zero. Returns
// the whole length.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`; `text` is null or points to `capacity` writable octets.
size_t carnet_sim_counters(struct CarnetSimStation *station,
                           char *text,
                           size_t capacity);

// Writes the reason of the last error to `text`, cut to `capacity` octets with a terminating zero. Returns
// the whole length.
//
// # Safety
// As for `carnet_sim_counters`.
size_t carnet_sim_last_error(struct CarnetSimStation *station,
                             char *text,
                             size_t capacity);

// Writes all inputs recorded so far to the file of the recording.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`.
enum CarnetSimStatus carnet_sim_flush(struct CarnetSimStation *station);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CARNET_SIM_H */
