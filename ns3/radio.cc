/*
 * SPDX-License-Identifier: GPL-2.0-only
 */

#include "radio.h"

#include "ns3/boolean.h"
#include "ns3/config.h"
#include "ns3/double.h"
#include "ns3/propagation-delay-model.h"
#include "ns3/propagation-loss-model.h"
#include "ns3/queue-size.h"
#include "ns3/string.h"
#include "ns3/uinteger.h"
#include "ns3/wifi-helper.h"
#include "ns3/wifi-mac-helper.h"
#include "ns3/yans-wifi-channel.h"
#include "ns3/yans-wifi-helper.h"

using namespace ns3;

namespace carnet
{

NS_OBJECT_ENSURE_REGISTERED(CaptureModel);

TypeId
CaptureModel::GetTypeId()
{
    static TypeId id = TypeId("carnet::CaptureModel")
                           .SetParent<ErrorRateModel>()
                           .AddConstructor<CaptureModel>()
                           .AddAttribute("Threshold",
                                         "The ratio of powers from which on a frame survives.",
                                         DoubleValue(10),
                                         MakeDoubleAccessor(&CaptureModel::m_threshold),
                                         MakeDoubleChecker<double>(0));
    return id;
}

double
CaptureModel::DoGetChunkSuccessRate(WifiMode, const WifiTxVector&, double snr, uint64_t, uint8_t, WifiPpduField, uint16_t)
    const
{
    return snr >= m_threshold ? 1 : 0;
}

NetDeviceContainer
InstallRadio(const NodeContainer& nodes, const Radio& radio)
{
    Config::SetDefault("ns3::WifiMacQueue::MaxSize", QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, radio.queue)));
    Config::SetDefault("ns3::WifiRemoteStationManager::RtsCtsThreshold", UintegerValue(radio.rts ? 0 : 999999));
    auto channel = CreateObject<YansWifiChannel>();
    channel->SetPropagationDelayModel(CreateObject<ConstantSpeedPropagationDelayModel>());
    YansWifiPhyHelper phy;
    phy.SetChannel(channel);
    WifiHelper wifi;
    WifiMacHelper mac;
    // As ns-2's: 281.8 mW; 3.65e-10 W at 250 m are decoded, 1.56e-11 W at 550 m are sensed.
    const double power = 24.5;
    double decoded = -64.45;
    double sensed = -78.1;
    Ptr<PropagationLossModel> loss;
    if (radio.kind == "ns2" || radio.kind == "range" || radio.kind == "air")
    {
        wifi.SetStandard(WIFI_STANDARD_80211b);
        wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager",
                                     "DataMode",
                                     StringValue("DsssRate2Mbps"),
                                     "ControlMode",
                                     StringValue("DsssRate1Mbps"),
                                     "NonUnicastMode",
                                     StringValue("DsssRate2Mbps"));
        mac.SetType("ns3::AdhocWifiMac");
        phy.SetErrorRateModel("carnet::CaptureModel");
        if (radio.kind == "ns2")
        {
            loss = CreateObjectWithAttributes<TwoRayGroundPropagationLossModel>("Frequency",
                                                                                DoubleValue(914e6),
                                                                                "HeightAboveZ",
                                                                                DoubleValue(1.5));
        }
        else if (radio.kind == "range")
        {
            loss = CreateObjectWithAttributes<RangePropagationLossModel>("MaxRange", DoubleValue(250));
            decoded = sensed = 0;
        }
        else
        {
            // Free space, with as much less power that 250 m are the limit.
            loss = CreateObjectWithAttributes<LogDistancePropagationLossModel>("Exponent",
                                                                               DoubleValue(2),
                                                                               "ReferenceLoss",
                                                                               DoubleValue(40.99));
            sensed = -71.3;
        }
    }
    else if (radio.kind == "80211p")
    {
        wifi.SetStandard(WIFI_STANDARD_80211p);
        phy.Set("ChannelSettings", StringValue("{0, 10, BAND_5GHZ, 0}"));
        wifi.SetRemoteStationManager("ns3::ConstantRateWifiManager",
                                     "DataMode",
                                     StringValue("OfdmRate6MbpsBW10MHz"),
                                     "ControlMode",
                                     StringValue("OfdmRate6MbpsBW10MHz"),
                                     "NonUnicastMode",
                                     StringValue("OfdmRate6MbpsBW10MHz"));
        mac.SetType("ns3::AdhocWifiMac");
        // Dual slope would be nicer; this gives some 400 m to -85 dBm.
        loss = CreateObjectWithAttributes<LogDistancePropagationLossModel>("Exponent",
                                                                           DoubleValue(2.4),
                                                                           "ReferenceLoss",
                                                                           DoubleValue(47.9));
        decoded = -85;
        sensed = -88;
    }
    else
    {
        NS_FATAL_ERROR("no such radio: " << radio.kind << ", expected ns2, range, air or 80211p");
    }
    channel->SetPropagationLossModel(loss);
    phy.Set("TxPowerStart", DoubleValue(power));
    phy.Set("TxPowerEnd", DoubleValue(power));
    phy.Set("RxSensitivity", DoubleValue(sensed));
    phy.Set("CcaEdThreshold", DoubleValue(sensed));
    phy.SetPreambleDetectionModel("ns3::ThresholdPreambleDetectionModel",
                                  "Threshold",
                                  DoubleValue(radio.kind == "80211p" ? 4 : 10),
                                  "MinimumRssi",
                                  DoubleValue(decoded));
    return wifi.Install(phy, mac, nodes);
}

} // namespace carnet
