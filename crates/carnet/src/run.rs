//! The event loop: the station in the middle, the kernel on one side, operators on the other.
//!
//! One task owns everything. It waits for whatever comes first (a packet, news from the kernel, a timer, a
//! request, a signal), hands it to the station and carries out the outputs in their order, so that a route is
//! in place before the packet that needs it leaves.

use std::future::pending;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use carnet_api::config::Config;
use carnet_api::model::{self, GnPingEvent, GnPingRequest, HandoverRequest};
use carnet_base::{RateLimiter, Time, WallTime};
use carnet_geonet::ipv6_adaptation;
use carnet_geonet::multicast::LanPacket;
use carnet_geonet::{ReceivedFrame, Router};
use carnet_linux::frame_link::LinkEvent;
use carnet_linux::multicast_link::{self, MulticastEvent};
use carnet_linux::signal::{PLAUSIBLE, Signals};
use carnet_linux::virtual_link::{HostFrame, VirtualLinkEvent};
use carnet_linux::{
    Alarm, DatagramReader, DatagramWriter, Datagrams, Platform, PlatformEvent, TooBig, TunnelIo,
    TunnelReader, TunnelWriter, clock,
};
use carnet_station::Station;
use carnet_station::forwarding::forwarder::Verdict;
use carnet_station::forwarding::packet::PacketBuffer;
use carnet_station::io::{Command, Event, Frame, Input, Output, Position, VirtualFrame};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};
use tracing::{error, info, warn};

use crate::geonet::{self, Geonet, GeonetEvent, multicast, until};
use crate::record::{Header, Recorder};
use crate::request::{Answer, Request};
use crate::state::StateFile;
use crate::upper_tester::{self, Message, UpperTester};
use crate::{answers, http, settings};

/// Packets handled before anything else gets its turn.
const BATCH: usize = 256;
/// Packets that wake the station more often than this are let gather, see [`Runner::packets`].
const FREQUENT: Duration = Duration::from_micros(50);
/// How long a stopping station waits for the home agent to acknowledge the de-registration.
const FAREWELL: Duration = Duration::from_secs(1);
/// So many failures of the kernel's side in a row are waited out, so long each, before the station gives up.
const MAX_FAILURES: u32 = 20;
const RECOVERY: Duration = Duration::from_millis(100);
/// So many refused Binding Updates are logged at once, and one per [`REFUSAL_INTERVAL`] after that: anybody can
/// send them. The counters count them all.
const REFUSALS: u32 = 10;
const REFUSAL_INTERVAL: Duration = Duration::from_secs(5);
const REQUESTS: usize = 64;
const EVENTS: usize = 1024;

