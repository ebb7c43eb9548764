"""The home agent on a real home link: RFC 6275 10.3, 10.4."""

from tester.packets import A, H, L, R

from author.story import CARE_OF, HOME_AGENT, NODE, PREFIX, ROUTER, accepted, case, host, refused

CONFIG = "home-link.toml"
NODE_FLAGS = A | H


def ready(s):
    s.interface("h0", "2001:db8:1::ff").says(f"h0: {HOME_AGENT} is here (RO) to ff02::1")
    for _ in range(3):
        s.after(1)
    return s


def probed(s, home, flags, sequence=1, prefixes=()):
    """The first registration: duplicate address detection first, then the answer."""
    s.update(sequence, home=home, flags=flags, prefixes=prefixes).says(f"h0: who has {home}, from ::")
    told = "RO" if flags & R else "O"
    s.after(1).says(accepted(sequence, home=home, flags=flags), f"h0: {home} is here ({told}) to ff02::1")
    return s


@case("rfc6275/39-duplicate-address-detection", ["RFC 6275 10.3.1"],
      "the home address is tested for duplicates before the first answer, not at a refresh", CONFIG, ["39"], ["BU_DAD"])
def detection(s):
    ready(s)
    probed(s, NODE, NODE_FLAGS)
    s.after(5)
    s.update(2, home=NODE, flags=NODE_FLAGS).says(accepted(2, home=NODE, flags=NODE_FLAGS))


@case("rfc6275/39b-duplicate", ["RFC 6275 10.3.1"], "somebody on the home link has the home address: status 134, and nobody defends it",
      CONFIG, ["39b"], ["BU_DAD"])
def duplicate(s):
    ready(s)
    s.update(1, home=NODE, flags=NODE_FLAGS).says(f"h0: who has {NODE}, from ::")
    s.claims(NODE).says(refused(1, 134, home=NODE, flags=0))
    s.asks_for(NODE).says()


@case("rfc3963/15-router-bit", ["RFC 3963 6.2", "RFC 6275 10.4.1"], "the home agent's Neighbor Advertisement for a router has the R bit",
      CONFIG, ["15"])
def router_bit(s):
    ready(s)
    probed(s, ROUTER, A | H | R, prefixes=[PREFIX])
    s.asks_for(ROUTER).says(f"h0: {ROUTER} is here (RSO) to fe80::9")


@case("rfc6275/t3-defended-while-bound", ["RFC 6275 10.4.1"], "the home address is defended while it is bound, and not after", CONFIG,
      ["15b", "T3", "T4"], ["HA_4_4_1", "BU_ND", "BU_NA"])
def defended(s):
    ready(s)
    s.asks_for(NODE).says()
    probed(s, NODE, NODE_FLAGS)
    s.asks_for(NODE).says(f"h0: {NODE} is here (SO) to fe80::9")
    s.asks_for(NODE, source="::").says(f"h0: {NODE} is here (O) to ff02::1")
    s.update(2, home=NODE, flags=NODE_FLAGS, lifetime=0).says(refused(2, 0, home=NODE, flags=0))
    s.asks_for(NODE).says()


@case("rfc6275/t5-home-again", ["RFC 6275 10.3.2"], "de-registration from the home address itself, at home", CONFIG, ["T5"],
      ["DeReg_LT0_HOME", "DeReg_LT1_HOME"])
def home_again(s):
    ready(s)
    probed(s, NODE, NODE_FLAGS)
    s.update(2, home=NODE, flags=NODE_FLAGS, lifetime=0, at_home=True).says(f"{HOME_AGENT} > {NODE} BA 0 seq 2 life 0")
    s.asks_for(NODE).says()


@case("rfc6275/40-link-local", ["RFC 6275 10.4.1"], "with L the link-local address is defended as well", CONFIG, ["40"])
def link_local(s):
    ready(s)
    flags = A | H | L
    s.update(1, home=NODE, flags=flags).says(f"h0: who has {NODE}, from ::", "h0: who has fe80::77, from ::")
    s.after(1)
    s.asks_for("fe80::77").says("h0: fe80::77 is here (SO) to fe80::9")


@case("rfc6275/41-nothing-asked-for-others", ["RFC 6275 10.4.1", "RFC 3963 6.5"],
      "nothing is said on the home link about addresses of mobile networks or of nobody", CONFIG)
def others(s):
    ready(s)
    probed(s, ROUTER, A | H | R, prefixes=[PREFIX])
    s.asks_for(host(PREFIX)).says()
    s.asks_for("2001:db8:1::ee").says()
