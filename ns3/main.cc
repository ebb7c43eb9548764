/*
 * One run of one scenario: options in, one line of JSON out. `eval/` runs many of them.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */

#include "carnet-net-device.h"
#include "motion.h"
#include "radio.h"
#include "roadside.h"
#include "tcp-variants.h"
#include "traffic.h"

#include "ns3/aodv-helper.h"
#include "ns3/arp-cache.h"
#include "ns3/boolean.h"
#include "ns3/bulk-send-helper.h"
#include "ns3/command-line.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/dsdv-helper.h"
#include "ns3/inet-socket-address.h"
#include "ns3/inet6-socket-address.h"
#include "ns3/internet-stack-helper.h"
#include "ns3/ipv4-address-helper.h"
#include "ns3/ipv4-interface.h"
#include "ns3/ipv4-l3-protocol.h"
#include "ns3/ipv6-address-helper.h"
#include "ns3/ipv6-l3-protocol.h"
#include "ns3/olsr-helper.h"
#include "ns3/packet-sink-helper.h"
#include "ns3/packet-sink.h"
#include "ns3/pointer.h"
#include "ns3/random-variable-stream.h"
#include "ns3/rng-seed-manager.h"
#include "ns3/simulator.h"
#include "ns3/string.h"
#include "ns3/tcp-socket-factory.h"
#include "ns3/traffic-control-helper.h"
#include "ns3/uinteger.h"
#include "ns3/wifi-net-device.h"
#include "ns3/yans-wifi-helper.h"

#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <sys/resource.h>

using namespace ns3;
using namespace carnet;

namespace
{

struct Options
{
    Motion motion;
    Radio radio;
    std::string routing = "carnet";
    std::string config;
    std::string traffic = "udp";
    std::string tcp = "NewReno";
    std::string variant = "plain";
    std::string record;
    std::string pcap;
    double rate = 1;
    uint32_t size = 1000;
    uint32_t window = 16;
    uint32_t ip = 6;
    double duration = 100;
    double start = 5;
    double cam = 0;
    uint32_t seed = 1;
    bool feedback = true;
    bool backlog = false;
    bool ecn = false;
};

std::string
ReadFile(const std::string& path)
{
    std::ifstream file(path);
    NS_ABORT_MSG_UNLESS(file, "cannot read " << path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

void
SetTcp(const Options& options)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TypeId::LookupByName("ns3::Tcp" + options.tcp)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(options.size));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(options.window * options.size));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(options.window * options.size));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(false));
    // Both as in Linux. If ACKs were delayed for as long as the shortest RTO, a window of one segment would time out each
    // time, and stay one for ever.
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40)));
    Config::SetDefault("ns3::TcpSocketBase::UseEcn", StringValue(options.ecn ? "On" : "Off"));
}

// No ARP on the air: what is measured is routing. Entries are permanent because AODV takes the loss of frames seriously
// only for those (and those that ARP has confirmed).
void
FillArp(const NodeContainer& nodes, const NetDeviceContainer& devices)
{
    for (uint32_t i = 0; i < nodes.GetN(); i++)
    {
        auto ip = nodes.Get(i)->GetObject<Ipv4L3Protocol>();
        auto cache = ip->GetInterface(ip->GetInterfaceForDevice(devices.Get(i)))->GetArpCache();
        for (uint32_t j = 0; j < nodes.GetN(); j++)
        {
            if (i == j)
            {
                continue;
            }
            auto other = nodes.Get(j)->GetObject<Ipv4L3Protocol>();
            auto address = other->GetAddress(other->GetInterfaceForDevice(devices.Get(j)), 0).GetLocal();
            auto entry = cache->Add(address);
            entry->SetMacAddress(devices.Get(j)->GetAddress());
            entry->MarkPermanent();
        }
    }
}

NetDeviceContainer
InstallCarnet(const NodeContainer& nodes, const NetDeviceContainer& radios, const Options& options)
{
    NetDeviceContainer devices;
    CarnetNetDevice::Settings settings;
    settings.config = ReadFile(options.config);
    settings.feedback = options.feedback;
    settings.backlog = options.backlog;
    for (uint32_t i = 0; i < nodes.GetN(); i++)
    {
        auto device = CreateObject<CarnetNetDevice>();
        nodes.Get(i)->AddDevice(device);
        settings.seed = (static_cast<uint64_t>(options.seed) << 32) + i;
        settings.record = options.record.empty() ? "" : options.record + "-" + std::to_string(i) + ".jsonl";
        device->Attach(radios.Get(i), settings);
        devices.Add(device);
    }
    return devices;
}

