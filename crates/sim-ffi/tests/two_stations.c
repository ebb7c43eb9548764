/* Two stations in a C program, as in a simulator. Each gets the other's frames and refuses invalid calls.
 * Prints a hash of all frames; equal runs print equal hashes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "carnet_sim.h"

#define CHECK(condition)                                                     \
    do {                                                                     \
        if (!(condition)) {                                                  \
            fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition);  \
            exit(1);                                                         \
        }                                                                    \
    } while (0)

#define NODES 2
static const char config[] =
    "[station]\nname = 'node'\n[geonet]\ninterface = 'radio'\nposition = 'gpsd://localhost'\n"
    "ipv6_interface = 'gn0'\nbeacon = { interval = '1s' }\n";

static CarnetSimStation *stations[NODES];
static uint8_t macs[NODES][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};
static uint64_t hash = 14695981039346656037u;
static unsigned delivered, host_frames;
static uint8_t last[2048];
static size_t last_length;

/* Frames that a station has sent since the last input. The other station gets them afterwards. */
struct sent {
    uint8_t source[6], destination[6];
    size_t length;
    uint8_t octets[2048];
};

static void add(const uint8_t *octets, size_t length) {
    for (size_t i = 0; i < length; i++) hash = (hash ^ octets[i]) * 1099511628211u;
}

static void drain(unsigned node, uint64_t now) {
    struct sent sent[16];
    unsigned count = 0;
    CarnetSimOutput output;
    CarnetSimStatus status;
    while ((status = carnet_sim_poll_output(stations[node], &output)) == CARNET_SIM_STATUS_DONE) {
        if (output.kind == CARNET_SIM_OUTPUT_KIND_FRAME) {
            CHECK(count < 16 && output.length <= sizeof sent->octets);
            memcpy(sent[count].source, output.source, 6);
            memcpy(sent[count].destination, output.destination, 6);
            memcpy(sent[count].octets, output.octets, output.length);
            sent[count++].length = output.length;
            add(output.octets, output.length);
        } else if (output.kind == CARNET_SIM_OUTPUT_KIND_DELIVERED ||
                   output.kind == CARNET_SIM_OUTPUT_KIND_HOST_FRAME) {
            delivered += output.kind == CARNET_SIM_OUTPUT_KIND_DELIVERED;
            host_frames += output.kind == CARNET_SIM_OUTPUT_KIND_HOST_FRAME;
            CHECK(output.length <= sizeof last);
            memcpy(last, output.octets, last_length = output.length);
        }
    }
    CHECK(status == CARNET_SIM_STATUS_EMPTY);
    for (unsigned i = 0; i < count; i++) {
        for (unsigned other = 0; other < NODES; other++) {
            if (other == node) continue;
            CHECK(carnet_sim_handle_frame(stations[other], now, sent[i].source, sent[i].destination,
                                          sent[i].octets, sent[i].length) == CARNET_SIM_STATUS_DONE);
            drain(other, now);
        }
    }
}

