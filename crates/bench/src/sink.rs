//! Receives the packets of the benchmark by an XDP program (`bpf/sink.bpf.c`) that counts the benchmark's
//! packets and drops them.

use anyhow::{Context, anyhow};
use aya::Ebpf;
use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::Xdp;
use aya::programs::xdp::XdpMode;

use super::world::{NodeInterface, TestNetwork, run_in_node};

/// Counts of a sink of numbered packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NumberedPacketCounts {
    /// Number of packets that arrived after a packet with the same number.
    pub duplicated_packets: u64,
    /// Number of packets that arrived after a packet with a higher number.
    pub reordered_packets: u64,
}

/// A sink at an interface.
pub struct PacketSink {
    ebpf: Ebpf,
    received_by_cpu: PerCpuArray<MapData, [u64; 2]>,
    program_name: &'static str,
}

impl PacketSink {
    /// Attaches a sink to an interface that only counts packets.
    pub fn attach_counting(network: &TestNetwork, interface: NodeInterface) -> anyhow::Result<PacketSink> {
        let mut sink = PacketSink::load_program("take")?;
        sink.attach(network, interface)?;
        Ok(sink)
    }

    /// Attaches a sink to an interface that also reads the packets' numbers.
    pub fn attach_reading_numbers(
        network: &TestNetwork,
        interface: NodeInterface,
    ) -> anyhow::Result<PacketSink> {
        let mut sink = PacketSink::load_program("take_numbered")?;
        sink.attach(network, interface)?;
        Ok(sink)
    }

    fn load_program(program: &'static str) -> anyhow::Result<PacketSink> {
        let mut ebpf = Ebpf::load(&carnet_bpf::SINK.unpack()).context("cannot load the sink's programs")?;
        xdp_program(&mut ebpf, program)?
            .load()
            .with_context(|| format!("the kernel refuses XDP program {program}"))?;
        let taken = ebpf
            .take_map("TAKEN")
            .ok_or_else(|| anyhow!("bug: the BPF object of the packet sink has no map TAKEN"))?;
        Ok(PacketSink { ebpf, received_by_cpu: PerCpuArray::try_from(taken)?, program_name: program })
    }

    /// Attaches the sink's XDP program to an interface. The kernel detaches the program when this value is
    /// dropped.
    fn attach(&mut self, network: &TestNetwork, interface: NodeInterface) -> anyhow::Result<()> {
        let program = xdp_program(&mut self.ebpf, self.program_name)?;
        let node = network.node_name(interface.node);
        run_in_node(&node, || Ok(program.attach(interface.interface, XdpMode::Driver)?))
            .with_context(|| format!("cannot attach a sink to {} of {node}", interface.interface))?;
        Ok(())
    }

    /// Returns the numbers of packets and octets that the sink has received so far.
    fn received_counts(&self) -> anyhow::Result<[u64; 2]> {
        let counts = self.received_by_cpu.get(&0, 0).context("cannot read the sink's counts")?;
        Ok(counts.iter().fold([0; 2], |sum, count| [sum[0] + count[0], sum[1] + count[1]]))
    }

    /// Returns the number of packets that the sink has received so far.
    pub fn received_packets(&self) -> anyhow::Result<u64> {
        Ok(self.received_counts()?[0])
    }

    /// Returns the mean length in octets of the frames that the sink has received so far.
    pub fn mean_frame_length(&self) -> anyhow::Result<f64> {
        let [packets, octets] = self.received_counts()?;
        Ok(octets as f64 / packets.max(1) as f64)
    }

    /// Returns the counts of duplicated and reordered packets.
    pub fn numbered_packet_counts(&self) -> anyhow::Result<NumberedPacketCounts> {
        let map = self
            .ebpf
            .map("NUMBERED")
            .ok_or_else(|| anyhow!("bug: the BPF object of the packet sink has no map NUMBERED"))?;
        let value: [u64; 4] = Array::try_from(map)?.get(&0, 0)?;
        anyhow::ensure!(
            value[3] == 0,
            "{} received packets have sequence numbers that the source did not send",
            value[3]
        );
        Ok(NumberedPacketCounts { duplicated_packets: value[0], reordered_packets: value[1] })
    }
}

fn xdp_program<'a>(ebpf: &'a mut Ebpf, name: &str) -> anyhow::Result<&'a mut Xdp> {
    let program = ebpf
        .program_mut(name)
        .ok_or_else(|| anyhow!("bug: the BPF object of the packet sink has no program {name}"))?;
    Ok(program.try_into()?)
}