double
CpuSeconds()
{
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + 1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Sums of the numbers of flat JSON objects.
void
AddCounters(const std::string& json, std::map<std::string, uint64_t>& sums)
{
    size_t at = 0;
    while ((at = json.find('"', at)) != std::string::npos)
    {
        size_t end = json.find('"', at + 1);
        sums[json.substr(at + 1, end - at - 1)] += std::stoull(json.substr(end + 2));
        at = end + 1;
    }
}

uint64_t g_frames = 0;
uint64_t g_frameOctets = 0;
uint64_t g_macDrops = 0;
std::map<uint8_t, uint64_t> g_hops;
uint64_t g_cams = 0;
std::vector<double> g_bytes;

void
Sent(Ptr<const Packet> packet, double)
{
    g_frames++;
    g_frameOctets += packet->GetSize();
}

void
Dropped(WifiMacDropReason, Ptr<const WifiMpdu>)
{
    g_macDrops++;
}

void
Received(Ptr<const Packet>, uint8_t hops)
{
    g_hops[hops]++;
}

void
CamReceived(const std::vector<uint8_t>&, uint8_t)
{
    g_cams++;
}

void
SendCam(Ptr<CarnetNetDevice> device, Time interval)
{
    // A CAM with certificate and signature has some 300 octets.
    device->SendSingleHop(std::vector<uint8_t>(300, 0));
    Simulator::Schedule(interval, &SendCam, device, interval);
}

// Parameters of a run.
struct Network
{
    NodeContainer nodes;
    NetDeviceContainer radios;
    NetDeviceContainer devices; //!< Those with stations, or the radios of competitors.
    Ptr<Node> sender;
    Ptr<Node> receiver;
    Address destination; //!< The receiver's.
    Roadside road;       //!< Of that scenario.
};

Network
MakeRoad(const Options& options, uint16_t port)
{
    Network network;
    network.road = MakeRoadside(options.motion.speed,
                                options.start + options.duration,
                                options.radio.kind,
                                options.config,
                                options.seed);
    network.nodes = network.road.nodes;
    network.radios = network.road.radios;
    network.devices = network.road.devices;
    network.sender = network.nodes.Get(1);
    network.receiver = network.nodes.Get(0);
    network.destination = Inet6SocketAddress(network.road.bus, port);
    return network;
}

Network
MakeNetwork(const Options& options, uint16_t port)
{
    // Motion first: with the same seed it is the same for all competitors.
    Network network;
    network.nodes = MakeNodes(options.motion);
    network.radios = InstallRadio(network.nodes, options.radio);
    const bool carnet = options.routing == "carnet";
    network.devices = carnet ? InstallCarnet(network.nodes, network.radios, options) : network.radios;
    NodeContainer& nodes = network.nodes;
    NetDeviceContainer& devices = network.devices;
    network.sender = nodes.Get(0);
    network.receiver = nodes.Get(1);

    InternetStackHelper stack;
    AodvHelper aodv;
    OlsrHelper olsr;
    DsdvHelper dsdv;
    if (options.routing == "aodv")
    {
        stack.SetRoutingHelper(aodv);
    }
    else if (options.routing == "olsr")
    {
        stack.SetRoutingHelper(olsr);
    }
    else if (options.routing == "dsdv")
    {
        stack.SetRoutingHelper(dsdv);
    }
    else if (!carnet)
    {
        NS_FATAL_ERROR("no such routing: " << options.routing << ", expected carnet, aodv, olsr or dsdv");
    }
    stack.SetIpv4StackInstall(options.ip == 4);
    stack.SetIpv6StackInstall(options.ip == 6);
    stack.Install(nodes);

    if (options.ip == 4)
    {
        Ipv4AddressHelper addresses("10.0.0.0", "255.255.0.0");
        auto interfaces = addresses.Assign(devices);
        if (!carnet)
        {
            TrafficControlHelper().Uninstall(devices);
        }
        if (nodes.GetN() <= 200)
        {
            FillArp(nodes, devices);
        }
        network.destination = InetSocketAddress(interfaces.GetAddress(1), port);
    }
    else
    {
        Ipv6AddressHelper addresses("fd00:0:0:1::", Ipv6Prefix(64));
        auto interfaces = addresses.Assign(devices);
        for (uint32_t i = 0; i < nodes.GetN(); i++)
        {
            // A router solicits no routers.
            interfaces.SetForwarding(i, true);
            auto device = DynamicCast<CarnetNetDevice>(devices.Get(i));
            Simulator::ScheduleWithContext(i, Seconds(0), [device] { device->TellAddresses(); });
        }
        network.destination = Inet6SocketAddress(interfaces.GetAddress(1, 1), port);
    }
    return network;
}

} // namespace

