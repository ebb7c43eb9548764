/*
 * SPDX-License-Identifier: GPL-2.0-only
 */

#include "traffic.h"

#include "ns3/inet-socket-address.h"
#include "ns3/inet6-socket-address.h"
#include "ns3/simulator.h"
#include "ns3/udp-socket-factory.h"

#include <algorithm>
#include <cstring>
#include <vector>

using namespace ns3;

namespace carnet
{

void
DatagramStream::Start(Ptr<Node> from,
                      Ptr<Node> to,
                      const Address& destination,
                      double rate,
                      uint32_t size,
                      Time start,
                      Time stop)
{
    m_destination = destination;
    m_interval = Seconds(1 / rate);
    m_size = std::max<uint32_t>(size, 12);
    m_stop = stop;
    m_arrival = start;
    bool ipv6 = Inet6SocketAddress::IsMatchingType(destination);
    m_receiver = Socket::CreateSocket(to, UdpSocketFactory::GetTypeId());
    if (ipv6)
    {
        m_receiver->Bind(Inet6SocketAddress(Ipv6Address::GetAny(), Inet6SocketAddress::ConvertFrom(destination).GetPort()));
    }
    else
    {
        m_receiver->Bind(InetSocketAddress(Ipv4Address::GetAny(), InetSocketAddress::ConvertFrom(destination).GetPort()));
    }
    m_receiver->SetRecvCallback(MakeCallback(&DatagramStream::Receive, this));
    m_sender = Socket::CreateSocket(from, UdpSocketFactory::GetTypeId());
    ipv6 ? m_sender->Bind6() : m_sender->Bind();
    Simulator::ScheduleWithContext(from->GetId(), start, &DatagramStream::SendNext, this);
}

const DatagramStream::Result&
DatagramStream::GetResult() const
{
    return m_result;
}

// Each has its number and the time in front.
void
DatagramStream::SendNext()
{
    if (Simulator::Now() >= m_stop)
    {
        return;
    }
    std::vector<uint8_t> octets(m_size);
    uint32_t number = static_cast<uint32_t>(m_result.sent++);
    int64_t now = Simulator::Now().GetNanoSeconds();
    std::memcpy(octets.data(), &number, sizeof number);
    std::memcpy(octets.data() + sizeof number, &now, sizeof now);
    m_sender->SendTo(Create<Packet>(octets.data(), octets.size()), 0, m_destination);
    Simulator::Schedule(m_interval, &DatagramStream::SendNext, this);
}

void
DatagramStream::Receive(Ptr<Socket> socket)
{
    while (Ptr<Packet> packet = socket->Recv())
    {
        uint8_t octets[12];
        packet->CopyData(octets, sizeof octets);
        uint32_t number;
        int64_t sent;
        std::memcpy(&number, octets, sizeof number);
        std::memcpy(&sent, octets + sizeof number, sizeof sent);
        if (!m_seen.insert(number).second)
        {
            m_result.duplicates++;
            continue;
        }
        double delay = (Simulator::Now() - NanoSeconds(sent)).GetSeconds();
        m_result.received++;
        m_result.reordered += number < m_latest;
        m_latest = std::max(m_latest, number);
        m_result.delay += delay;
        m_result.longest = std::max(m_result.longest, delay);
        m_result.outage = std::max(m_result.outage, (Simulator::Now() - m_arrival).GetSeconds());
        m_arrival = Simulator::Now();
    }
}

} // namespace carnet
