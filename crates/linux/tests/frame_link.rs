//! Tests GeoNetworking frames between two network namespaces, over a pair of virtual Ethernet interfaces and
//! in UDP datagrams.
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

use std::future::Future;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use carnet_linux::frame_link::*;
use socket2::{Domain, Socket, Type};

const BROADCAST: MacAddress = [0xff; 6];
const OWN_MAC_ADDRESS: MacAddress = [2, 0, 0, 0, 0, 1];
const PEER_MAC_ADDRESS: MacAddress = [2, 0, 0, 0, 0, 2];

/// A frame: source, destination, payload.
type ReceivedFrame = (MacAddress, MacAddress, Vec<u8>);

fn open_frame_link(text: &str) -> FrameLink {
    FrameLink::open(text.parse().unwrap()).unwrap()
}

/// Creates a peer's namespace, linked by `v0` in this namespace and `p0` in the peer's, with simple
/// link-layer addresses.
fn create_joined_peer() -> PeerNamespace {
    let peer = PeerNamespace::new();
    join_peer(&peer);
    peer
}

fn join_peer(peer: &PeerNamespace) {
    run_ip(&format!("link add v0 address 02:00:00:00:00:01 type veth peer name p0 netns {}", peer.thread_id));
    run_ip("link set v0 up");
    peer.run_in_namespace(|| {
        run_ip("link set p0 address 02:00:00:00:00:02");
        run_ip("link set p0 up");
        wait_until_link_is_up("p0");
    });
    wait_until_link_is_up("v0");
}

/// Sends complete Ethernet frames from `interface` of the calling thread's namespace, with a separate socket.
fn inject_frames(interface: &str, frames: &[Vec<u8>]) {
    let index = run_ip_json(&format!("link show {interface}"))[0]["ifindex"].as_i64().unwrap();
    let socket = Socket::new(Domain::PACKET, Type::RAW, None).unwrap();
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    for frame in frames {
        // SAFETY: the frame and the address are live, and each has the given length.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
    }
}

fn ethernet_frame(destination: MacAddress, source: MacAddress, ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &ether_type.to_be_bytes(), payload].concat()
}

/// Receives frames until no frame has arrived for a while.
async fn receive_until_quiet(link: &mut FrameLink) -> Vec<ReceivedFrame> {
    let mut frames: Vec<ReceivedFrame> = Vec::new();
    while let Ok(event) = tokio::time::timeout(Duration::from_millis(150), link.readable()).await {
        if event.unwrap() == LinkEvent::Frames {
            link.try_receive(|source, destination, payload| {
                frames.push((source, destination, payload.to_vec()));
            })
            .unwrap();
        }
    }
    frames
}

/// Waits until the link is in this state.
async fn wait_for_link_state(link: &mut FrameLink, state: LinkState) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while link.state() != state {
        assert!(Instant::now() < deadline, "{:?} instead of {state:?}", link.state());
        if let Ok(event) = tokio::time::timeout(Duration::from_millis(50), link.readable()).await
            && event.unwrap() == LinkEvent::Frames
        {
            link.try_receive(|_, _, _| {}).unwrap();
        }
    }
}

/// Runs `body` in the peer's namespace, with a separate runtime.
fn run_at_peer<T: Send + 'static, F: Future<Output = T>>(
    peer: &PeerNamespace,
    body: impl FnOnce() -> F + Send + 'static,
) -> T {
    peer.run_in_namespace(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(body())
    })
}