int
main(int argc, char* argv[])
{
    Options options;
    CommandLine command(__FILE__);
    command.AddValue("scenario", "columns, waypoint, swarm, highway, trace or roadside", options.motion.scenario);
    command.AddValue("nodes", "how many; 0 for the scenario's number", options.motion.nodes);
    command.AddValue("speed", "metres per second", options.motion.speed);
    command.AddValue("trace", "file of the scenario trace", options.motion.trace);
    command.AddValue("phy", "ns2, range, air or 80211p", options.radio.kind);
    command.AddValue("queue", "frames that wait at the MAC", options.radio.queue);
    command.AddValue("routing", "carnet, aodv, olsr or dsdv", options.routing);
    command.AddValue("config", "config file of the stations; of the scenario roadside their folder", options.config);
    command.AddValue("feedback", "whether the MAC says what was not acknowledged", options.feedback);
    command.AddValue("backlog", "whether the MAC says how many octets wait", options.backlog);
    command.AddValue("ecn", "whether TCP hears of congestion (RFC 3168)", options.ecn);
    command.AddValue("traffic", "udp, tcp or none", options.traffic);
    command.AddValue("rate", "datagrams per second", options.rate);
    command.AddValue("size", "octets of a datagram or segment", options.size);
    command.AddValue("window", "segments of TCP's window", options.window);
    command.AddValue("tcp", "NewReno, Cubic or Bbr", options.tcp);
    command.AddValue("variant", "of TCP: plain, fixed-rto or patient (the paper's receiver)", options.variant);
    command.AddValue("ip", "4 or 6; only 4 without carnet", options.ip);
    command.AddValue("cam", "CAMs per second of each node", options.cam);
    command.AddValue("duration", "seconds of traffic", options.duration);
    command.AddValue("start", "when traffic begins, seconds", options.start);
    command.AddValue("seed", "of all randomness", options.seed);
    command.AddValue("record", "prefix of recordings, one for each station", options.record);
    command.AddValue("pcap", "prefix of packet captures, one for each node", options.pcap);
    command.Parse(argc, argv);
    bool carnet = options.routing == "carnet";
    NS_ABORT_MSG_IF(carnet && options.config.empty(), "carnet wants a --config");
    if (!carnet)
    {
        options.ip = 4;
    }

    RngSeedManager::SetSeed(20070101);
    RngSeedManager::SetRun(options.seed);
    SetTcp(options);
    Config::SetDefault("ns3::aodv::RoutingProtocol::EnableHello", BooleanValue(false));
    Config::SetDefault("ns3::aodv::RoutingProtocol::DestinationOnly", BooleanValue(true));
    Config::SetDefault("ns3::aodv::RoutingProtocol::TtlStart", UintegerValue(5));

    const uint16_t port = 9;
    Network network = options.motion.scenario == "roadside" ? MakeRoad(options, port) : MakeNetwork(options, port);
    NodeContainer& nodes = network.nodes;
    NetDeviceContainer& devices = network.devices;

    for (uint32_t i = 0; i < network.radios.GetN(); i++)
    {
        auto wifi = DynamicCast<WifiNetDevice>(network.radios.Get(i));
        wifi->GetPhy()->TraceConnectWithoutContext("PhyTxBegin", MakeCallback(&Sent));
        wifi->GetMac()->TraceConnectWithoutContext("DroppedMpdu", MakeCallback(&Dropped));
    }
    for (uint32_t i = 0; i < devices.GetN(); i++)
    {
        if (auto device = DynamicCast<CarnetNetDevice>(devices.Get(i)))
        {
            device->TraceConnectWithoutContext("Received", MakeCallback(&Received));
            device->TraceConnectWithoutContext("Delivered", MakeCallback(&CamReceived));
            if (options.cam > 0)
            {
                Time interval = Seconds(1 / options.cam);
                auto random = CreateObject<UniformRandomVariable>();
                Time first = Seconds(random->GetValue(0, 1 / options.cam));
                uint32_t node = device->GetNode()->GetId();
                Simulator::ScheduleWithContext(node, first, &SendCam, device, interval);
            }
        }
    }
    if (!options.pcap.empty())
    {
        YansWifiPhyHelper pcap;
        pcap.SetPcapDataLinkType(WifiPhyHelper::DLT_IEEE802_11);
        pcap.EnablePcap(options.pcap, network.radios);
    }

    Time start = Seconds(options.start);
    Time stop = start + Seconds(options.duration);
    DatagramStream stream;
    ApplicationContainer sink;
    if (options.traffic == "udp")
    {
        stream.Start(network.sender, network.receiver, network.destination, options.rate, options.size, start, stop);
    }
    else if (options.traffic == "tcp")
    {
        Address local = options.ip == 4 ? Address(InetSocketAddress(Ipv4Address::GetAny(), port))
                                        : Address(Inet6SocketAddress(Ipv6Address::GetAny(), port));
        InstallTcpVariants(NodeContainer(network.sender, network.receiver));
        bool fixed = options.variant == "fixed-rto";
        bool patient = options.variant == "patient";
        NS_ABORT_MSG_UNLESS(fixed || patient || options.variant == "plain", "no such variant: " << options.variant);
        PacketSinkHelper receiver(patient ? PatientReceiverFactory::GetTypeId().GetName() : "ns3::TcpSocketFactory",
                                  local);
        sink = receiver.Install(network.receiver);
        BulkSendHelper sender(fixed ? FixedRtoFactory::GetTypeId().GetName() : "ns3::TcpSocketFactory", network.destination);
        sender.SetAttribute("MaxBytes", UintegerValue(0));
        sender.SetAttribute("SendSize", UintegerValue(options.size));
        auto app = sender.Install(network.sender);
        app.Start(start);
        app.Stop(stop);
    }
    // Datagrams on their way still count.
    Time end = options.traffic == "udp" ? stop + Seconds(2) : stop;

    auto begin = std::chrono::steady_clock::now();
    Simulator::Stop(end);
    Simulator::Run();
    double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

    std::ostringstream line;
    line.precision(9);
    line << "{\"scenario\":\"" << options.motion.scenario << "\",\"routing\":\"" << options.routing
         << "\",\"traffic\":\"" << options.traffic << "\",\"phy\":\"" << options.radio.kind
         << "\",\"tcp\":\"" << options.tcp << "\",\"variant\":\"" << options.variant << "\",\"nodes\":" << nodes.GetN() << ",\"speed\":" << options.motion.speed
         << ",\"rate\":" << options.rate << ",\"seed\":" << options.seed << ",\"ip\":" << options.ip
         << ",\"duration\":" << options.duration;
    if (options.traffic == "udp")
    {
        auto& result = stream.GetResult();
        line << ",\"sent\":" << result.sent << ",\"received\":" << result.received
             << ",\"delivery\":" << (result.sent ? double(result.received) / result.sent : 0)
             << ",\"duplicates\":" << result.duplicates << ",\"reordered\":" << result.reordered
             << ",\"delay\":" << (result.received ? result.delay / result.received : 0)
             << ",\"longest_delay\":" << result.longest << ",\"outage\":" << result.outage;
    }
    else if (options.traffic == "tcp")
    {
        double octets = DynamicCast<PacketSink>(sink.Get(0))->GetTotalRx();
        line << ",\"octets\":" << octets << ",\"kbps\":" << octets * 8 / options.duration / 1000;
        auto& patience = PatientReceiverSocket::GetCounters();
        line << ",\"above_gap\":" << patience.above << ",\"acks_held\":" << patience.held
             << ",\"acks_spared\":" << patience.spared;
    }
    line << ",\"frames\":" << g_frames << ",\"frame_octets\":" << g_frameOctets << ",\"mac_drops\":" << g_macDrops;
    if (carnet)
    {
        auto& used = CarnetNetDevice::Used();
        std::map<std::string, uint64_t> sums;
        for (uint32_t i = 0; i < devices.GetN(); i++)
        {
            AddCounters(DynamicCast<CarnetNetDevice>(devices.Get(i))->Counters(), sums);
        }
        line << ",\"cams\":" << g_cams << ",\"core_ns\":" << used.nanoseconds << ",\"core_calls\":" << used.calls
             << ",\"core_packets\":" << used.packets << ",\"hash\":\"" << std::hex << used.hash << std::dec
             << "\",\"hops\":{";
        const char* separator = "";
        for (auto& [hops, count] : g_hops)
        {
            line << separator << "\"" << int(hops) << "\":" << count;
            separator = ",";
        }
        line << "},\"counters\":{";
        separator = "";
        for (auto& [name, count] : sums)
        {
            if (count > 0)
            {
                line << separator << "\"" << name << "\":" << count;
                separator = ",";
            }
        }
        line << "}";
    }
    if (network.road.kernel)
    {
        line << ",\"handovers\":" << network.road.kernel->GetHandovers();
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    line << ",\"events\":" << Simulator::GetEventCount() << ",\"cpu_s\":" << CpuSeconds() << ",\"wall_s\":" << wall
         << ",\"rss_kb\":" << usage.ru_maxrss << "}";
    std::cout << line.str() << std::endl;
    Simulator::Destroy();
    return 0;
}
