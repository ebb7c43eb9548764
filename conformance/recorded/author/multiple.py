"""The home agent and several care-of addresses: RFC 5648, RFC 6089."""

from tester.packets import A, H, OVERWRITE, R, binding_identifier, ip, option

from author.story import (
    CARE_OF, HOME_AGENT, OTHER_CARE_OF, PREFIX, ROUTER, accepted, case, host, refused)

INSIDE = host(PREFIX)


def bid(number, address=CARE_OF, priority=0):
    return binding_identifier(number, ip(address), priority=priority)


@case("rfc5648/46-two-bindings", ["RFC 5648 5.2", "RFC 5648 6.2"], "two identifiers are two bindings; one that comes again moves its own",
      items=["46", "53"])
def two(s):
    s.update(1, prefixes=[PREFIX], options=[bid(1, priority=1)]).says(accepted(1, more=" bid 1=0"))
    s.update(2, source=OTHER_CARE_OF, prefixes=[PREFIX], options=[bid(2, OTHER_CARE_OF, 2)]).says(
        accepted(2, care_of=OTHER_CARE_OF, more=" bid 2=0"))
    s.reaches(INSIDE).comes_out(INSIDE, outer=OTHER_CARE_OF)
    third = "2001:db8:f3::10"
    s.update(3, source=third, prefixes=[PREFIX], options=[bid(1, third, 1)]).says(accepted(3, care_of=third, more=" bid 1=0"))
    s.reaches(INSIDE, care_of=third)


@case("rfc5648/47-overwrite", ["RFC 5648 6.2"], "O: everything that was bound gives way", items=["47"])
def overwrite(s):
    s.registered(1)
    s.update(2, source=OTHER_CARE_OF, flags=A | H | R | OVERWRITE, prefixes=[PREFIX], options=[bid(2, OTHER_CARE_OF)]).says(
        accepted(2, care_of=OTHER_CARE_OF, more=" bid 2=0"))
    s.reaches(INSIDE, care_of=OTHER_CARE_OF)


@case("rfc5648/48-plain-replaces", ["RFC 5648 6.2"], "a Binding Update without identifier ends all that have one, and so does a goodbye",
      items=["48", "48b"])
def plain(s):
    s.update(1, prefixes=[PREFIX], options=[bid(1)]).says(accepted(1, more=" bid 1=0"))
    s.registered(2, source=OTHER_CARE_OF)
    s.reaches(INSIDE, care_of=OTHER_CARE_OF)
    s.update(3, flags=A | H | R | OVERWRITE, prefixes=[PREFIX], options=[bid(1)]).says(accepted(3, more=" bid 1=0"))
    s.update(4, lifetime=0).says(refused(4, 0))
    s.unbound(INSIDE)


@case("rfc5648/49-plain-exists", ["RFC 5648 6.2"], "an identifier, without O, where a binding has none: status 165", items=["49"])
def plain_exists(s):
    s.registered(1)
    s.update(2, source=OTHER_CARE_OF, prefixes=[PREFIX], options=[bid(2, OTHER_CARE_OF)]).says(
        refused(2, 165, care_of=OTHER_CARE_OF, more=" bid 2=0"))
    s.reaches(INSIDE)


@case("rfc5648/50-malformed", ["RFC 5648 6.2"], "an option of a length that does not exist, a care-of address that is not unicast: status 164",
      items=["50"])
def malformed(s):
    s.update(1, prefixes=[PREFIX], options=[option(35, bytes([0, 1, 0, 0, 1]))]).says(refused(1, 164))
    s.update(2, prefixes=[PREFIX], options=[bid(1, "ff02::1")]).says(refused(2, 164, more=" bid 1=0"))


@case("rfc5648/51-unknown", ["RFC 5648 6.2"], "an identifier without care-of address that is not known: 167 in the option, 4 in the answer",
      items=["51", "52"])
def unknown(s):
    s.update(1, prefixes=[PREFIX], options=[bid(1), binding_identifier(2)]).says(
        accepted(1, 4, more=" bid 1=0 bid 2=167"))
    s.reaches(INSIDE)


@case("rfc5648/52-bulk", ["RFC 5648 6.2"], "in bulk, all good: both are bound", items=["52b"])
def bulk(s):
    s.update(1, prefixes=[PREFIX], options=[bid(1, priority=2), bid(2, OTHER_CARE_OF, 1)]).says(
        accepted(1, more=" bid 1=0 bid 2=0"))
    s.reaches(INSIDE, care_of=OTHER_CARE_OF).comes_out(INSIDE)


@case("rfc5648/54-one-goodbye", ["RFC 5648 6.2", "RFC 6275 10.3.2"], "one goodbye leaves the others; of an identifier that is not bound: 133",
      items=["54"])
def one_goodbye(s):
    s.update(1, prefixes=[PREFIX], options=[bid(1, priority=1), bid(2, OTHER_CARE_OF, 2)]).says(
        accepted(1, more=" bid 1=0 bid 2=0"))
    s.update(2, lifetime=0, options=[binding_identifier(1)]).says(refused(2, 0, more=" bid 1=0"))
    s.reaches(INSIDE, care_of=OTHER_CARE_OF)
    s.update(3, lifetime=0, options=[binding_identifier(7)]).says(refused(3, 133, more=" bid 7=0"))
    s.reaches(INSIDE, care_of=OTHER_CARE_OF)


@case("rfc5648/55-one-row-of-numbers", ["RFC 5648 5.1", "RFC 6275 9.5.1"], "all identifiers of a home address share one row of sequence numbers",
      items=["55"])
def numbers(s):
    s.update(5, prefixes=[PREFIX], options=[bid(1)]).says(accepted(5, more=" bid 1=0"))
    s.update(5, source=OTHER_CARE_OF, prefixes=[PREFIX], options=[bid(2, OTHER_CARE_OF)]).says(
        refused(5, 135, care_of=OTHER_CARE_OF, more=" bid 2=0"))


@case("rfc6089/56-priority", ["RFC 6089 4.1"], "the binding with the lowest BID-PRI carries the traffic; when it ends, the next one does",
      items=["56"])
def priority(s):
    s.update(1, prefixes=[PREFIX], options=[bid(1, priority=20), bid(2, OTHER_CARE_OF, 10)]).says(
        accepted(1, more=" bid 1=0 bid 2=0"))
    s.reaches(INSIDE, care_of=OTHER_CARE_OF)
    s.update(2, lifetime=0, options=[binding_identifier(2)]).says(refused(2, 0, more=" bid 2=0"))
    s.reaches(INSIDE)