#[test]
fn only_frames_of_the_ether_type_for_this_station_arrive() {
    in_new_namespace(|_| async {
        let peer = create_joined_peer();
        let mut link = open_frame_link("v0");
        assert_eq!((link.state(), link.address(), link.mtu()), (LinkState::Up, OWN_MAC_ADDRESS, 1500));
        // The link ignores frames to other stations on a promiscuous interface, too.
        run_ip("link set v0 promisc on");
        peer.run_in_namespace(|| {
            inject_frames(
                "p0",
                &[
                    ethernet_frame(OWN_MAC_ADDRESS, PEER_MAC_ADDRESS, ETHER_TYPE_GEONETWORKING, b"to me"),
                    ethernet_frame(BROADCAST, PEER_MAC_ADDRESS, ETHER_TYPE_GEONETWORKING, b"to all"),
                    ethernet_frame(
                        [1, 0, 0x5e, 1, 2, 3],
                        PEER_MAC_ADDRESS,
                        ETHER_TYPE_GEONETWORKING,
                        b"to a group",
                    ),
                    ethernet_frame(
                        [2, 0, 0, 0, 0, 9],
                        PEER_MAC_ADDRESS,
                        ETHER_TYPE_GEONETWORKING,
                        b"to another",
                    ),
                    ethernet_frame(OWN_MAC_ADDRESS, PEER_MAC_ADDRESS, 0x0707, b"of another type"),
                    ethernet_frame(BROADCAST, PEER_MAC_ADDRESS, 0x86dd, b"of another type"),
                    ethernet_frame(
                        OWN_MAC_ADDRESS,
                        [3, 0, 0, 0, 0, 2],
                        ETHER_TYPE_GEONETWORKING,
                        b"from a group",
                    ),
                    ethernet_frame(OWN_MAC_ADDRESS, PEER_MAC_ADDRESS, ETHER_TYPE_GEONETWORKING, b""),
                ],
            );
        });
        let frames = receive_until_quiet(&mut link).await;
        let expected: [ReceivedFrame; 4] = [
            (PEER_MAC_ADDRESS, OWN_MAC_ADDRESS, b"to me".to_vec()),
            (PEER_MAC_ADDRESS, BROADCAST, b"to all".to_vec()),
            (PEER_MAC_ADDRESS, [1, 0, 0x5e, 1, 2, 3], b"to a group".to_vec()),
            (PEER_MAC_ADDRESS, OWN_MAC_ADDRESS, Vec::new()),
        ];
        assert_eq!(frames, expected);
        let counters = link.counters();
        assert_eq!((counters.received_frames, counters.dropped_frames(FrameDropReason::Malformed)), (4, 1));
        assert_eq!(counters.drops_by_reason().map(|(_, count)| count).sum::<u64>(), 1);
    });
}

#[test]
fn frame_is_received_once_by_peer_and_not_by_sender() {
    in_new_namespace(|_| async {
        let peer = create_joined_peer();
        let mut link = open_frame_link("v0");
        let mut second = open_frame_link("v0");
        let sent: Vec<Vec<u8>> = (0..200u8).map(|n| vec![n; 1 + usize::from(n) * 7]).collect();
        let expected: Vec<ReceivedFrame> =
            sent.iter().map(|p| (OWN_MAC_ADDRESS, BROADCAST, p.clone())).collect();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let hearing = std::thread::spawn(move || {
            let frames = run_at_peer(&peer, move || async move {
                let mut link = open_frame_link("p0");
                ready.send(()).unwrap();
                receive_frames(&mut link, 200).await
            });
            (peer, frames)
        });
        is_ready.recv().unwrap();
        for payload in &sent {
            link.send(BROADCAST, payload).unwrap();
        }
        link.flush();
        let (_peer, frames) = hearing.join().unwrap();
        assert_eq!(frames, expected);
        assert_eq!(receive_until_quiet(&mut link).await, []);
        assert_eq!(receive_until_quiet(&mut second).await, []);
        assert_eq!(link.counters().sent_frames, 200);
    });
}

/// Receives at least `count` frames, then further frames until no frame has arrived for a while.
async fn receive_frames(link: &mut FrameLink, count: usize) -> Vec<ReceivedFrame> {
    let mut frames = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    while frames.len() < count && Instant::now() < deadline {
        frames.extend(receive_until_quiet(link).await);
    }
    frames
}

