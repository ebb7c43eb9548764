//! A member must be one process. The program refuses a second process of a member on the same machine, and
//! warns of a second process on another machine.

use std::fs;

use super::{FLEET_PROGRAM, MEMBER_NAMES, MemberProcess, TestFleet, start_members_and_router};
use crate::hosts::{output_text, seconds, wait_until};

#[test]
fn second_carnet_fleet_does_not_disturb_the_first() {
    let Some(fleet) = TestFleet::new() else { return };
    let ([mut anna, bruno], _router) = start_members_and_router(&fleet);
    for (member, first) in [&anna, &bruno].into_iter().enumerate() {
        let config = fleet.bed.scratch.path_of(&format!("{}.fleet.toml", MEMBER_NAMES[member]));
        let words = ["timeout", "20", FLEET_PROGRAM, "run", "--config", config.to_str().expect("a path")];
        let second = fleet.host_of_member(member).run_program(&words);
        let expected = format!(
            "carnet-fleet already runs for the home agent north on this machine: process {} has locked ",
            first.pid()
        );
        let told = output_text(&second);
        assert!(second.status.code() == Some(1) && told.contains(&expected), "{told}");
        let files = |kind: &str| first.state_directory.join(format!("north.{kind}")).exists();
        assert!(["lock", "store", "ready"].into_iter().all(files), "{told}");
    }
    // The remaining member gets the events of its own home agent, although a second process was started.
    anna.terminate();
    assert!(!anna.state_directory.join("north.lock").exists());
    fleet.bed.core.run_ip("link set ha down");
    wait_until("bruno's works", seconds(20), || {
        bruno.log().contains("its process on this member is active now")
    });
    assert!(bruno.has_router_binding(), "{}", bruno.log());
}

#[test]
fn two_machines_with_one_name_detect_each_other() {
    let Some(fleet) = TestFleet::new() else { return };
    let ([anna], _router) = start_members_and_router::<1>(&fleet);
    let config = fleet.write_member_config(1);
    let text = fs::read_to_string(&config).expect("a config file");
    fs::write(&config, text.replace("member = 'bruno'", "member = 'anna'")).expect("a config file");
    let other = fleet.start_member_with_config(1, &config);
    let hears = |member: &MemberProcess| {
        member.log().matches("another process uses the member name anna too").count() == 1
    };
    wait_until("both say so, once", seconds(20), || hears(&anna) && hears(&other));
    assert!(anna.has_router_binding() && other.bindings().is_none(), "{}", other.log());
}
