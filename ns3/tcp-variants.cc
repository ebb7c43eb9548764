/*
 * SPDX-License-Identifier: GPL-2.0-only
 */

#include "tcp-variants.h"

#include "ns3/node.h"
#include "ns3/object-factory.h"
#include "ns3/rtt-estimator.h"
#include "ns3/simulator.h"
#include "ns3/tcp-congestion-ops.h"
#include "ns3/tcp-header.h"
#include "ns3/tcp-l4-protocol.h"
#include "ns3/tcp-option-ts.h"
#include "ns3/tcp-recovery-ops.h"
#include "ns3/tcp-rx-buffer.h"
#include "ns3/tcp-socket-state.h"
#include "ns3/tcp-tx-buffer.h"
#include "ns3/type-id.h"

#include <cmath>

using namespace ns3;

namespace carnet
{

NS_OBJECT_ENSURE_REGISTERED(HopTag);
NS_OBJECT_ENSURE_REGISTERED(FixedRtoSocket);
NS_OBJECT_ENSURE_REGISTERED(PatientReceiverSocket);

TypeId
HopTag::GetTypeId()
{
    static TypeId id = TypeId("carnet::HopTag").SetParent<Tag>().AddConstructor<HopTag>();
    return id;
}

TypeId
HopTag::GetInstanceTypeId() const
{
    return GetTypeId();
}

uint32_t
HopTag::GetSerializedSize() const
{
    return 1;
}

void
HopTag::Serialize(TagBuffer buffer) const
{
    buffer.WriteU8(hops);
}

void
HopTag::Deserialize(TagBuffer buffer)
{
    hops = buffer.ReadU8();
}

void
HopTag::Print(std::ostream& out) const
{
    out << "hops=" << int(hops);
}

TypeId
FixedRtoSocket::GetTypeId()
{
    static TypeId id =
        TypeId("carnet::FixedRtoSocket").SetParent<TcpSocketBase>().AddConstructor<FixedRtoSocket>();
    return id;
}

Ptr<TcpSocketBase>
FixedRtoSocket::Fork()
{
    return CopyObject<FixedRtoSocket>(this);
}

void
FixedRtoSocket::ReTxTimeout()
{
    const Time before = m_rto;
    const SequenceNumber32 first = m_txBuffer->HeadSequence();
    const bool again = m_any && first == m_timedOut;
    TcpSocketBase::ReTxTimeout();
    m_any = true;
    m_timedOut = first;
    if (again)
    {
        m_rto = before;
        if (m_retxEvent.IsPending())
        {
            m_retxEvent.Cancel();
            m_retxEvent = Simulator::Schedule(before, &FixedRtoSocket::ReTxTimeout, this);
        }
    }
}

namespace
{
PatientReceiverSocket::Counters g_counters;
}

TypeId
PatientReceiverSocket::GetTypeId()
{
    static TypeId id = TypeId("carnet::PatientReceiverSocket")
                           .SetParent<TcpSocketBase>()
                           .AddConstructor<PatientReceiverSocket>();
    return id;
}

const PatientReceiverSocket::Counters&
PatientReceiverSocket::GetCounters()
{
    return g_counters;
}

Ptr<TcpSocketBase>
PatientReceiverSocket::Fork()
{
    return CopyObject<PatientReceiverSocket>(this);
}

void
PatientReceiverSocket::DoForwardUp(Ptr<Packet> packet, const Address& from, const Address& to)
{
    HopTag tag;
    m_hops = packet->PeekPacketTag(tag) ? tag.hops : 0;
    TcpSocketBase::DoForwardUp(packet, from, to);
}

// The paper's formulas, with the sample that the echoed timestamp gives.
void
PatientReceiverSocket::Measure(const TcpHeader& header)
{
    if (!header.HasOption(TcpOption::TS))
    {
        return;
    }
    auto option = DynamicCast<const TcpOptionTS>(header.GetOption(TcpOption::TS));
    double rtt = TcpOptionTS::ElapsedTimeFromTsValue(option->GetEcho()).GetSeconds();
    if (m_srtt == 0)
    {
        m_srtt = rtt;
        m_rttvar = rtt / 2;
        return;
    }
    m_srtt = m_srtt * 7 / 8 + rtt / 8;
    m_rttvar = m_rttvar * 3 / 4 + std::abs(rtt - m_srtt) / 4;
}

Time
PatientReceiverSocket::Wait() const
{
    return Seconds(std::min(m_srtt + 4 * m_rttvar, 1.0));
}

void
PatientReceiverSocket::ReceivedData(Ptr<Packet> packet, const TcpHeader& header)
{
    Measure(header);
    const SequenceNumber32 expected = m_tcb->m_rxBuffer->NextRxSequence();
    const bool above = header.GetSequenceNumber() > expected;
    if (header.GetSequenceNumber() == expected)
    {
        m_hopsInOrder = m_hops;
    }
    g_counters.above += above;
    m_judged = above && m_hops != m_hopsInOrder;
    TcpSocketBase::ReceivedData(packet, header);
    m_judged = false;
    if (m_timer.IsPending() && m_tcb->m_rxBuffer->Size() == m_tcb->m_rxBuffer->Available())
    {
        // All that was missing has come: what has overtaken it had not been lost.
        m_timer.Cancel();
        g_counters.spared += m_heldAcks;
        m_heldAcks = 0;
    }
}

void
PatientReceiverSocket::SendEmptyPacket(uint8_t flags)
{
    if (m_judged && flags == TcpHeader::ACK)
    {
        m_heldAcks++;
        g_counters.held++;
        if (!m_timer.IsPending())
        {
            m_timer = Simulator::Schedule(Wait(), &PatientReceiverSocket::Give, this);
        }
        return;
    }
    TcpSocketBase::SendEmptyPacket(flags);
}

void
PatientReceiverSocket::Give()
{
    for (; m_heldAcks > 0; m_heldAcks--)
    {
        TcpSocketBase::SendEmptyPacket(TcpHeader::ACK);
    }
}

template <typename SOCKET>
TypeId
VariantFactory<SOCKET>::GetTypeId()
{
    static TypeId id = TypeId(SOCKET::GetTypeId().GetName() + "Factory").template SetParent<SocketFactory>();
    return id;
}

// As TcpL4Protocol makes its own.
template <typename SOCKET>
Ptr<Socket>
VariantFactory<SOCKET>::CreateSocket()
{
    auto tcp = node->GetObject<TcpL4Protocol>();
    auto make = [&tcp](const char* attribute) {
        TypeIdValue type;
        tcp->GetAttribute(attribute, type);
        ObjectFactory factory;
        factory.SetTypeId(type.Get());
        return factory.Create();
    };
    auto socket = CreateObject<SOCKET>();
    socket->SetNode(node);
    socket->SetTcp(tcp);
    socket->SetRtt(DynamicCast<RttEstimator>(make("RttEstimatorType")));
    socket->SetCongestionControlAlgorithm(DynamicCast<TcpCongestionOps>(make("SocketType")));
    socket->SetRecoveryAlgorithm(DynamicCast<TcpRecoveryOps>(make("RecoveryType")));
    tcp->AddSocket(socket);
    return socket;
}

template class VariantFactory<FixedRtoSocket>;
template class VariantFactory<PatientReceiverSocket>;

void
InstallTcpVariants(const NodeContainer& nodes)
{
    for (uint32_t i = 0; i < nodes.GetN(); i++)
    {
        auto fixed = CreateObject<FixedRtoFactory>();
        fixed->node = nodes.Get(i);
        nodes.Get(i)->AggregateObject(fixed);
        auto patient = CreateObject<PatientReceiverFactory>();
        patient->node = nodes.Get(i);
        nodes.Get(i)->AggregateObject(patient);
    }
}

} // namespace carnet