/// Runs a station until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start, or the kernel's side breaks; whatever had been set up is removed before.
pub async fn run(config: Config, path: &Path) -> anyhow::Result<()> {
    for warning in config.warnings() {
        warn!("{warning}");
    }
    let directory = config.station.socket.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;

    // Before the undo file beside it is touched: it would be that of the other station.
    http::is_stale(&config.station.socket)?;
    let geonet = match &config.geonet {
        Some(geonet) => {
            let (wants, uplinks) = (settings::geonet_path(&config), settings::ports(&config).uplinks);
            Some(Geonet::open(geonet, &settings::link_undo_file(&config), wants, uplinks)?)
        }
        None => None,
    };
    let upper_tester = match &config.conformance {
        Some(conformance) => Some(UpperTester::open(conformance).await?),
        None => None,
    };
    let mut alarm = Alarm::new()?;
    let mut signals = Signals::open(settings::signals(&config));
    let mut counted = settings::counted(&config);
    let mut counting = self::counting(&config);
    let platform = open_platform(&config)?;
    let mut runner = Runner::new(config, platform, geonet)?;
    runner.upper_tester = upper_tester;
    runner.carry_out();
    runner.tell_mtu();
    runner.place_fast_path();
    if let Some(why) = runner.geonet.as_mut().and_then(|geonet| geonet.interfaces.failure()) {
        runner.close();
        bail!("geonet.ipv6_interface cannot be had: {why}");
    }
    let (requests, mut inbox) = mpsc::channel(REQUESTS);
    let server = http::serve(&runner.config.station.socket, requests, runner.events.clone()).await;
    let server = match server {
        Ok(server) => server,
        Err(error) => {
            runner.close();
            return Err(error);
        }
    };
    info!("station {} is up, socket {}", runner.config.station.name, server.socket().display());
    runner.warn_of_missing_interfaces();
    // Only with systemd's NOTIFY_SOCKET in the environment; no harm without.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);

    let tunnel = runner.platform.as_ref().map(Platform::tunnel);
    let datagrams = runner.platform.as_ref().map(Platform::datagrams);
    let (mut failures, mut geonet_failures) = (0, 0);
    let result = loop {
        let step = tokio::select! {
            ready = readable(tunnel.as_ref()) => match ready {
                Ok(()) => {
                    runner.packets().await;
                    Ok(())
                }
                Err(error) => Err(anyhow::Error::from(error).context("the tunnel device failed")),
            },
            ready = datagrams_readable(datagrams.as_ref()) => match ready {
                Ok(()) => {
                    runner.datagrams().await;
                    Ok(())
                }
                Err(error) => Err(anyhow::Error::from(error).context("a socket failed")),
            },
            event = next_event(runner.platform.as_mut()) => match event {
                Ok(event) => {
                    failures = 0;
                    runner.kernel_event(event);
                    Ok(())
                }
                // The next call looks at everything anew; it may have been a passing fault.
                Err(error) if failures < MAX_FAILURES && !error.is_fatal() => {
                    failures += 1;
                    error!("{error}; looking again");
                    sleep(RECOVERY).await;
                    Ok(())
                }
                Err(error) => Err(error.into()),
            },
            signal = signals.next() => {
                runner.input(Input::Signal { interface: signal.interface, dbm: signal.dbm });
                Ok(())
            }
            _ = counting.tick(), if !counted.is_empty() => {
                runner.count(&counted);
                Ok(())
            }
            due = alarm.wait(runner.station.poll_timeout()) => {
                runner.input(Input::Timeout);
                due.map_err(anyhow::Error::from)
            }
            event = geonet::next_event(&mut runner.geonet) => {
                match event.and_then(|event| runner.geonet_event(event)) {
                    Ok(()) => {
                        geonet_failures = 0;
                        Ok(())
                    }
                    Err(error) if geonet_failures < MAX_FAILURES => {
                        geonet_failures += 1;
                        error!("{error}; trying again");
                        sleep(RECOVERY).await;
                        Ok(())
                    }
                    Err(error) => Err(error.into()),
                }
            }
            (tester, message) = upper_tester::next_message(&mut runner.upper_tester) => {
                runner.steer(tester, message);
                Ok(())
            }
            Some(request) = inbox.recv() => {
                runner.request(request);
                Ok(())
            }
            _ = hangup.recv() => {
                runner.reload(path);
                signals = Signals::open(settings::signals(&runner.config));
                counted = settings::counted(&runner.config);
                counting = self::counting(&runner.config);
                Ok(())
            }
            _ = terminate.recv() => break Ok(()),
            _ = interrupt.recv() => break Ok(()),
        };
        if let Err(error) = step {
            break Err(error);
        }
    };

    info!("station {} stops", runner.config.station.name);
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    if result.is_ok() {
        runner.count(&counted);
        runner.input(Input::Command(Command::Shutdown));
        let _ = timeout(FAREWELL, runner.farewell(tunnel.as_ref(), datagrams.as_ref())).await;
    }
    server.shutdown().await;
    runner.close();
    result
}

/// The kernel's networking, where the station needs any. One that does GeoNetworking alone needs no tunnel device;
/// it only removes what an earlier run with other tasks has left.
fn open_platform(config: &Config) -> anyhow::Result<Option<Platform>> {
    if settings::needs_platform(config) {
        return Ok(Some(Platform::open(settings::platform(config))?));
    }
    if settings::undo_file(config).exists() {
        let cleaned = Platform::open(settings::platform(config)).and_then(Platform::close);
        if let Err(error) = cleaned {
            warn!("what an earlier run has left stays: {error}");
        }
    }
    Ok(None)
}

/// Waits for packets; for ever without a tunnel device.
async fn readable(tunnel: Option<&TunnelIo>) -> std::io::Result<()> {
    match tunnel {
        Some(tunnel) => tunnel.readable().await,
        None => pending().await,
    }
}

/// When the octets of uplinks are looked at.
fn counting(config: &Config) -> Interval {
    let mut counting = interval(settings::counting(config));
    counting.set_missed_tick_behavior(MissedTickBehavior::Delay);
    counting
}

/// Waits for packets inside IPv4 or UDP; for ever without sockets.
async fn datagrams_readable(datagrams: Option<&Datagrams>) -> std::io::Result<()> {
    match datagrams {
        Some(datagrams) => datagrams.readable().await,
        None => pending().await,
    }
}

/// Waits for the kernel's news; for ever without a platform.
async fn next_event(platform: Option<&mut Platform>) -> carnet_linux::Result<PlatformEvent> {
    match platform {
        Some(platform) => platform.next_event().await,
        None => pending().await,
    }
}

