//! The end of the packets: an XDP program (`bpf/sink.bpf.c`) that counts those of the benchmark and drops them.

use anyhow::{Context, anyhow};
use aya::Ebpf;
use aya::maps::{Array, MapData};
use aya::programs::Xdp;
use aya::programs::xdp::{XdpLinkId, XdpMode};

use super::world::{Place, World, inside};

/// A sink at an interface.
pub struct Sink {
    ebpf: Ebpf,
    taken: Array<MapData, [u64; 2]>,
    program: &'static str,
    link: Option<XdpLinkId>,
}

impl Sink {
    /// Only counts.
    pub fn counting() -> anyhow::Result<Sink> {
        Sink::load("take")
    }

    fn load(program: &'static str) -> anyhow::Result<Sink> {
        let mut ebpf = Ebpf::load(carnet_bpf::SINK).context("cannot load the sink's programs")?;
        xdp(&mut ebpf, program)?
            .load()
            .with_context(|| format!("the kernel refuses XDP program {program}"))?;
        let taken = ebpf.take_map("TAKEN").ok_or_else(|| anyhow!("the sink has no map TAKEN"))?;
        Ok(Sink { ebpf, taken: Array::try_from(taken)?, program, link: None })
    }

    /// Moves to this place.
    pub fn attach(&mut self, world: &World, place: Place) -> anyhow::Result<()> {
        self.detach()?;
        let program = xdp(&mut self.ebpf, self.program)?;
        let node = world.node(place.node);
        let link = inside(&node, || Ok(program.attach(place.interface, XdpMode::Driver)?))
            .with_context(|| format!("cannot attach a sink to {} of {node}", place.interface))?;
        self.link = Some(link);
        Ok(())
    }

    /// Leaves its place.
    pub fn detach(&mut self) -> anyhow::Result<()> {
        if let Some(link) = self.link.take() {
            xdp(&mut self.ebpf, self.program)?.detach(link)?;
        }
        Ok(())
    }

    /// Packets taken so far.
    pub fn count(&self) -> anyhow::Result<u64> {
        Ok(self.taken.get(&0, 0).context("cannot read the sink's count")?[0])
    }
}

fn xdp<'a>(ebpf: &'a mut Ebpf, name: &str) -> anyhow::Result<&'a mut Xdp> {
    let program = ebpf.program_mut(name).ok_or_else(|| anyhow!("the sink has no program {name}"))?;
    Ok(program.try_into()?)
}
