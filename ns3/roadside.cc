/*
 * SPDX-License-Identifier: GPL-2.0-only
 */

#include "roadside.h"

#include "radio.h"

#include "ns3/boolean.h"
#include "ns3/config.h"
#include "ns3/constant-position-mobility-model.h"
#include "ns3/constant-velocity-mobility-model.h"
#include "ns3/csma-helper.h"
#include "ns3/data-rate.h"
#include "ns3/double.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv6-address-helper.h"
#include "ns3/ipv6-l3-protocol.h"
#include "ns3/ipv6-static-routing-helper.h"
#include "ns3/ipv6-static-routing.h"
#include "ns3/nstime.h"
#include "ns3/radvd-helper.h"
#include "ns3/random-variable-stream.h"
#include "ns3/simulator.h"
#include "ns3/uinteger.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

using namespace ns3;

namespace carnet
{

namespace
{

constexpr size_t IPV6_HEADER = 40;
constexpr uint8_t ICMPV6 = 58;
constexpr uint8_t ROUTER_ADVERTISEMENT = 134;
constexpr uint8_t PREFIX_INFORMATION = 3;
/** As the configs of the stations have it. ns-3 forwards nothing of the prefix for documentation. */
const char* const HOME_PREFIX = "fd00:db8:1::";
const char* const MOBILE_NETWORK = "fd00:db8:a::";
const char* const BUS = "fd00:db8:a::1";
const char* const HOME_ADDRESS = "fd00:db8:1::1234";

std::string
ReadFile(const std::string& path)
{
    std::ifstream file(path);
    NS_ABORT_MSG_UNLESS(file, "cannot read " << path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

std::string
Text(Ipv6Address address)
{
    std::ostringstream text;
    text << "\"" << address << "\"";
    return text.str();
}

std::string
Text(Mac48Address address)
{
    uint8_t octets[6];
    address.CopyTo(octets);
    std::ostringstream text;
    for (int i = 0; i < 6; i++)
    {
        text << (i ? "," : "[") << int(octets[i]);
    }
    text << "]";
    return text.str();
}

Ptr<Ipv6StaticRouting>
Routing(Ptr<Node> node)
{
    return Ipv6StaticRoutingHelper().GetStaticRouting(node->GetObject<Ipv6>());
}

uint32_t
InterfaceOf(Ptr<NetDevice> device)
{
    return device->GetNode()->GetObject<Ipv6>()->GetInterfaceForDevice(device);
}

// An interface whose addresses come otherwise than by helper.
uint32_t
AddInterface(Ptr<NetDevice> device)
{
    auto ipv6 = device->GetNode()->GetObject<Ipv6>();
    uint32_t interface = ipv6->AddInterface(device);
    ipv6->SetMetric(interface, 1);
    ipv6->SetUp(interface);
    ipv6->SetForwarding(interface, true);
    return interface;
}

Ipv6Address
UnitPrefix(uint32_t unit)
{
    std::ostringstream text;
    text << "fd00:db8:e" << std::hex << 0x100 + unit << "::";
    return Ipv6Address(text.str().c_str());
}

} // namespace

BusKernel::BusKernel(Ptr<CarnetNetDevice> device)
    : m_device(device),
      m_own(Ipv6Address::MakeAutoconfiguredLinkLocalAddress(device->GetAddress()))
{
    device->SetKernel([this](const auto& packet, Mac48Address from) { return FromAir(packet, from); },
                      [this](const auto& packet, Mac48Address) { return FromTunnel(packet); });
    Simulator::ScheduleWithContext(device->GetNode()->GetId(), Seconds(0), &BusKernel::TellInterface, this);
}

uint64_t
BusKernel::GetHandovers() const
{
    return m_handovers;
}

bool
BusKernel::FromAir(const std::vector<uint8_t>& packet, Mac48Address from)
{
    if (packet.size() <= IPV6_HEADER)
    {
        return true;
    }
    if (packet[6] == ICMPV6 && packet[IPV6_HEADER] == ROUTER_ADVERTISEMENT)
    {
        Advertised(packet, from);
        return true;
    }
    Ipv6Address destination = Ipv6Address::Deserialize(packet.data() + 24);
    auto isCareOf = [&](const Router& router) { return router.careOf == destination; };
    if (std::any_of(m_routers.begin(), m_routers.end(), isCareOf))
    {
        m_device->Tunnel(packet);
    }
    return true;
}

void
BusKernel::Advertised(const std::vector<uint8_t>& packet, Mac48Address from)
{
    Ipv6Address source = Ipv6Address::Deserialize(packet.data() + 8);
    auto isKnown = [&](const Router& router) { return router.address == source; };
    if (std::none_of(m_routers.begin(), m_routers.end(), isKnown))
    {
        // The options begin behind 16 octets of the message.
        for (size_t at = IPV6_HEADER + 16; at + 2 <= packet.size() && packet[at + 1] > 0; at += 8 * packet[at + 1])
        {
            if (packet[at] == PREFIX_INFORMATION && at + 32 <= packet.size())
            {
                Ipv6Address prefix = Ipv6Address::Deserialize(packet.data() + at + 16);
                m_routers.push_back({source, from, Ipv6Address::MakeAutoconfiguredAddress(m_device->GetAddress(), prefix)});
                break;
            }
        }
    }
    std::ostringstream input;
    input << "{\"icmpv6\":{\"interface\":\"gn0\",\"source\":" << Text(source)
          << ",\"destination\":" << Text(Ipv6Address::Deserialize(packet.data() + 24))
          << ",\"hop_limit\":" << int(packet[7]) << ",\"peer\":" << Text(from) << ",\"message\":\"" << std::hex;
    for (size_t at = IPV6_HEADER; at < packet.size(); at++)
    {
        input << int(packet[at] >> 4) << int(packet[at] & 15);
    }
    input << "\"}}";
    m_device->Tell(input.str());
    TellInterface();
}

void
BusKernel::TellInterface()
{
    std::vector<Ipv6Address> addresses{m_own};
    std::ostringstream routers;
    for (auto& router : m_routers)
    {
        addresses.push_back(router.careOf);
        routers << (routers.tellp() > 0 ? "," : "") << Text(router.address);
    }
    std::ostringstream input;
    input << "{\"interface\":{\"name\":\"gn0\",\"running\":true,\"mtu\":1398,\"link_address\":"
          << Text(Mac48Address::ConvertFrom(m_device->GetAddress())) << ",\"addresses\":[";
    const char* separator = "";
    for (auto& address : addresses)
    {
        input << separator << "{\"address\":" << Text(address)
              << ",\"prefix_length\":64,\"tentative\":false,\"duplicate\":false,\"deprecated\":false,\"temporary\":false}";
        separator = ",";
    }
    input << "],\"routers\":[" << routers.str() << "]}}";
    m_device->TellAddresses(addresses);
    m_device->Tell(input.str());
}

// By the source address, as the rules of the mobile router have it.
bool
BusKernel::FromTunnel(const std::vector<uint8_t>& packet)
{
    if (packet.size() < IPV6_HEADER)
    {
        return true;
    }
    Ipv6Address source = Ipv6Address::Deserialize(packet.data() + 8);
    for (auto& router : m_routers)
    {
        if (router.careOf == source)
        {
            if (m_used != router.careOf)
            {
                m_handovers += m_used != Ipv6Address::GetAny();
                m_used = router.careOf;
            }
            m_device->SendByAir(packet, router.station);
            return true;
        }
    }
    // To the mobile network.
    return false;
}

Roadside
MakeRoadside(double speed, double seconds, const std::string& phy, const std::string& stations, uint32_t seed)
{
    Roadside road;
    uint32_t units = static_cast<uint32_t>(std::ceil(speed * seconds / BETWEEN_UNITS)) + 1;
    road.nodes.Create(3 + units);
    Ptr<Node> bus = road.nodes.Get(0);
    Ptr<Node> correspondent = road.nodes.Get(1);
    Ptr<Node> agent = road.nodes.Get(2);

    // Units at the edge of the road; the bus starts somewhere between the first two, by the seed.
    auto random = CreateObject<UniformRandomVariable>();
    auto drive = CreateObject<ConstantVelocityMobilityModel>();
    drive->SetPosition({random->GetValue(0, BETWEEN_UNITS / 2), 0, 0});
    drive->SetVelocity({speed, 0, 0});
    bus->AggregateObject(drive);
    NodeContainer onAir(bus);
    NodeContainer wired(correspondent, agent);
    for (uint32_t i = 0; i < units; i++)
    {
        Ptr<Node> unit = road.nodes.Get(3 + i);
        auto place = CreateObject<ConstantPositionMobilityModel>();
        place->SetPosition({i * BETWEEN_UNITS, 10, 0});
        unit->AggregateObject(place);
        onAir.Add(unit);
        wired.Add(unit);
    }
    Radio radio;
    radio.kind = phy;
    road.radios = InstallRadio(onAir, radio);

    auto make = [&](Ptr<Node> node, Ptr<NetDevice> below, const std::string& station, bool tunnel, uint8_t type) {
        auto device = CreateObject<CarnetNetDevice>();
        node->AddDevice(device);
        CarnetNetDevice::Settings settings;
        settings.config = ReadFile(stations + "/" + station + ".toml");
        settings.seed = (static_cast<uint64_t>(seed) << 32) + node->GetId();
        settings.tunnel = tunnel;
        settings.type = type;
        device->Attach(below, settings);
        road.devices.Add(device);
        return device;
    };
    InternetStackHelper stack;
    stack.SetIpv4StackInstall(false);
    stack.Install(road.nodes);

    // The wired part: five milliseconds between any two nodes.
    CsmaHelper csma;
    csma.SetChannelAttribute("DataRate", DataRateValue(DataRate("100Mbps")));
    csma.SetChannelAttribute("Delay", TimeValue(MilliSeconds(5)));
    NetDeviceContainer wires = csma.Install(wired);
    Ipv6AddressHelper addresses(Ipv6Address("fd00:db8:f::"), Ipv6Prefix(64));
    Ipv6InterfaceContainer backbone = addresses.Assign(wires);
    for (uint32_t i = 0; i < wires.GetN(); i++)
    {
        backbone.SetForwarding(i, true);
    }
    Ipv6Address agentWire = backbone.GetAddress(1, 1);

    // EN 302 636-4-1 6.3: 6 is a bus, 15 a roadside unit.
    auto busDevice = make(bus, road.radios.Get(0), "bus", true, 6);
    AddInterface(busDevice);
    bus->GetObject<Ipv6>()->AddAddress(InterfaceOf(busDevice), Ipv6InterfaceAddress(Ipv6Address(BUS), Ipv6Prefix(64)));
    // As a mobile router has it, so that it answers the home agent's probes of the path MTU; a kernel without the address
    // would route them back into the tunnel.
    bus->GetObject<Ipv6>()->AddAddress(InterfaceOf(busDevice),
                                       Ipv6InterfaceAddress(Ipv6Address(HOME_ADDRESS), Ipv6Prefix(128)));
    Routing(bus)->AddNetworkRouteTo(Ipv6Address::GetAny(), Ipv6Prefix::GetZero(), InterfaceOf(busDevice));
    road.bus = Ipv6Address(BUS);
    road.kernel = std::make_unique<BusKernel>(busDevice);

    // The home agent's address is not assigned but led into its tunnel device, as on the road.
    auto agentDevice = make(agent, nullptr, "home-agent", true, 0);
    AddInterface(agentDevice);
    // Routes want to know a source address.
    agent->GetObject<Ipv6>()->AddAddress(InterfaceOf(agentDevice),
                                         Ipv6InterfaceAddress(Ipv6Address("fd00:db8:1::2"), Ipv6Prefix(64)));
    for (const char* prefix : {HOME_PREFIX, MOBILE_NETWORK})
    {
        Routing(agent)->AddNetworkRouteTo(Ipv6Address(prefix), Ipv6Prefix(64), InterfaceOf(agentDevice));
        Routing(correspondent)->AddNetworkRouteTo(Ipv6Address(prefix), Ipv6Prefix(64), agentWire, InterfaceOf(wires.Get(0)));
    }
    RadvdHelper advertisements;
    ApplicationContainer advertisers;
    for (uint32_t i = 0; i < units; i++)
    {
        Ptr<Node> unit = road.nodes.Get(3 + i);
        auto device = make(unit, road.radios.Get(1 + i), "roadside-unit", false, 15);
        Ipv6Address prefix = UnitPrefix(i);
        Ipv6AddressHelper local(prefix, Ipv6Prefix(64));
        local.Assign(NetDeviceContainer(device)).SetForwarding(0, true);
        Simulator::ScheduleWithContext(unit->GetId(), Seconds(0), [device] { device->TellAddresses(); });
        Routing(unit)->AddNetworkRouteTo(Ipv6Address(HOME_PREFIX), Ipv6Prefix(64), agentWire, InterfaceOf(wires.Get(2 + i)));
        Routing(agent)->AddNetworkRouteTo(prefix, Ipv6Prefix(64), backbone.GetAddress(2 + i, 1), InterfaceOf(wires.Get(1)));
        RadvdHelper helper;
        helper.AddAnnouncedPrefix(InterfaceOf(device), prefix, 64);
        auto interface = helper.GetRadvdInterface(InterfaceOf(device));
        interface->SetMinRtrAdvInterval(3000);
        interface->SetMaxRtrAdvInterval(10000);
        interface->SetSendAdvert(true);
        advertisers.Add(helper.Install(unit));
        // ns-3 sends advertisements with the common hop limit, which every receiver drops (RFC 4861 6.1.2).
        unit->GetObject<Ipv6L3Protocol>()->SetAttribute("DefaultTtl", UintegerValue(255));
    }
    advertisers.Start(Seconds(0.5));
    return road;
}

} // namespace carnet
