//! Tests the output of `carnet-fleet status`: without a leader, with a leader, and after members have died.

use std::net::TcpListener;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::{FLEET_PROGRAM, TestFleet, start_members_and_router};
use crate::hosts::{output_text, seconds, wait_for};

fn run_status(fleet: &TestFleet, member: usize, options: &[&str]) -> Output {
    let config = fleet.bed.scratch.path_of(&format!("{}.fleet.toml", super::MEMBER_NAMES[member]));
    let words = [&[FLEET_PROGRAM, "status", "--config", config.to_str().expect("a path")], options].concat();
    fleet.host_of_member(member).run_program(&words)
}

/// Returns the status as JSON once a condition holds.
fn wait_for_status(
    fleet: &TestFleet,
    member: usize,
    what: &str,
    code: i32,
    holds: impl Fn(&Value) -> bool,
) -> Value {
    let mut last = String::new();
    wait_for(what, seconds(40), || {
        let output = run_status(fleet, member, &["--json"]);
        let found = serde_json::from_slice(&output.stdout).ok().filter(&holds);
        let text = output_text(&output);
        if text != last {
            println!("{:?} {text}", output.status.code());
            last = text;
        }
        found.filter(|_| output.status.code() == Some(code))
    })
}

/// Returns the status as text for people, and checks the exit code.
fn status_text(fleet: &TestFleet, member: usize, code: i32) -> String {
    let output = run_status(fleet, member, &[]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(code), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

#[test]
fn fleet_status_names_leader_and_members() {
    let Some(mut fleet) = TestFleet::new() else { return };
    let member = |name: &str, state: &str| {
        json!({
            "name": name, "state": state, "cut_off": false, "listed": true, "has_other_key": false
        })
    };
    fleet.write_member_config(0);
    let new = wait_for_status(&fleet, 0, "etcd is up, and nobody has the seat", 1, |status| {
        status["state"] == "new"
    });
    let nobody = json!({
        "seat": "north",
        "owner": null,
        "state": "new",
        "last": null,
        "members": [member("anna", "silent"), member("bruno", "silent")],
        "nodes": 0,
        "store": [{"server": "[2001:db8:c::1]:2379", "error": null}],
        "here": {"member": "anna", "runs": false},
    });
    assert_eq!(new, nobody);
    let expected = "seat              north\n\
                    owner             nobody yet\n  \
                      anna            says nothing\n  \
                      bruno           says nothing\n\
                    nodes             0\n\
                    store             [2001:db8:c::1]:2379: answers\n\
                    here              anna: no carnet-fleet runs\n";
    assert_eq!(status_text(&fleet, 0, 1), expected);

    let ([mut anna, mut bruno], _router) = start_members_and_router::<2>(&fleet);
    let all = |status: &Value| {
        status["members"] == json!([member("anna", "owner"), member("bruno", "waits")])
            && status["state"] == "working"
            && status["nodes"] == 1
    };
    let works = wait_for_status(&fleet, 1, "anna has it, and bruno waits", 0, all);
    assert_eq!(
        (&works["owner"], &works["here"]),
        (&json!("anna"), &json!({"member": "bruno", "runs": true}))
    );
    assert_eq!((&works["last"]["member"], &works["last"]["gives_to"]), (&json!("anna"), &Value::Null));

    anna.kill();
    fleet.bed.core.run_ip("link set ha down");
    let all = |status: &Value| {
        status["members"] == json!([member("anna", "silent"), member("bruno", "owner")])
            && status["state"] == "working"
    };
    let works = wait_for_status(&fleet, 1, "bruno has it", 0, all);
    assert_eq!((&works["owner"], &works["nodes"]), (&json!("bruno"), &json!(1)));

    bruno.terminate();
    let expected = status_text(&fleet, 1, 1);
    assert!(
        expected.contains("\nowner             no leader: bruno has given the leadership up\n"),
        "{expected}"
    );
    assert!(expected.contains("\n  bruno           says nothing\n"), "{expected}");
    assert!(expected.contains("\nnodes             1\n"), "{expected}");
    assert!(expected.ends_with("\nhere              bruno: no carnet-fleet runs\n"), "{expected}");

    let mut bruno = fleet.start_member(1);
    wait_for_status(&fleet, 1, "bruno has it again", 0, |status| status["owner"] == "bruno");
    bruno.kill();
    wait_for_status(&fleet, 1, "nobody has it any more", 1, |status| {
        status["state"] == "silent" && status["owner"].is_null() && status["last"]["member"] == "bruno"
    });
    let expected = status_text(&fleet, 1, 1);
    let owner = "\nowner             no leader: bruno was the last one, and no longer writes to the store\n";
    assert!(expected.contains(owner), "{expected}");

    // One server of the config accepts connections but does not answer, and another server does not exist.
    let _silent =
        fleet.bed.core.run_in_namespace(|| TcpListener::bind("[2001:db8:c::1]:2383")).expect("a port");
    let url = std::mem::replace(
        &mut fleet.etcd_url,
        "http://[2001:db8:c::1]:2383', 'http://[2001:db8:c::1]:2379".into(),
    );
    fleet.write_member_config(1);
    let one = status_text(&fleet, 1, 1);
    assert!(
        one.contains("\nstore             [2001:db8:c::1]:2383: etcd did not answer within 5 s\n"),
        "{one}"
    );
    assert!(one.contains("\nstore             [2001:db8:c::1]:2379: answers\n"), "{one}");
    fleet.etcd_process.kill().expect("etcd");
    fleet.etcd_process.wait().expect("etcd");
    let expected = "owner             unknown: no server of the store answers\nstore             \
     [2001:db8:c::1]:2383: etcd did not answer within 5 s\nstore             [2001:db8:c::1]:2379: cannot \
     reach etcd at [2001:db8:c::1]:2379: Connection refused";
    let none = status_text(&fleet, 1, 1);
    assert!(none.contains(expected), "{none}");
    assert!(none.ends_with("\nhere              bruno: no carnet-fleet runs\n"), "{none}");
    let none: Value = serde_json::from_slice(&run_status(&fleet, 1, &["--json"]).stdout).expect("JSON");
    assert_eq!((&none["state"], &none["owner"]), (&json!("unreachable"), &Value::Null));
    assert!(none["nodes"].is_null() && none["store"][1]["error"].is_string(), "{none}");
    fleet.etcd_url = url;
}

/// The command reports a mistake in the config before it sends any request.
#[test]
fn status_of_a_config_with_a_mistake_is_refused() {
    let asked = |arguments: &[&str]| {
        let output = Command::new(FLEET_PROGRAM).arg("status").args(arguments).output().expect("the program");
        (output.status.code(), output_text(&output))
    };
    for (arguments, expected) in [
        (&[][..], "required arguments"),
        (&["/nowhere/fleet.toml"], "cannot read /nowhere/fleet.toml"),
        (&["--json", "--config", "/nowhere/fleet.toml"], "cannot read /nowhere/fleet.toml"),
    ] {
        let (code, text) = asked(arguments);
        assert!(code == Some(2) && text.contains(expected), "{code:?} {text}");
    }
}
