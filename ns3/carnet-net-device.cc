/*
 * SPDX-License-Identifier: GPL-2.0-only
 */

#include "carnet-net-device.h"

#include "tcp-variants.h"

#include "ns3/ipv6.h"
#include "ns3/llc-snap-header.h"
#include "ns3/mobility-model.h"
#include "ns3/node.h"
#include "ns3/simulator.h"
#include "ns3/txop.h"
#include "ns3/wifi-mac-queue.h"
#include "ns3/wifi-mpdu.h"
#include "ns3/wifi-net-device.h"

#include <algorithm>
#include <chrono>
#include <cmath>

using namespace ns3;

namespace carnet
{

NS_OBJECT_ENSURE_REGISTERED(CarnetNetDevice);

namespace
{

constexpr uint16_t IPV4 = 0x0800;
constexpr uint16_t IPV6 = 0x86dd;
/** The date of the start, 2026-01-01, and the same in TAI milliseconds since 2004. */
constexpr uint64_t START_UNIX = 1767225600;
constexpr uint64_t START_ITS_MS = (START_UNIX - 1072915200 + 5) * 1000;

CoreUse g_used;
/** Longer times come from other processes or the kernel. */
constexpr auto INTERRUPTED = std::chrono::microseconds(50);
/** How old the position in a packet may be, ns, as `carnet run` has it: half a metre, within these bounds. */
constexpr uint64_t NEWEST = 10000000;
constexpr uint64_t OLDEST = 100000000;

uint64_t
Now()
{
    return static_cast<uint64_t>(Simulator::Now().GetNanoSeconds());
}

void
Hash(const void* octets, size_t length)
{
    auto at = static_cast<const uint8_t*>(octets);
    for (size_t i = 0; i < length; i++)
    {
        g_used.hash = (g_used.hash ^ at[i]) * 1099511628211ULL;
    }
}

std::vector<uint8_t>
Octets(Ptr<const Packet> packet)
{
    std::vector<uint8_t> octets(packet->GetSize());
    packet->CopyData(octets.data(), octets.size());
    return octets;
}

} // namespace

TypeId
CarnetNetDevice::GetTypeId()
{
    static TypeId id =
        TypeId("carnet::CarnetNetDevice")
            .SetParent<VirtualNetDevice>()
            .AddConstructor<CarnetNetDevice>()
            .AddAttribute("FixInterval",
                          "The time from one fix of the position to the next.",
                          TimeValue(MilliSeconds(100)),
                          MakeTimeAccessor(&CarnetNetDevice::m_fixInterval),
                          MakeTimeChecker())
            .AddAttribute("Processing",
                          "The longest time that a broadcast takes through the host. It is random: in no time at all, "
                          "those who repeat a broadcast would do so at the same moment, and nobody would hear them.",
                          TimeValue(MilliSeconds(2)),
                          MakeTimeAccessor(&CarnetNetDevice::m_jitter),
                          MakeTimeChecker())
            .AddTraceSource("Delivered",
                            "A payload came that is no IP packet: octets, hops.",
                            MakeTraceSourceAccessor(&CarnetNetDevice::m_delivered),
                            "carnet::CarnetNetDevice::DeliveredCallback")
            .AddTraceSource("Received",
                            "An IP packet goes up: packet, hops that it came (0: not known).",
                            MakeTraceSourceAccessor(&CarnetNetDevice::m_received),
                            "ns3::Packet::TracedCallback");
    return id;
}

CarnetNetDevice::CarnetNetDevice()
    : m_processing(CreateObject<UniformRandomVariable>())
{
    SetNeedsArp(true);
    SetSupportsSendFrom(false);
    SetMtu(1398);
    SetSendCallback(MakeCallback(&CarnetNetDevice::SendDown, this));
}

CarnetNetDevice::~CarnetNetDevice()
{
    carnet_sim_free(m_station);
}

void
CarnetNetDevice::DoDispose()
{
    m_deadline.Cancel();
    if (m_station)
    {
        Check(carnet_sim_flush(m_station));
    }
    carnet_sim_free(m_station);
    m_station = nullptr;
    m_radio = nullptr;
    VirtualNetDevice::DoDispose();
}

bool
CarnetNetDevice::IsMulticast() const
{
    return true;
}

Address
CarnetNetDevice::GetMulticast(Ipv4Address group) const
{
    return Mac48Address::GetMulticast(group);
}

Address
CarnetNetDevice::GetMulticast(Ipv6Address group) const
{
    return Mac48Address::GetMulticast(group);
}

void
CarnetNetDevice::Attach(Ptr<NetDevice> radio, const Settings& settings)
{
    NS_ABORT_MSG_UNLESS(carnet_sim_abi_version() == CARNET_SIM_ABI_VERSION,
                        "the library is another version than its header");
    m_radio = radio;
    m_settings = settings;
    Mac48Address address = radio ? Mac48Address::ConvertFrom(radio->GetAddress()) : Mac48Address::Allocate();
    SetAddress(address);
    SetNeedsArp(!settings.tunnel);
    uint8_t mac[6];
    address.CopyTo(mac);
    // EN 302 636-4-1 6.3: manually configured bit 0, station type, MID.
    uint64_t gnAddress = static_cast<uint64_t>(settings.type & 31) << 58;
    for (int i = 0; i < 6; i++)
    {
        gnAddress |= static_cast<uint64_t>(mac[i]) << (8 * (5 - i));
    }
    CarnetSimOptions options{};
    options.config = reinterpret_cast<const uint8_t*>(settings.config.data());
    options.config_length = settings.config.size();
    options.record = reinterpret_cast<const uint8_t*>(settings.record.data());
    options.record_length = settings.record.size();
    options.gn_address = radio ? gnAddress : 0;
    options.seed = settings.seed;
    options.now = Now();
    options.wall = START_UNIX * 1000000000 + Now();
    char error[1024];
    m_station = carnet_sim_new(&options, error, sizeof error);
    NS_ABORT_MSG_UNLESS(m_station, error);
    if (!radio)
    {
        return;
    }
    GetNode()->RegisterProtocolHandler(MakeCallback(&CarnetNetDevice::FromRadio, this), GEONETWORKING, radio);
    if (auto wifi = DynamicCast<WifiNetDevice>(radio); wifi && settings.feedback)
    {
        wifi->GetMac()->TraceConnectWithoutContext("DroppedMpdu", MakeCallback(&CarnetNetDevice::Dropped, this));
    }
    Simulator::ScheduleWithContext(GetNode()->GetId(), Seconds(0), &CarnetNetDevice::Fix, this);
}

void
CarnetNetDevice::SetKernel(Taker fromAir, Taker fromTunnel)
{
    m_fromAir = std::move(fromAir);
    m_fromTunnel = std::move(fromTunnel);
}

void
CarnetNetDevice::SendByAir(const std::vector<uint8_t>& packet, Mac48Address to)
{
    uint8_t from[6];
    uint8_t target[6];
    Mac48Address::ConvertFrom(GetAddress()).CopyTo(from);
    to.CopyTo(target);
    Run([&](uint64_t now) {
        return carnet_sim_handle_host_frame(m_station, now, 0, from, target, IPV6, packet.data(), packet.size());
    }, true);
}

void
CarnetNetDevice::Tunnel(const std::vector<uint8_t>& packet)
{
    Run([&](uint64_t now) { return carnet_sim_handle_packet(m_station, now, packet.data(), packet.size()); }, true);
}

void
CarnetNetDevice::Tell(const std::string& json)
{
    Run([&](uint64_t now) {
        return carnet_sim_handle_input(m_station, now, reinterpret_cast<const uint8_t*>(json.data()), json.size());
    }, false);
}

void
CarnetNetDevice::TellAddresses(const std::vector<Ipv6Address>& addresses)
{
    std::vector<CarnetSimAddress> told(addresses.size());
    for (size_t i = 0; i < addresses.size(); i++)
    {
        addresses[i].GetBytes(told[i].address);
        told[i].prefix_length = 64;
    }
    Run([&](uint64_t now) { return carnet_sim_handle_addresses(m_station, now, 0, told.data(), told.size()); }, false);
}

void
CarnetNetDevice::TellAddresses()
{
    auto ipv6 = GetNode()->GetObject<Ipv6>();
    int32_t interface = ipv6 ? ipv6->GetInterfaceForDevice(this) : -1;
    if (interface < 0)
    {
        return;
    }
    std::vector<Ipv6Address> addresses;
    for (uint32_t i = 0; i < ipv6->GetNAddresses(interface); i++)
    {
        addresses.push_back(ipv6->GetAddress(interface, i).GetAddress());
    }
    TellAddresses(addresses);
}

void
CarnetNetDevice::SendSingleHop(const std::vector<uint8_t>& payload)
{
    CarnetSimRequest request{};
    request.transport = CARNET_SIM_TRANSPORT_SINGLE_HOP;
    request.next_header = 2;
    Run([&](uint64_t now) { return carnet_sim_handle_request(m_station, now, &request, payload.data(), payload.size()); }, false);
}

std::string
CarnetNetDevice::Counters()
{
    std::string text(carnet_sim_counters(m_station, nullptr, 0) + 1, '\0');
    text.resize(carnet_sim_counters(m_station, text.data(), text.size()));
    return text;
}

const CoreUse&
CarnetNetDevice::Used()
{
    return g_used;
}

void
CarnetNetDevice::Check(CarnetSimStatus status)
{
    if (status != CARNET_SIM_STATUS_DONE && status != CARNET_SIM_STATUS_REFUSED)
    {
        char words[1024] = "";
        carnet_sim_last_error(m_station, words, sizeof words);
        NS_FATAL_ERROR("station of node " << GetNode()->GetId() << ": status " << status << ": " << words);
    }
}

template <typename F>
void
CarnetNetDevice::Run(F input, bool packet)
{
    if (!m_station)
    {
        return;
    }
    uint64_t now = Now();
    const bool first = m_placed == CARNET_SIM_NEVER;
    const bool moved = m_radio && (first || now - m_placed >= m_freshness);
    CarnetSimPosition position{};
    if (moved)
    {
        position = Place(now);
        m_freshness = std::clamp<uint64_t>(5e10 / std::max<int>(position.speed, 1), NEWEST, OLDEST);
    }
    const auto begin = std::chrono::steady_clock::now();
    auto drain = [this] {
        CarnetSimOutput output;
        CarnetSimStatus status;
        while ((status = carnet_sim_poll_output(m_station, &output)) == CARNET_SIM_STATUS_DONE)
        {
            Output kept{output.kind, {}, {}, output.ether_type, output.next_header, output.hops, {}};
            kept.source.CopyFrom(output.source);
            kept.destination.CopyFrom(output.destination);
            if (output.kind != CARNET_SIM_OUTPUT_KIND_OTHER)
            {
                kept.octets.assign(output.octets, output.octets + output.length);
                m_outputs.push_back(std::move(kept));
            }
        }
        if (status != CARNET_SIM_STATUS_EMPTY)
        {
            Check(status);
        }
    };
    if (first)
    {
        // The outputs of the start.
        drain();
        m_placed = now;
    }
    if (moved)
    {
        m_placed = now;
        Check(carnet_sim_handle_position(m_station, now, &position));
        drain();
    }
    Check(input(now));
    drain();
    uint64_t due = carnet_sim_deadline(m_station);
    const auto spent = std::chrono::steady_clock::now() - begin;
    if (spent < INTERRUPTED)
    {
        g_used.nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(spent).count();
    }
    g_used.calls++;
    g_used.packets += packet;
    if (due != m_planned || m_deadline.IsExpired())
    {
        m_deadline.Cancel();
        m_planned = due;
        if (due != CARNET_SIM_NEVER)
        {
            m_deadline = Simulator::Schedule(NanoSeconds(due - now), &CarnetNetDevice::Timeout, this);
        }
    }
    CarryOut();
}

CarnetSimPosition
CarnetNetDevice::Place(uint64_t now) const
{
    // Radii of curvature of WGS 84 at the origin.
    const double a = 6378137.0;
    const double e2 = 6.69437999014e-3;
    const double latitude = m_settings.origin.latitude * M_PI / 180;
    const double w = std::sqrt(1 - e2 * std::sin(latitude) * std::sin(latitude));
    const double north = a * (1 - e2) / (w * w * w);
    const double east = a / w * std::cos(latitude);
    auto mobility = GetNode()->GetObject<MobilityModel>();
    Vector place = mobility->GetPosition();
    Vector velocity = mobility->GetVelocity();
    double degrees = std::atan2(velocity.x, velocity.y) * 180 / M_PI;
    CarnetSimPosition position{};
    position.timestamp = static_cast<uint32_t>(START_ITS_MS + now / 1000000);
    position.latitude = std::lround((m_settings.origin.latitude + place.y / north * 180 / M_PI) * 1e7);
    position.longitude = std::lround((m_settings.origin.longitude + place.x / east * 180 / M_PI) * 1e7);
    // The wire has 15 bits for the speed: 163 m/s.
    position.speed = static_cast<int16_t>(std::min(16383L, std::lround(std::hypot(velocity.x, velocity.y) * 100)));
    position.heading = static_cast<uint16_t>(std::lround((degrees < 0 ? degrees + 360 : degrees) * 10) % 3600);
    position.accurate = true;
    return position;
}

// Passes the position of the receiver to the station, ten times a second.
void
CarnetNetDevice::Fix()
{
    if (m_station)
    {
        Run([](uint64_t) { return CARNET_SIM_STATUS_DONE; }, false);
        Simulator::Schedule(m_fixInterval, &CarnetNetDevice::Fix, this);
    }
}

void
CarnetNetDevice::Timeout()
{
    Run([this](uint64_t now) { return carnet_sim_handle_timeout(m_station, now); }, false);
}

// Outputs are carried out when the station has said everything, and those that come of them after them: a packet that
// goes up may be answered at once, which leads back into Run.
void
CarnetNetDevice::CarryOut()
{
    if (m_carrying)
    {
        return;
    }
    m_carrying = true;
    while (!m_outputs.empty())
    {
        Output output = std::move(m_outputs.front());
        m_outputs.pop_front();
        auto packet = Create<Packet>(output.octets.data(), output.octets.size());
        if (output.hops > 0)
        {
            HopTag tag;
            tag.hops = output.hops;
            packet->AddPacketTag(tag);
        }
        switch (output.kind)
        {
        case CARNET_SIM_OUTPUT_KIND_FRAME: {
            uint64_t now = Now();
            uint32_t node = GetNode()->GetId();
            Hash(&now, sizeof now);
            Hash(&node, sizeof node);
            Hash(output.octets.data(), output.octets.size());
            if (output.destination.IsGroup())
            {
                Simulator::Schedule(Seconds(m_processing->GetValue(0, m_jitter.GetSeconds())),
                                    [radio = m_radio, packet, to = output.destination] {
                                        radio->Send(packet, to, GEONETWORKING);
                                    });
                break;
            }
            m_radio->Send(packet, output.destination, GEONETWORKING);
            break;
        }
        case CARNET_SIM_OUTPUT_KIND_HOST_FRAME: {
            m_received(packet, output.hops);
            if (m_settings.tunnel)
            {
                if (m_fromAir)
                {
                    m_fromAir(output.octets, output.source);
                }
                break;
            }
            bool own = output.destination == Mac48Address::ConvertFrom(GetAddress());
            Receive(packet,
                    output.etherType,
                    output.source,
                    output.destination,
                    own                               ? PACKET_HOST
                    : output.destination.IsBroadcast() ? PACKET_BROADCAST
                                                       : PACKET_MULTICAST);
            break;
        }
        case CARNET_SIM_OUTPUT_KIND_DELIVERED:
            if (output.nextHeader == 0 && !output.octets.empty() && output.octets[0] >> 4 == 4)
            {
                m_received(packet, output.hops);
                Receive(packet, IPV4, output.source, GetAddress(), PACKET_HOST);
            }
            else
            {
                m_delivered(output.octets, output.hops);
            }
            break;
        case CARNET_SIM_OUTPUT_KIND_PACKET:
            if (!m_fromTunnel || !m_fromTunnel(output.octets, output.source))
            {
                Receive(packet, IPV6, GetAddress(), GetAddress(), PACKET_HOST);
            }
            break;
        default:
            break;
        }
    }
    m_carrying = false;
}

bool
CarnetNetDevice::SendDown(Ptr<Packet> packet, const Address& source, const Address& destination, uint16_t protocol)
{
    uint8_t from[6];
    uint8_t to[6];
    Mac48Address::ConvertFrom(source).CopyTo(from);
    Mac48Address::ConvertFrom(destination).CopyTo(to);
    std::vector<uint8_t> octets = Octets(packet);
    if (m_settings.tunnel)
    {
        Tunnel(octets);
        return true;
    }
    if (protocol == IPV4)
    {
        CarnetSimRequest request{};
        bool group = (to[0] & 1) != 0;
        request.transport = group ? CARNET_SIM_TRANSPORT_TOPOLOGICALLY_SCOPED : CARNET_SIM_TRANSPORT_GEO_UNICAST;
        for (uint8_t octet : to)
        {
            request.destination = request.destination << 8 | octet;
        }
        Run([&](uint64_t now) { return carnet_sim_handle_request(m_station, now, &request, octets.data(), octets.size()); }, true);
        return true;
    }
    if (protocol != IPV6)
    {
        return false;
    }
    TellBacklog();
    Run([&](uint64_t now) {
        return carnet_sim_handle_host_frame(m_station, now, 0, from, to, protocol, octets.data(), octets.size());
    }, true);
    return true;
}

// What `carnet run` asks the kernel.
void
CarnetNetDevice::TellBacklog()
{
    auto wifi = DynamicCast<WifiNetDevice>(m_radio);
    if (!m_settings.backlog || !wifi)
    {
        return;
    }
    uint32_t octets = wifi->GetMac()->GetTxop()->GetWifiMacQueue()->GetNBytes();
    if (octets != m_backlog)
    {
        m_backlog = octets;
        Tell("{\"geonet_backlog\":" + std::to_string(octets) + "}");
    }
}

void
CarnetNetDevice::FromRadio(Ptr<NetDevice>,
                           Ptr<const Packet> packet,
                           uint16_t,
                           const Address& source,
                           const Address& destination,
                           NetDevice::PacketType)
{
    uint8_t from[6];
    uint8_t to[6];
    Mac48Address::ConvertFrom(source).CopyTo(from);
    Mac48Address::ConvertFrom(destination).CopyTo(to);
    std::vector<uint8_t> octets = Octets(packet);
    Run([&](uint64_t now) { return carnet_sim_handle_frame(m_station, now, from, to, octets.data(), octets.size()); }, true);
}

// The MAC is in the middle of something: the station hears of it afterwards.
void
CarnetNetDevice::Dropped(WifiMacDropReason reason, Ptr<const WifiMpdu> mpdu)
{
    const WifiMacHeader& header = mpdu->GetHeader();
    if (reason != WIFI_MAC_DROP_REACHED_RETRY_LIMIT || !header.IsData() || header.GetAddr1().IsGroup())
    {
        return;
    }
    Ptr<Packet> packet = mpdu->GetPacket()->Copy();
    LlcSnapHeader llc;
    packet->RemoveHeader(llc);
    if (llc.GetType() == GEONETWORKING)
    {
        Simulator::ScheduleNow(&CarnetNetDevice::Unacknowledged, this, header.GetAddr1(), Octets(packet));
    }
}

void
CarnetNetDevice::Unacknowledged(Mac48Address destination, std::vector<uint8_t> octets)
{
    uint8_t from[6];
    uint8_t to[6];
    Mac48Address::ConvertFrom(GetAddress()).CopyTo(from);
    destination.CopyTo(to);
    Run([&](uint64_t now) {
        return carnet_sim_handle_unacknowledged(m_station, now, from, to, octets.data(), octets.size());
    }, true);
}

} // namespace carnet