/// An independent program recognises the frames on the wire as GeoNetworking over Ethernet.
#[test]
fn tcpdump_shows_frames_as_ethernet() {
    if let Err(error) = Command::new("tcpdump").arg("--version").output() {
        return report_skipped(&format!("cannot run tcpdump: {error}"));
    }
    in_new_namespace(|_| async {
        let peer = create_joined_peer();
        let mut dump = peer.run_in_namespace(|| {
            Command::new("tcpdump")
                .args(["-i", "p0", "-n", "-e", "-xx", "-c", "1", "ether", "proto", "0x8947"])
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        });
        let mut link = open_frame_link("v0");
        // tcpdump does not say when it starts to capture, so send frames until it prints one.
        let deadline = Instant::now() + Duration::from_secs(10);
        while dump.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "tcpdump hears nothing");
            link.send(BROADCAST, &[0x11, 0x22, 0x33]).unwrap();
            link.flush();
            std::thread::sleep(Duration::from_millis(50));
        }
        let text = String::from_utf8(dump.wait_with_output().unwrap().stdout).unwrap();
        assert!(text.contains("02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff"), "{text}");
        assert!(text.contains("ffff ffff ffff 0200 0000 0001 8947 1122"), "{text}");
    });
}

#[test]
fn a_hundred_thousand_frames_arrive_once_each_and_in_order() {
    const FRAME_COUNT: u32 = 100_000;
    in_new_namespace(|_| async {
        let peer = create_joined_peer();
        let mut link = open_frame_link("v0");
        let sending = std::thread::spawn(move || {
            let counters = run_at_peer(&peer, || async {
                let mut link = open_frame_link("p0");
                let mut next = 0;
                while next < FRAME_COUNT {
                    for _ in 0..MAX_FRAMES_PER_CALL.min((FRAME_COUNT - next) as usize) {
                        link.send(OWN_MAC_ADDRESS, &[&next.to_be_bytes()[..], &[0; 96]].concat()).unwrap();
                        next += 1;
                    }
                    link.flush();
                    // With this pause the test sends about 40,000 frames per second.
                    let _ = tokio::time::timeout(Duration::from_micros(1500), link.readable()).await;
                }
                link.counters()
            });
            (peer, counters)
        });
        let (mut expected, mut calls) = (0u32, 0u32);
        let deadline = Instant::now() + Duration::from_secs(60);
        while expected < FRAME_COUNT {
            assert!(Instant::now() < deadline, "{expected} frames, {:?}", link.counters());
            let Ok(event) = tokio::time::timeout(Duration::from_secs(1), link.readable()).await else {
                continue;
            };
            assert_eq!(event.unwrap(), LinkEvent::Frames);
            calls += 1;
            link.try_receive(|source, _, payload| {
                assert_eq!(source, PEER_MAC_ADDRESS);
                assert_eq!(payload.len(), 100);
                assert_eq!(payload[..4], expected.to_be_bytes(), "lost or twice");
                expected += 1;
            })
            .unwrap();
        }
        let (_peer, counters) = sending.join().unwrap();
        assert_eq!(receive_until_quiet(&mut link).await, []);
        assert_eq!(counters.sent_frames, u64::from(FRAME_COUNT));
        assert_eq!(link.counters().received_frames, u64::from(FRAME_COUNT));
        for counters in [counters, link.counters()] {
            assert_eq!(counters.drops_by_reason().map(|(_, count)| count).sum::<u64>(), 0, "{counters:?}");
        }
        println!("{calls} receive calls");
    });
}

/// Frames that the test does not read in time are lost, and the link counts them.
#[test]
fn every_frame_is_received_or_counted_as_overrun() {
    in_new_namespace(|_| async {
        let peer = create_joined_peer();
        let mut link = open_frame_link("v0");
        let sent = run_at_peer(&peer, || async {
            let mut link = open_frame_link("p0");
            let deadline = Instant::now() + Duration::from_secs(20);
            for number in 0..30_000u32 {
                while link.send(OWN_MAC_ADDRESS, &[&number.to_be_bytes()[..], &[0; 1400]].concat()).is_err() {
                    assert!(Instant::now() < deadline);
                    let _ = tokio::time::timeout(Duration::from_millis(2), link.readable()).await;
                }
            }
            while link.counters().sent_frames < 30_000 {
                assert!(Instant::now() < deadline);
                let _ = tokio::time::timeout(Duration::from_millis(2), link.readable()).await;
                link.flush();
            }
            link.counters().sent_frames
        });
        let received = receive_until_quiet(&mut link).await.len() as u64;
        let overruns = link.counters().dropped_frames(FrameDropReason::Overrun);
        assert!(received > 1000 && overruns > 1000, "{received} received, {overruns} overruns");
        // The queue of the virtual interface may lose a few frames, which no counter of the socket shows.
        assert!(
            received + overruns <= sent && received + overruns > sent * 9 / 10,
            "{received} + {overruns}"
        );
    });
}