/// Takes the fast path that the config wants.
fn accelerate(platform: &mut Platform, config: &Config, flow_label_key: u64) -> anyhow::Result<()> {
    let wanted = settings::fast_path(config, flow_label_key);
    let obstacles = platform.accelerate(&wanted);
    let path = platform.path();
    for (obstacle, why) in &obstacles {
        info!("no data path {:?}: {why}", obstacle.name());
    }
    if let (false, Some((obstacle, why))) = (wanted.paths.contains(&path), obstacles.last()) {
        bail!(
            "dataplane.path = {:?} cannot be had: {why}; expected {}, or \"auto\"",
            obstacle.name(),
            settings::what_a_path_needs(*obstacle)
        );
    }
    info!("the data path is {:?}", path.name());
    Ok(())
}

/// The station and what carries out its outputs.
struct Runner {
    config: Config,
    station: Station,
    /// `None` where the station does GeoNetworking alone; then there is no tunnel device either.
    platform: Option<Platform>,
    reader: Option<TunnelReader>,
    writer: Option<TunnelWriter>,
    datagram_reader: Option<DatagramReader>,
    datagram_writer: Option<DatagramWriter>,
    /// When packets last woke the station.
    woken: Time,
    geonet: Option<Geonet>,
    upper_tester: Option<UpperTester>,
    state: StateFile,
    recorder: Recorder,
    events: broadcast::Sender<Value>,
    started: Time,
    buffer: PacketBuffer,
    /// Outputs of frames that are being received; empty otherwise.
    outputs: Vec<Output>,
    refusals: RateLimiter,
}

impl Runner {
    fn new(config: Config, mut platform: Option<Platform>, geonet: Option<Geonet>) -> anyhow::Result<Runner> {
        let state = StateFile::open(config.station.state_dir.as_deref(), &config.station.name)?;
        let header = Header {
            seed: clock::random_seed().context("cannot get randomness from the kernel")?,
            time: clock::now(),
            wall: clock::wall(),
            state: state.load(),
            gn_address: geonet.as_ref().and_then(Geonet::address).map(|address| address.0),
        };
        let recorder = Recorder::create(config.station.record.as_deref(), &header)?;
        let station_config = settings::station(&config, geonet.as_ref().and_then(Geonet::address));
        let station = Station::new(station_config, header.state, header.seed, header.time, header.wall);
        if let Some(platform) = &mut platform {
            accelerate(platform, &config, station.flow_label_key())?;
        }
        Ok(Runner {
            station,
            config,
            reader: platform.as_ref().map(|platform| TunnelReader::new(platform.tunnel())),
            writer: platform.as_ref().map(|platform| TunnelWriter::new(platform.tunnel())),
            datagram_reader: platform.as_ref().map(|platform| DatagramReader::new(platform.datagrams())),
            datagram_writer: platform.as_ref().map(|platform| DatagramWriter::new(platform.datagrams())),
            woken: Time::ZERO,
            platform,
            geonet,
            upper_tester: None,
            state,
            recorder,
            events: broadcast::channel(EVENTS).0,
            started: header.time,
            buffer: PacketBuffer::new(),
            outputs: Vec::new(),
            refusals: RateLimiter::new(REFUSALS, REFUSAL_INTERVAL),
        })
    }

    /// Tells the station what has gone over these interfaces.
    fn count(&mut self, interfaces: &[String]) {
        for interface in interfaces {
            match self.platform.as_mut().map(|platform| platform.octets(interface)) {
                Some(Ok(Some(octets))) => {
                    self.input(Input::Octets { interface: interface.clone(), octets });
                }
                // The next look tells: nothing is lost by it.
                Some(Err(error)) => tracing::debug!("{error}"),
                Some(Ok(None)) | None => {}
            }
        }
    }

