"""The mobile router: RFC 3963 5, RFC 6275 11."""

from tester import packets

from author.story import CARE_OF, HOME_AGENT, OTHER_CARE_OF, PREFIX, ROUTER, SECOND_PREFIX, case, host

CONFIG = "mobile-router.toml"
PREFIXES = f" {PREFIX} {SECOND_PREFIX}"


def update(sequence, care_of=CARE_OF, prefixes=PREFIXES, lifetime=60):
    return f"{care_of} > {HOME_AGENT} of {ROUTER} BU AHR seq {sequence} life {lifetime}{prefixes} at {care_of}"


def attached(s, prefixes=PREFIXES):
    """The preferred uplink comes up."""
    s.state = {"mobile_router": {"sequence": 100}}
    return s.interface("w0", CARE_OF).says(update(101, prefixes=prefixes))


def registered(s):
    attached(s)
    return s.acknowledge(101).says()


@case("rfc6275/63-retransmission", ["RFC 6275 11.8"], "lost Binding Updates come again after 1.5 s, then after twice the time, each with a new number",
      CONFIG, ["63"])
def retransmission(s):
    attached(s)
    s.after(1.4)
    s.after(0.1).says(update(102))
    s.after(3).says(update(103))


@case("rfc3963/63b-explicit", ["RFC 3963 5.1", "RFC 3963 5.2", "RFC 6275 6.1.7"], "explicit mode: each Binding Update names the prefixes, also a refresh",
      CONFIG, ["63b", "64h"])
def explicit(s):
    registered(s)
    s.after(45).says(update(102))


@case("rfc3963/63c-implicit", ["RFC 3963 5.2"], "implicit mode: no prefix in the Binding Update", "implicit.toml", ["63c"])
def implicit(s):
    attached(s, prefixes="")


@case("rfc6275/64a-out-of-window", ["RFC 6275 11.7.3"], "status 135: again at once, with a number behind the one that the agent told", CONFIG, ["64a"])
def out_of_window(s):
    attached(s)
    s.acknowledge(5000, 135).says(update(5001))


@case("rfc3963/64b-refused", ["RFC 3963 5.4"], "status 140: no storm of Binding Updates", CONFIG, ["64b"])
def refused(s):
    attached(s)
    s.acknowledge(101, 140, lifetime=0).says()
    s.after(100).says()
    s.after(501).says(update(102))


@case("rfc3963/64d-taken-for-a-host", ["RFC 3963 5.3"], "accepted without R: it de-registers", CONFIG, ["64d"])
def host_only(s):
    attached(s)
    s.acknowledge(101, flags=0).says(update(102, prefixes="", lifetime=0))


@case("rfc6275/64e-other-number", ["RFC 6275 11.7.3"], "an acknowledgement with another sequence number is ignored", CONFIG, ["64e"])
def other_number(s):
    attached(s)
    s.acknowledge(99).says()
    s.echo(host(PREFIX), "2001:db8:99::1").says(f"{HOME_AGENT_SAYS} > {host(PREFIX)} ICMPv6 1/3")


@case("rfc3963/64g-tunnel", ["RFC 3963 5.5", "RFC 3963 9"],
      "registered: the mobile network's packets go into the tunnel, packets come out from the home agent alone", CONFIG, ["64g", "64i"])
def tunnel(s):
    registered(s)
    inside = host(PREFIX)
    s.echo(inside, "2001:db8:99::1").says(f"{CARE_OF} > {HOME_AGENT} [{inside} > 2001:db8:99::1 echo request]")
    s.tunnelled("2001:db8:99::1", inside, outer=HOME_AGENT, to=CARE_OF).says(f"2001:db8:99::1 > {inside} echo request")
    s.tunnelled("2001:db8:99::1", inside, outer="2001:db8:99::2", to=CARE_OF).says()


@case("rfc3963/65-move", ["RFC 6275 11.7.1", "RFC 3963 5.1"],
      "the uplink is lost: a Binding Update over the other, and traffic follows it at once", CONFIG)
def move(s):
    registered(s)
    s.interface("w1", OTHER_CARE_OF, mac=2).says()
    s.interface("w0", running=False).says(update(102, care_of=OTHER_CARE_OF))
    inside = host(PREFIX)
    s.echo(inside, "2001:db8:99::1").says(f"{OTHER_CARE_OF} > {HOME_AGENT} [{inside} > 2001:db8:99::1 echo request]")


@case("rfc6275/64j-refresh-request", ["RFC 6275 11.7.4"], "a Binding Refresh Request is answered with a Binding Update, not by every one of them",
      CONFIG, ["64j"])
def refresh_request(s):
    registered(s)
    request = packets.mobility(packets.REFRESH_REQUEST, b"\0\0")
    s.answer(request).says(update(102))
    s.acknowledge(102).says()
    s.answer(request).says()
    # Only what comes from the home agent counts.
    s.after(2)
    s.answer(request, source="2001:db8:99::2").says()


@case("rfc6275/64l-rate", ["RFC 6275 11.7.1", "RFC 6275 12"], "no more than three Binding Updates in a second, whatever happens", CONFIG, ["64l"])
def rate(s):
    attached(s)
    s.acknowledge(5000, 135).says(update(5001))
    s.acknowledge(6000, 135).says(update(6001))
    s.acknowledge(7000, 135).says()
    s.after(0.9).says()
    s.after(0.1).says(update(7001))


@case("rfc6275/64k-home", ["RFC 6275 11.5.5", "RFC 3963 5.8"], "back on the home link: de-registration from the home address, without prefixes",
      CONFIG, ["64k"])
def home(s):
    registered(s)
    s.interface("w1", "2001:db8:1::99", mac=2)
    s.interface("w0", running=False).says(f"{ROUTER} > {HOME_AGENT} BU AHR seq 102 life 0")


# Source of the router's own answers: the kernel selects the home address.
HOME_AGENT_SAYS = ROUTER