#[test]
fn frame_link_follows_vanished_and_returned_interface() {
    in_new_namespace(|_| async {
        let peer = PeerNamespace::new();
        let mut link = open_frame_link("v0");
        assert_eq!((link.state(), link.mtu()), (LinkState::Missing, 0));
        assert_eq!(link.send(BROADCAST, b"too early"), Err(FrameDropReason::Down));
        for round in 0..3u8 {
            join_peer(&peer);
            wait_for_link_state(&mut link, LinkState::Up).await;
            assert_eq!((link.address(), link.mtu()), (OWN_MAC_ADDRESS, 1500));
            peer.run_in_namespace(move || {
                inject_frames(
                    "p0",
                    &[ethernet_frame(BROADCAST, PEER_MAC_ADDRESS, ETHER_TYPE_GEONETWORKING, &[round])],
                )
            });
            assert_eq!(receive_until_quiet(&mut link).await, [(PEER_MAC_ADDRESS, BROADCAST, vec![round])]);

            run_ip("link set v0 down");
            wait_for_link_state(&mut link, LinkState::Down).await;
            assert_eq!(link.send(BROADCAST, b"down"), Err(FrameDropReason::Down));
            run_ip("link set v0 mtu 1400");
            run_ip("link set v0 address 02:00:00:00:00:0a");
            run_ip("link set v0 up");
            wait_for_link_state(&mut link, LinkState::Up).await;
            wait_until_link_is_up("v0");
            assert_eq!((link.address(), link.mtu()), ([2, 0, 0, 0, 0, 10], 1400));
            assert_eq!(link.send(BROADCAST, &[0; 1401]), Err(FrameDropReason::TooLong));
            peer.run_in_namespace(|| {
                wait_until_link_is_up("p0");
                inject_frames(
                    "p0",
                    &[ethernet_frame(
                        [2, 0, 0, 0, 0, 10],
                        PEER_MAC_ADDRESS,
                        ETHER_TYPE_GEONETWORKING,
                        b"again",
                    )],
                );
            });
            assert_eq!(
                receive_until_quiet(&mut link).await,
                [(PEER_MAC_ADDRESS, [2, 0, 0, 0, 0, 10], b"again".to_vec())]
            );

            // The interface has no carrier, because the peer's interface is down.
            peer.run_in_namespace(|| run_ip("link set p0 down"));
            wait_for_link_state(&mut link, LinkState::Down).await;
            run_ip("link del v0");
            wait_for_link_state(&mut link, LinkState::Missing).await;
        }
        assert_eq!(link.counters().dropped_frames(FrameDropReason::Down), 4);
        assert_eq!(link.counters().dropped_frames(FrameDropReason::TooLong), 3);
    });
}

#[test]
fn frames_queued_at_interface_loss_are_counted() {
    in_new_namespace(|_| async {
        let peer = create_joined_peer();
        let mut link = open_frame_link("v0");
        for _ in 0..10 {
            link.send(BROADCAST, b"waits").unwrap();
        }
        run_ip("link del v0");
        // The interface is gone, but the link has not read the kernel's event yet.
        link.flush();
        wait_for_link_state(&mut link, LinkState::Missing).await;
        assert_eq!(
            (link.counters().sent_frames, link.counters().dropped_frames(FrameDropReason::Down)),
            (0, 10)
        );
        drop(peer);
    });
}

#[test]
fn loopback_interface_is_refused_as_radio() {
    in_new_namespace(|_| async {
        assert_eq!(open_frame_link("lo").state(), LinkState::Missing);
    });
}

