//! Tests whether interfaces have a carrier, and whether neighbours answer echoes.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use carnet_linux::{CarrierWatch, EchoRequests, ProbedNeighbour};
use common::*;
use tokio::time::timeout;

const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn lost_carrier_is_noticed() {
    in_new_namespace(|_scratch| async {
        let peer = PeerNamespace::new();
        let mut carriers = CarrierWatch::open(vec!["lo".into(), "r0".into()]).unwrap();
        let mut until = async |wanted: Option<&str>| {
            while carriers.first_interface_without_carrier().unwrap() != wanted {
                timeout(REPLY_TIMEOUT, carriers.wait_for_carrier_change()).await.expect("news").unwrap();
            }
        };
        until(Some("r0")).await;
        peer.create_link("r0", "p0");
        until(None).await;
        peer.run_in_namespace(|| run_ip("link set p0 down"));
        until(Some("r0")).await;
        peer.run_in_namespace(|| run_ip("link set p0 up"));
        until(None).await;
        run_ip("link set r0 down");
        until(Some("r0")).await;
        run_ip("link set r0 up");
        until(None).await;
        run_ip("link del r0");
        until(Some("r0")).await;
    });
}

#[test]
fn observer_accepts_replies_of_configured_neighbours_only() {
    in_new_namespace(|_scratch| async {
        let peer = PeerNamespace::new();
        peer.create_link("r0", "p0");
        run_ip("-6 addr add 2001:db8::1/64 dev r0 nodad");
        peer.run_in_namespace(|| run_ip("-6 addr add 2001:db8::2/64 dev p0 nodad"));
        peer.run_in_namespace(|| run_ip("-6 addr add fe80::2/64 dev p0 nodad"));
        run_ip("-6 addr add fe80::1/64 dev r0 nodad");
        let neighbour = |address: &str, interface: Option<&str>| ProbedNeighbour {
            address: address.parse().unwrap(),
            interface: interface.map(str::to_owned),
        };
        // A missing neighbour does not answer, and neither does one over a missing interface.
        let silent = [neighbour("2001:db8::3", None), neighbour("fe80::2", Some("r9"))];
        for (asked, answers) in [
            (vec![neighbour("2001:db8::2", None)], true),
            (vec![neighbour("fe80::2", Some("r0"))], true),
            ([&silent[..], &[neighbour("2001:db8::2", None)]].concat(), true),
            (silent.to_vec(), false),
        ] {
            let mut echoes = EchoRequests::open(asked.clone()).unwrap();
            // Replies to another socket that arrive in the meantime do not count as replies to this socket.
            let mut other = EchoRequests::open(vec![neighbour("2001:db8::2", None)]).unwrap();
            let answered = timeout(if answers { REPLY_TIMEOUT } else { Duration::from_millis(300) }, async {
                loop {
                    echoes.send_requests();
                    other.send_requests();
                    if timeout(Duration::from_millis(50), echoes.wait_for_reply()).await.is_ok() {
                        return;
                    }
                }
            });
            assert_eq!(answered.await.is_ok(), answers, "{asked:?}");
            timeout(REPLY_TIMEOUT, other.wait_for_reply()).await.unwrap().unwrap();
        }
    });
}