    /// Reads packets from the tunnel device until there are none or others have waited long enough.
    ///
    /// When they come one by one and so fast that waking costs more than the packets do, whoever makes them on
    /// this core (the sender, the station at the other end) is given the core once before the device is left:
    /// the next packets then come together. A machine with a core to spare does not notice, nor does a packet
    /// that comes alone.
    async fn packets(&mut self) {
        let (now, wall) = (clock::now(), clock::wall());
        // Under a flood there is always a packet: timers do not wait for it to end.
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.input(Input::Timeout);
        }
        let is_frequent = now.saturating_since(self.woken) < FREQUENT;
        self.woken = now;
        let (mut count, mut has_yielded) = (0, false);
        // What was read is handled: nothing may lie in the reader while the loop waits for the device.
        while let Some(reader) = self.reader.as_mut().filter(|r| count < BATCH || r.is_inside_burst()) {
            let Ok(length) = reader.try_read(self.buffer.space()) else {
                self.flush_and_hear();
                if has_yielded || !is_frequent {
                    return;
                }
                has_yielded = true;
                std::thread::yield_now();
                continue;
            };
            has_yielded = false;
            count += 1;
            self.buffer.filled(length);
            if self.recorder.is_active() {
                self.recorder.record(now, wall, Input::Packet(self.buffer.as_slice().to_vec()));
            }
            if let (Some(platform), Some(writer)) = (&mut self.platform, &mut self.writer)
                && platform.concerns_kernel(self.buffer.as_slice())
            {
                writer.write(self.buffer.as_slice());
            }
            let verdict = self.station.handle_packet(now, wall, &mut self.buffer);
            self.pass_on(verdict);
        }
        self.flush_and_hear();
        // Nor do the kernel's news, requests and signals.
        tokio::task::yield_now().await;
    }

    /// Reads packets that came inside IPv4 or UDP until there are none or others have waited long enough.
    async fn datagrams(&mut self) {
        let (now, wall) = (clock::now(), clock::wall());
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.input(Input::Timeout);
        }
        let mut count = 0;
        while let Some(reader) =
            self.datagram_reader.as_mut().filter(|r| count < BATCH || r.is_inside_burst())
        {
            let Ok(received) = reader.try_read(self.buffer.space()) else { break };
            count += 1;
            self.buffer.filled(received.length);
            let carnet_linux::Received { local, remote, traffic_class, .. } = received;
            if self.recorder.is_active() {
                let packet = self.buffer.as_slice().to_vec();
                self.recorder.record(now, wall, Input::Datagram { local, remote, traffic_class, packet });
            }
            let verdict =
                self.station.handle_datagram(now, wall, (local, remote), traffic_class, &mut self.buffer);
            self.pass_on(verdict);
        }
        self.flush_and_hear();
        tokio::task::yield_now().await;
    }

    /// Sends what a packet has become.
    fn pass_on(&mut self, verdict: Verdict) {
        match verdict {
            // Outputs, if there are any, precede the packet that the rest was waiting for.
            Verdict::Forward => {
                if let Some(writer) = &mut self.writer {
                    writer.write(self.buffer.as_slice());
                }
            }
            Verdict::Encapsulate { local, remote, may_fragment } => {
                if let Some(writer) = &mut self.datagram_writer {
                    writer.write(local, remote, may_fragment, self.buffer.as_slice());
                }
            }
            Verdict::Consumed | Verdict::Dropped(_) => self.carry_out(),
        }
    }

    /// Lets go of the packets that wait to be written in one piece.
    fn flush(&mut self) {
        self.writer.iter_mut().for_each(TunnelWriter::flush);
        self.datagram_writer.iter_mut().for_each(DatagramWriter::flush);
    }

    /// The same, and hears what became of earlier ones.
    fn flush_and_hear(&mut self) {
        self.flush();
        let datagrams = self.platform.as_ref().map(Platform::datagrams);
        while let Some(TooBig { local, remote, mtu }) = datagrams.as_ref().and_then(Datagrams::poll_too_big) {
            self.input(Input::DatagramTooBig { local, remote, mtu });
        }
    }

    /// What the config names and the machine does not have is said: nothing else would tell.
    fn warn_of_missing_interfaces(&mut self) {
        for message in settings::missing_interfaces(&self.config) {
            self.report(&Event::Warning { message });
        }
    }

    fn kernel_event(&mut self, event: PlatformEvent) {
        if let PlatformEvent::InterfaceGone { name } = &event
            && let Some(message) = settings::without_interface(&self.config, name)
        {
            self.report(&Event::Warning { message });
        }
        self.input(match event {
            PlatformEvent::Interface(interface) => Input::Interface(interface),
            PlatformEvent::InterfaceGone { name } => Input::InterfaceGone { name },
            PlatformEvent::TunnelUsed { local, remote } => Input::TunnelUsed { local, remote },
            PlatformEvent::Icmpv6(message) => Input::Icmpv6(message),
        });
    }

    fn input(&mut self, input: Input) {
        if let Err(refusal) = self.try_input(input) {
            warn!("{refusal}");
        }
    }

    fn try_input(&mut self, input: Input) -> Result<(), String> {
        // Either may send a packet.
        if matches!(input, Input::Timeout | Input::Geonet(_)) {
            self.update_position();
        }
        let (now, wall) = (clock::now(), clock::wall());
        if self.recorder.is_active() {
            self.recorder.record(now, wall, input.clone());
            self.recorder.flush();
        }
        let result = self.station.handle_input(now, wall, input);
        self.carry_out();
        result
    }

    /// Lets the router know where the station is now, so that what it sends says so.
    fn update_position(&mut self) {
        let position = self.geonet.as_mut().and_then(|geonet| geonet.position_now(clock::now()));
        if let Some(position) = position {
            self.move_to(position);
        }
    }

    fn tell_position(&mut self, now: Time) {
        if let Some(position) = self.geonet.as_mut().and_then(|geonet| geonet.tell(now)) {
            self.move_to(position);
        }
    }

    fn move_to(&mut self, position: Position) {
        let position = match &self.upper_tester {
            Some(upper_tester) => upper_tester.displaced(position),
            None => position,
        };
        self.input(Input::Position(position));
    }

    fn geonet_event(&mut self, event: GeonetEvent) -> carnet_linux::Result<()> {
        let (now, wall) = (clock::now(), clock::wall());
        match event {
            GeonetEvent::Link(LinkEvent::Frames) => self.frames(now, wall)?,
            GeonetEvent::Link(LinkEvent::Changed(state)) => {
                let changed = self.geonet.as_mut().and_then(|geonet| geonet.link_changed(now, state));
                if let Some(address) = changed {
                    self.input(Input::GeonetAddress(address.0));
                    self.tell_position(now);
                }
                self.tell_mtu();
                self.place_fast_path();
            }
            GeonetEvent::Link(_) => {}
            GeonetEvent::Position(event) => {
                let Some(geonet) = &mut self.geonet else { return Ok(()) };
                let (position, news) = geonet.position(now, event);
                if let Some(position) = position {
                    self.move_to(position);
                }
                if let Some(message) = news {
                    self.report(&Event::Warning { message });
                }
            }
            GeonetEvent::Update => {
                self.tell_position(now);
            }
            GeonetEvent::Virtual(VirtualLinkEvent::Frames) => self.host_frames(now, wall),
            GeonetEvent::Virtual(VirtualLinkEvent::Addresses { link, addresses }) => {
                if link == 0
                    && let Some(geonet) = &mut self.geonet
                {
                    geonet.tell_addresses(&addresses);
                }
                self.input(Input::VirtualAddresses { link, addresses });
                self.place_fast_path();
            }
            GeonetEvent::Report => {
                self.tell_position(now);
                self.place_fast_path();
                if let Some(report) = self.geonet.as_mut().and_then(|geonet| geonet.report(now)) {
                    self.input(Input::GeonetReport(report));
                }
            }
            GeonetEvent::Multicast(MulticastEvent::Frames) => self.lan_packets(now, wall),
            GeonetEvent::Multicast(MulticastEvent::Addresses { interface, addresses }) => {
                self.input(Input::LanAddresses { interface, addresses });
            }
            GeonetEvent::Ping => {
                let Some(geonet) = &mut self.geonet else { return Ok(()) };
                for request in geonet.ping_requests(now, &self.station) {
                    // What cannot be sent is not answered, and reported as that.
                    if let Err(refusal) = self.try_input(Input::Geonet(request)) {
                        tracing::debug!("{refusal}");
                    }
                }
            }
        }
        Ok(())
    }

    /// Receives a batch of frames.
    fn frames(&mut self, now: Time, wall: WallTime) -> carnet_linux::Result<()> {
        // Under a flood there is always a frame: timers do not wait for it to end.
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.input(Input::Timeout);
        }
        // What is received may be answered.
        self.update_position();
        let unacknowledged = self.geonet.as_mut().map_or(Ok(Vec::new()), Geonet::unacknowledged)?;
        for frame in unacknowledged {
            self.input(Input::Unacknowledged(frame));
        }
        let Runner { geonet: Some(geonet), station, recorder, outputs, .. } = self else { return Ok(()) };
        let result = geonet.receive(|frame| {
            if recorder.is_active() {
                let ReceivedFrame { source, destination, packet } = frame;
                let frame = Frame { source, destination, packet: packet.to_vec() };
                recorder.record(now, wall, Input::Frame(frame));
            }
            station.handle_frame(now, frame);
            outputs.extend(std::iter::from_fn(|| station.poll_output()));
        });
        self.carry_collected();
        result
    }

    /// Takes a batch of frames that the host has put into virtual interfaces.
    fn host_frames(&mut self, now: Time, wall: WallTime) {
        // Under a flood there is always a frame: timers do not wait for it to end.
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.input(Input::Timeout);
        }
        self.update_position();
        let Runner { geonet: Some(geonet), station, recorder, outputs, .. } = self else { return };
        geonet.interfaces.receive(|frame| {
            let HostFrame { link, destination, source, ether_type, payload } = frame;
            if recorder.is_active() {
                let payload = payload.to_vec();
                let frame = VirtualFrame { link, destination, source, ether_type, payload };
                recorder.record(now, wall, Input::VirtualFrame(frame));
            }
            let frame = ipv6_adaptation::HostFrame { destination, source, ether_type, payload };
            station.handle_host_frame(now, link, frame);
            outputs.extend(std::iter::from_fn(|| station.poll_output()));
        });
        self.carry_collected();
    }

    /// Takes a batch of packets to groups that hosts of the mobile network have sent.
    fn lan_packets(&mut self, now: Time, wall: WallTime) {
        // As of any frames: timers do not wait for the end of a flood.
        if self.station.poll_timeout().is_some_and(|due| due <= now) {
            self.input(Input::Timeout);
        }
        self.update_position();
        let Runner { geonet: Some(geonet), station, recorder, outputs, .. } = self else { return };
        geonet.multicast.receive(|lan| {
            let multicast_link::LanPacket { interface, source, packet } = lan;
            if recorder.is_active() {
                let (interface, packet) = (interface.to_owned(), packet.to_vec());
                recorder.record(now, wall, Input::LanPacket { interface, source, packet });
            }
            station.handle_lan_packet(now, LanPacket { interface, source, packet });
            outputs.extend(std::iter::from_fn(|| station.poll_output()));
        });
        self.carry_collected();
    }

    /// Carries out what was collected while frames were received.
    fn carry_collected(&mut self) {
        let mut outputs = std::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            self.carry(output);
        }
        self.outputs = outputs;
        self.carry_out();
    }

    /// Puts the fast path of GeoNetworking where the interfaces are, and tells the station that there is one.
    fn place_fast_path(&mut self) {
        let is_router = self.station.geonet().is_some();
        let changed = self.geonet.as_mut().and_then(|geonet| geonet.place_fast_path(is_router));
        if let Some(is) = changed {
            let numbers = self.geonet.as_ref().and_then(Geonet::sequence_numbers);
            if let Some(numbers) = numbers.filter(|_| is) {
                self.station.share_sequence_numbers(numbers);
            }
            self.input(Input::GeonetFastPath(is));
        }
    }

    /// Lets the station know what a frame of the radio carries.
    fn tell_mtu(&mut self) {
        // Only a router can be told.
        if self.station.geonet().is_some()
            && let Some(mtu) = self.geonet.as_mut().and_then(Geonet::new_mtu)
        {
            self.input(Input::GeonetMtu(mtu));
        }
    }

    /// Carries out what the station wants, in order; what it tells operators comes last, because an acknowledgement does
    /// not wait for a log.
    fn carry_out(&mut self) {
        let mut told = Vec::new();
        while let Some(output) = self.station.poll_output() {
            if let Output::Event(event) = output {
                told.push(event);
                continue;
            }
            self.flush();
            self.carry(output);
        }
        self.platform.iter_mut().for_each(Platform::commit);
        for event in &told {
            self.report(event);
        }
        if let Some(geonet) = &mut self.geonet {
            if let Some(router) = self.station.geonet()
                && geonet.address() != Some(router.address())
            {
                geonet.address_is(clock::now(), router.address());
            }
            geonet.flush();
        }
    }

    fn carry(&mut self, output: Output) {
        match output {
            Output::Forwarding(change) => {
                if let Some(Err(error)) = self.platform.as_mut().map(|platform| platform.apply(&change)) {
                    error!("{error}");
                }
            }
            Output::Packet(packet) => {
                if let Some(writer) = &mut self.writer {
                    writer.write(&packet);
                    writer.flush();
                }
            }
            Output::Encapsulated { local, remote, packet, may_fragment } => {
                if let Some(sender) = &mut self.datagram_writer {
                    sender.write(local, remote, may_fragment, &packet);
                    sender.flush();
                }
            }
            Output::Icmpv6(message) => {
                // The link may just have gone; whoever sent this will send again.
                let sent = self.platform.as_mut().map(|platform| platform.send_icmpv6(&message));
                if let Some(Err(error)) = sent {
                    tracing::debug!("{error}");
                }
            }
            Output::Persist => {
                let state = self.station.persistent_state(clock::now(), clock::wall());
                if let Err(error) = self.state.store(&state) {
                    error!("{error:#}");
                }
            }
            Output::Frame(frame) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.send(&frame);
                }
                self.station.recycle(frame.packet);
            }
            Output::Accelerate(told) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.accelerate(clock::now(), &told);
                }
            }
            Output::Delivered(delivered) => {
                if let Some(upper_tester) = &self.upper_tester {
                    upper_tester.delivered(&delivered);
                }
                if let Some(geonet) = &mut self.geonet {
                    geonet.delivered(clock::now(), delivered);
                }
            }
            Output::VirtualLink(link) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.interfaces.set(link);
                }
            }
            Output::VirtualLinkGone(id) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.interfaces.remove(id);
                }
            }
            Output::VirtualFrame(frame) => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.interfaces.write(&frame);
                }
            }
            Output::Ipv6 { link, destination, source, delivered } => {
                if let Some(upper_tester) = &self.upper_tester {
                    upper_tester.delivered(&delivered);
                }
                if let Some(geonet) = &mut self.geonet {
                    geonet.interfaces.write_packet(link, destination, source, &delivered.payload);
                    geonet.overheard(&delivered);
                }
                self.station.recycle(delivered.payload);
            }
            Output::LanPacket { interface, destination, packet } => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.multicast.write(&interface, destination, &packet);
                }
            }
            Output::Subscription { group, exclude, sources } => {
                if let Some(geonet) = &mut self.geonet {
                    geonet.multicast.subscribe(group, exclude, sources);
                }
            }
            Output::Event(event) => self.report(&event),
        }
    }

    /// Does what the upper tester wants, and says whether it could be done.
    fn steer(&mut self, tester: SocketAddr, message: Message) {
        let place = self.station.geonet().and_then(|router| router.position_vector()).copied();
        let done = match &message {
            Message::Initialize => {
                let home = place.zip(self.upper_tester.as_mut());
                if let Some(position) = home.and_then(|(place, upper_tester)| upper_tester.initialize(&place))
                {
                    self.input(Input::Position(position));
                }
                self.try_input(Input::Command(Command::ResetGeonet))
            }
            Message::ChangePosition(north, east) => {
                let moved = place
                    .zip(self.upper_tester.as_mut())
                    .and_then(|(place, upper_tester)| upper_tester.displace(&place, *north, *east));
                moved
                    .ok_or_else(|| "there is no such position".to_owned())
                    .and_then(|position| self.try_input(Input::Position(position)))
            }
            Message::ChangePseudonym => Err("there are no pseudonyms to change".into()),
            Message::Gn(request) | Message::Btp(request) => self.try_input(Input::Geonet(request.clone())),
        };
        if let Err(refusal) = &done {
            tracing::debug!("the upper tester's {message:?}: {refusal}");
        }
        if let Some(upper_tester) = &self.upper_tester {
            upper_tester.answer(tester, &message, done.is_ok());
        }
    }

    fn report(&mut self, event: &Event) {
        let text = answers::event_text(event);
        match event {
            Event::BindingRefused { .. } if !self.refusals.allow(clock::now()) => tracing::debug!("{text}"),
            Event::Warning { .. } | Event::Rejected { .. } | Event::BindingRefused { .. } => warn!("{text}"),
            Event::Registered { refresh: true, .. } => tracing::debug!("{text}"),
            Event::Binding { change, .. } if change == "refreshed" => tracing::debug!("{text}"),
            _ => info!("{text}"),
        }
        let time = Duration::from_nanos(clock::wall().as_unix_nanos()).as_secs_f64();
        if let Ok(fields) = serde_json::to_value(event) {
            // Without a listener there is nobody to tell.
            let _ = self.events.send(model::event(time, fields));
        }
    }

    fn request(&mut self, request: Request) {
        let now = clock::now();
        // Whoever asked may have gone; then the answer is lost and nothing else.
        match request {
            Request::Status(reply) => {
                let uptime = now.saturating_since(self.started);
                let geonet = self.geonet.as_ref().map(|geonet| geonet.status(self.station.geonet()));
                let _ = reply.send(answers::status(
                    &self.config,
                    self.platform.as_ref().map_or(carnet_linux::Path::Tun, Platform::path),
                    &self.station,
                    geonet,
                    uptime,
                    now,
                ));
            }
            Request::Bindings(reply) => {
                let _ = reply.send(answers::bindings(&self.station, now));
            }
            Request::Uplinks(reply) => {
                let _ = reply.send(answers::uplinks(&self.station, now));
            }
            Request::Tunnels(reply) => {
                let _ = reply.send(answers::tunnels(self.platform.as_ref(), &self.station));
            }
            Request::Routes(reply) => {
                let _ = reply.send(answers::routes(&self.station, now));
            }
            Request::Policies(reply) => {
                let _ = reply.send(answers::policies(&self.station));
            }
            Request::Counters(reply) => {
                let mut counters = answers::counters(&self.station, self.platform.as_ref());
                let errors = self.writer.as_ref().map_or(0, TunnelWriter::errors);
                counters.insert("tunnel.write_errors".into(), errors);
                counters.extend(self.geonet.iter_mut().flat_map(Geonet::counters));
                let _ = reply.send(counters);
            }
            Request::Handover { handover, reply } => {
                let HandoverRequest { uplink, policy } = handover;
                let result = self.try_input(Input::Command(Command::Handover { uplink, policy }));
                let _ = reply.send(result);
            }
            Request::Signal { signal, reply } => {
                let result = if PLAUSIBLE.contains(&signal.dbm) {
                    self.try_input(Input::Signal { interface: signal.uplink, dbm: signal.dbm })
                } else {
                    Err(format!("{} dBm is no signal, expected {PLAUSIBLE:?}", signal.dbm))
                };
                let _ = reply.send(result);
            }
            Request::Neighbours(reply) => {
                let _ = reply
                    .send(self.ask_geonet(|geonet, router| geonet.locations(router, clock::wall(), true)));
            }
            Request::Locations(reply) => {
                let _ = reply
                    .send(self.ask_geonet(|geonet, router| geonet.locations(router, clock::wall(), false)));
            }
            Request::Areas(reply) => {
                let _ = reply.send(self.ask_geonet(|geonet, _| geonet.areas(now, &self.station)));
            }
            Request::Groups(reply) => {
                let _ = reply.send(self.ask_geonet(|_, _| multicast::groups(now, &self.station)));
            }
            Request::SetArea { area, reply } => {
                let order = self.ask_geonet(|geonet, _| geonet.area_order(area)).flatten();
                let _ = reply.send(order.and_then(|order| self.try_input(Input::Command(order))));
            }
            Request::RemoveArea { name, reply } => {
                let order = self.ask_geonet(|geonet, _| geonet.area_removal(name)).flatten();
                let _ = reply.send(order.and_then(|order| self.try_input(Input::Command(order))));
            }
            Request::GnSend { packet, reply } => {
                let request =
                    self.ask_geonet(|geonet, _| geonet.request(now, packet, &self.station)).flatten();
                let _ = reply.send(request.and_then(|request| self.try_input(Input::Geonet(request))));
            }
            Request::GnPing { ping, reply } => {
                let _ = reply.send(self.ping(&ping));
            }
            Request::GnReceive(reply) => {
                let _ = reply.send(self.ask_geonet(|geonet, _| geonet.subscribe()));
                self.geonet.iter_mut().for_each(Geonet::tell_listeners);
            }
        }
    }

    fn ask_geonet<T>(&self, question: impl FnOnce(&Geonet, &Router) -> T) -> Answer<T> {
        let geonet = self.geonet.as_ref().ok_or(answers::NO_GEONET)?;
        match self.station.geonet() {
            Some(router) => Ok(question(geonet, router)),
            None => Err(format!("this station waits for {}", geonet.awaited())),
        }
    }

    fn ping(&mut self, ping: &GnPingRequest) -> Answer<mpsc::Receiver<GnPingEvent>> {
        let geonet = self.geonet.as_mut().ok_or(answers::NO_GEONET)?;
        let (identifier, request, events) = geonet.ping(clock::now(), ping, &self.station)?;
        if let Err(refusal) = self.try_input(Input::Geonet(request)) {
            self.geonet.iter_mut().for_each(|geonet| geonet.abandon(identifier));
            return Err(refusal);
        }
        Ok(events)
    }

    /// Reads the config again and changes the difference; a config with errors changes nothing.
    fn reload(&mut self, path: &Path) {
        let config = match Config::load(path) {
            Ok(config) => config,
            Err(errors) => {
                error!("the config is not taken over: {errors}");
                return;
            }
        };
        let sections = [
            ("[station]", config.station != self.config.station),
            ("[dataplane]", config.dataplane != self.config.dataplane),
            ("[geonet]", config.geonet != self.config.geonet),
            ("[conformance]", config.conformance != self.config.conformance),
        ];
        if self.platform.is_none() && settings::needs_platform(&config) {
            error!("the config is not taken over: the first role beside [geonet] needs a restart");
            return;
        }
        if let Some((section, _)) = sections.iter().find(|(_, changed)| *changed) {
            error!("the config is not taken over: changes in {section} need a restart");
            return;
        }
        for warning in config.warnings() {
            warn!("{warning}");
        }
        self.recorder.end("a config that is read again cannot be replayed");
        if let Some(platform) = &mut self.platform {
            platform.watch(settings::platform(&config).watched);
            platform.set_ports(settings::ports(&config));
            platform.make_room(&settings::fast_path(&config, self.station.flow_label_key()));
        }
        let gn_address = self.geonet.as_ref().and_then(Geonet::address);
        let station_config = settings::station(&config, gn_address);
        self.station.reconfigure(clock::now(), clock::wall(), station_config);
        self.config = config;
        self.carry_out();
        info!("the config was read again");
        self.warn_of_missing_interfaces();
    }

    /// Goes on until the home agent knows that we leave.
    async fn farewell(&mut self, tunnel: Option<&TunnelIo>, datagrams: Option<&Datagrams>) {
        while !self.station.is_quiescent() {
            tokio::select! {
                Ok(()) = readable(tunnel) => self.packets().await,
                Ok(()) = datagrams_readable(datagrams) => self.datagrams().await,
                () = until(self.station.poll_timeout()) => self.input(Input::Timeout),
            }
        }
    }

    fn close(mut self) {
        self.recorder.flush();
        if let Some(Err(error)) = self.geonet.as_mut().map(Geonet::close) {
            error!("{error}");
        }
        if let Some(Err(error)) = self.platform.map(Platform::close) {
            error!("{error}");
        }
    }
}