#[test]
fn udp_peers_exchange_frames() {
    in_new_namespace(|_| async {
        let mut a = open_frame_link("udp:[::1]:9001,[::1]:9002,[::1]:9003");
        let mut b = open_frame_link("udp:[::1]:9002,[::1]:9001,[::1]:9003");
        let mut c = open_frame_link("udp:[::1]:9003,[::1]:9001,[::1]:9002");
        assert_eq!((a.state(), a.mtu()), (LinkState::Up, 1500));
        let (from, to) = (a.address(), b.address());
        for number in 0..100u8 {
            a.send(BROADCAST, &[number; 20]).unwrap();
        }
        a.send(to, b"to b").unwrap();
        a.flush();
        let mut expected: Vec<ReceivedFrame> = (0..100u8).map(|n| (from, BROADCAST, vec![n; 20])).collect();
        assert_eq!(receive_until_quiet(&mut c).await, expected);
        expected.push((from, to, b"to b".to_vec()));
        assert_eq!(receive_until_quiet(&mut b).await, expected);
        assert_eq!(receive_until_quiet(&mut a).await, []);
        assert_eq!(a.counters().sent_frames, 101);
        assert_eq!(c.counters().dropped_frames(FrameDropReason::OtherStation), 1);
    });
}

#[test]
fn datagrams_of_unknown_peers_and_oversized_ones_are_dropped() {
    in_new_namespace(|_| async {
        run_ip("addr add 192.0.2.1/24 dev lo");
        let mut link = open_frame_link("udp:127.0.0.1:9001,127.0.0.2:9002");
        let mut datagram = [BROADCAST, PEER_MAC_ADDRESS].concat();
        let known = std::net::UdpSocket::bind("127.0.0.2:7").unwrap();
        let stranger = std::net::UdpSocket::bind("192.0.2.1:9002").unwrap();
        for socket in [&known, &stranger] {
            socket.send_to(&datagram, "127.0.0.1:9001").unwrap();
            socket.send_to(&datagram[..11], "127.0.0.1:9001").unwrap();
        }
        datagram.resize(12 + 1500, 7);
        known.send_to(&datagram, "127.0.0.1:9001").unwrap();
        datagram.resize(9000, 7);
        known.send_to(&datagram, "127.0.0.1:9001").unwrap();
        let frames = receive_until_quiet(&mut link).await;
        assert_eq!(frames.iter().map(|(_, _, payload)| payload.len()).collect::<Vec<_>>(), [0, 1500]);
        let counters = link.counters();
        assert_eq!(counters.dropped_frames(FrameDropReason::Stranger), 2);
        assert_eq!(counters.dropped_frames(FrameDropReason::Malformed), 2);
    });
}

#[test]
fn a_group_is_joined_again_when_its_interface_returns() {
    for group in ["udp:[ff02::4:8947%v0]:8947", "udp:239.255.89.47%v0:8947"] {
        in_new_namespace(move |_| async move {
            let peer = PeerNamespace::new();
            let mut link = open_frame_link(group);
            assert_eq!(link.state(), LinkState::Missing);
            for _ in 0..2 {
                join_peer(&peer);
                add_addresses("v0", "2001:db8::1/64", "192.0.2.1/24");
                peer.run_in_namespace(|| add_addresses("p0", "2001:db8::2/64", "192.0.2.2/24"));
                wait_for_link_state(&mut link, LinkState::Up).await;
                let group = group.replace("v0", "p0");
                let (answer, sender) = run_at_peer(&peer, move || async move {
                    let mut link = open_frame_link(&group);
                    link.send(BROADCAST, b"hello").unwrap();
                    link.flush();
                    (receive_until_quiet(&mut link).await, link.address())
                });
                // A station does not receive its own frames.
                assert_eq!(answer, []);
                assert_eq!(receive_until_quiet(&mut link).await, [(sender, BROADCAST, b"hello".to_vec())]);
                link.send(BROADCAST, b"hello").unwrap();
                link.flush();
                assert_eq!(receive_until_quiet(&mut link).await, []);
                run_ip("link del v0");
                wait_for_link_state(&mut link, LinkState::Missing).await;
            }
            assert_eq!(link.counters().sent_frames, 2);
        });
    }
}

fn add_addresses(interface: &str, six: &str, four: &str) {
    add_address(interface, six);
    run_ip(&format!("addr add {four} dev {interface}"));
}

fn report_skipped(reason: &str) {
    assert!(std::env::var("CARNET_REQUIRE_TOOLS").as_deref() != Ok("1"), "{reason}");
    println!("\nSKIPPED: {reason}");
}