int main(void) {
    char words[256];
    CHECK(carnet_sim_abi_version() == CARNET_SIM_ABI_VERSION);

    /* The library describes an error in words, and cuts the text to the buffer. */
    CarnetSimOptions options = {.config = (const uint8_t *)"[station]\n", .config_length = 10};
    CHECK(carnet_sim_new(&options, words, sizeof words) == NULL && strstr(words, "name") != NULL);
    CHECK(carnet_sim_new(NULL, words, 4) == NULL && strcmp(words, "no ") == 0);
    CHECK(carnet_sim_new(NULL, NULL, 0) == NULL);
    carnet_sim_free(NULL);

    for (unsigned node = 0; node < NODES; node++) {
        options = (CarnetSimOptions){
            .config = (const uint8_t *)config,
            .config_length = sizeof config - 1,
            .gn_address = UINT64_C(0x020000000001) + node,
            .seed = 7 + node,
            .wall = UINT64_C(1700000000000000000),
        };
        stations[node] = carnet_sim_new(&options, words, sizeof words);
        CHECK(stations[node] != NULL);
        /* The outputs of the start come first. */
        CHECK(carnet_sim_handle_timeout(stations[node], 0) == CARNET_SIM_STATUS_NOT_DRAINED);
        drain(node, 0);
        CarnetSimPosition position = {.timestamp = 1000, .latitude = 488375000, .accurate = true};
        position.longitude = 21008000 + (int)node * 1000;
        CHECK(carnet_sim_handle_position(stations[node], 0, &position) == CARNET_SIM_STATUS_DONE);
        drain(node, 0);
    }

    CHECK(carnet_sim_handle_frame(NULL, 0, macs[0], macs[1], NULL, 0) == CARNET_SIM_STATUS_BAD_ARGUMENT);
    CHECK(carnet_sim_handle_frame(stations[0], 0, NULL, macs[0], NULL, 0) == CARNET_SIM_STATUS_BAD_ARGUMENT);
    CHECK(carnet_sim_handle_frame(stations[0], 0, macs[1], macs[0], NULL, 5) ==
          CARNET_SIM_STATUS_BAD_ARGUMENT);
    /* The station accepts an empty frame without effect. */
    CHECK(carnet_sim_handle_frame(stations[0], 0, macs[1], macs[0], NULL, 0) == CARNET_SIM_STATUS_DONE);
    drain(0, 0);
    CHECK(carnet_sim_handle_input(stations[0], 0, (const uint8_t *)"nonsense", 8) ==
          CARNET_SIM_STATUS_REFUSED);
    CHECK(carnet_sim_last_error(stations[0], words, sizeof words) > 0 && strlen(words) > 0);
    CHECK(carnet_sim_poll_output(stations[0], NULL) == CARNET_SIM_STATUS_BAD_ARGUMENT);

    /* Ten seconds of beacons, one event per station. */
    uint64_t now = 0;
    while (now < UINT64_C(10000000000)) {
        unsigned next = 0;
        uint64_t due = CARNET_SIM_NEVER;
        for (unsigned node = 0; node < NODES; node++) {
            uint64_t deadline = carnet_sim_deadline(stations[node]);
            if (deadline < due) due = deadline, next = node;
        }
        CHECK(due != CARNET_SIM_NEVER && due >= now);
        now = due;
        CHECK(carnet_sim_handle_timeout(stations[next], now) == CARNET_SIM_STATUS_DONE);
        drain(next, now);
    }
    CHECK(carnet_sim_handle_timeout(stations[0], 0) == CARNET_SIM_STATUS_TIME_RUNS_BACKWARDS);

    /* The first station sends a payload to its neighbour. */
    CarnetSimRequest request = {.transport = CARNET_SIM_TRANSPORT_GEO_UNICAST, .destination = 0x020000000002};
    CHECK(carnet_sim_handle_request(stations[0], now, &request, (const uint8_t *)"hello", 5) ==
          CARNET_SIM_STATUS_DONE);
    drain(0, now);
    CHECK(delivered == 1 && last_length == 5 && memcmp(last, "hello", 5) == 0);
    request.transport = 77;
    CHECK(carnet_sim_handle_request(stations[0], now, &request, NULL, 0) == CARNET_SIM_STATUS_BAD_ARGUMENT);

    /* The first station's host sends an IPv6 packet to the second station's host. */
    uint8_t packet[48] = {0x60, 0, 0, 0, 0, 8, 17, 64};
    static const uint8_t prefix[8] = {0xfd, 0, 0, 0, 0, 0, 0, 1};
    for (int end = 0; end < 2; end++) {
        uint8_t *address = packet + 8 + 16 * end;
        memcpy(address, prefix, 8);
        memcpy(address + 8, (uint8_t[8]){0, 0, 0, 0xff, 0xfe, 0, 0, (uint8_t)(1 + end)}, 8);
        CarnetSimAddress own = {.prefix_length = 64};
        memcpy(own.address, address, 16);
        CHECK(carnet_sim_handle_addresses(stations[end], now, 0, &own, 1) == CARNET_SIM_STATUS_DONE);
        drain((unsigned)end, now);
    }
    CHECK(carnet_sim_handle_host_frame(stations[0], now, 0, macs[0], macs[1], 0x86dd, packet,
                                       sizeof packet) == CARNET_SIM_STATUS_DONE);
    drain(0, now);
    CHECK(host_frames == 1 && last_length == sizeof packet && memcmp(last, packet, sizeof packet) == 0);

    size_t length = carnet_sim_counters(stations[1], words, sizeof words);
    CHECK(length > sizeof words && words[0] == '{' && words[sizeof words - 1] == 0);

    for (unsigned node = 0; node < NODES; node++) carnet_sim_free(stations[node]);
    printf("%016llx\n", (unsigned long long)hash);
    return 0;
}
