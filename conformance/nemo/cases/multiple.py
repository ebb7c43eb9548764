"""Several care-of addresses: RFC 5648, and BID-PRI of RFC 6089 4.1."""

import struct

from tester import packets
from tester.case import A, H, IN_FLIGHT, R, case, expect
from tester.packets import BINDING_IDENTIFIER, OVERWRITE, binding_identifier, option


def single(mobile, bid, which, status=0, **update):
    """Registers one care-of address with a Binding Identifier."""
    care_of = mobile.care_of_address(which)
    return mobile.register(status, care_of=care_of, options=[binding_identifier(bid, care_of)], **update)


def dead(mobile, bid, which):
    return single(mobile, bid, which, lifetime=0, prefixes=[])


def two_that_work(mobile):
    """Registers two care-of addresses, and sees the tunnel of each at work."""
    single(mobile, 1, 1)
    # The home agent may use either of two bindings for packets that it sends.
    mobile.arrives(mobile.home, care_of=mobile.care_of_address(1))
    single(mobile, 2, 2)
    mobile.leaves(mobile.home, care_of=mobile.care_of_address(2))


@case("46", "RFC 5648 5.2, 6.2", "two identifiers are two bindings; one that comes again moves its own")
def two(mobile):
    for bid in (1, 2):
        found = single(mobile, bid, bid)
        expect(found.identifiers().get(bid) == 0, f"identifiers {found.identifiers()}")
    mobile.leaves(mobile.home, care_of=mobile.care_of_address(1))
    mobile.leaves(mobile.home, care_of=mobile.care_of_address(2))
    single(mobile, 1, 3)
    mobile.leaves(mobile.home, care_of=mobile.care_of_address(3))
    mobile.leaves(mobile.home, care_of=mobile.care_of_address(2))


@case("47", "RFC 5648 6.2", "O: everything that was bound gives way")
def overwrite(mobile):
    single(mobile, 1, 1)
    single(mobile, 2, 2)
    single(mobile, 3, 3, flags=A | H | R | OVERWRITE)
    mobile.arrives(mobile.home, care_of=mobile.care_of_address(3))
    dead(mobile, 3, 3)
    mobile.does_not_arrive(mobile.home)


@case("48", "RFC 5648 6.2", "a Binding Update without identifier ends all that have one")
def plain(mobile):
    two_that_work(mobile)
    mobile.register()
    mobile.arrives(mobile.home, care_of=mobile.care_of)
    mobile.deregister()
    mobile.does_not_arrive(mobile.home)


@case("48b", "RFC 5648 6.2", "a goodbye without identifier ends all bindings")
def goodbye_to_all(mobile):
    two_that_work(mobile)
    mobile.deregister(care_of=mobile.care_of_address(1))
    mobile.does_not_arrive(mobile.home)


@case("49", "RFC 5648 6.2", "an identifier, without O, where a binding has none: status 165")
def conflict(mobile):
    mobile.register()
    single(mobile, 1, 1, status=165)
    mobile.arrives(mobile.home, care_of=mobile.care_of)


@case("50", "RFC 5648 6.2", "an option of a length that does not exist: status 164; a care-of address that is not unicast: 164")
def bad_option(mobile):
    mobile.register(164, options=[option(BINDING_IDENTIFIER, struct.pack(">HBB", 1, 0, 0) + bytes(7))])
    mobile.does_not_arrive(mobile.home)
    group = packets.ip("ff02::1")
    sequence = mobile.update(options=[binding_identifier(1, group)], proof=group)
    found = mobile.acknowledgement(sequence, care_of=group)
    expect(found is not None and (found.status == 164 or 164 in found.identifiers().values()),
           f"status {found and found.status}, identifiers {found and found.identifiers()}")


@case("51", "RFC 5648 6.2", "several options: one without care-of address and unknown has 167, the Binding Update 4")
def unknown(mobile):
    other = mobile.care_of_address(1)
    found = mobile.register(4, options=[binding_identifier(1, other), binding_identifier(9)], proof=other)
    expect(found.identifiers() == {1: 0, 9: 167}, f"identifiers {found.identifiers()}")


@case("52", "RFC 5648 6.2", "in bulk, one of them bad: status 4, and a status for each")
def bulk_with_bad(mobile):
    good, group = mobile.care_of_address(1), packets.ip("ff02::1")
    found = mobile.register(4, options=[binding_identifier(1, good), binding_identifier(2, group)], proof=good)
    states = found.identifiers()
    expect(states.get(1) == 0 and states.get(2) == 164, f"identifiers {states}")
    mobile.arrives(mobile.home, care_of=good)


@case("52b", "RFC 5648 6.2", "in bulk, all good: both are bound")
def bulk(mobile):
    one, other = mobile.care_of_address(1), mobile.care_of_address(2)
    found = mobile.register(options=[binding_identifier(1, one), binding_identifier(2, other)], proof=one)
    expect(found.identifiers() == {1: 0, 2: 0}, f"identifiers {found.identifiers()}")
    mobile.leaves(mobile.home, care_of=one)
    mobile.leaves(mobile.home, care_of=other)


@case("53", "RFC 5648 6.2, 5.3", "the answer has every Binding Identifier option, as it came but for its status, and perhaps without its care-of "
      "address")
def echoed(mobile):
    one, other = mobile.care_of_address(1), mobile.care_of_address(2)
    # Statuses that a Binding Update may have by mistake are overwritten.
    sent = [binding_identifier(7, one, 200, priority=3), binding_identifier(300, other, priority=9)]
    found = mobile.register(options=sent, proof=one)
    came = found.packet.all(BINDING_IDENTIFIER)
    expect(len(came) == len(sent), f"{len(came)} options")
    for there, here in zip((data[2:] for data in sent), came):
        expect(here[2] == 0, f"status {here[2]}")
        expect(here[:2] + here[3:4] == there[:2] + there[3:4], f"{here.hex()} for {there.hex()}")
        # RFC 5648 6.2: "The Care-of Address field [...] MAY be omitted."
        expect(here[4:] in (b"", there[4:]), f"{here.hex()} for {there.hex()}")


@case("54", "RFC 5648 6.2, RFC 6275 10.3.2", "one goodbye leaves the others; of an identifier that is not bound: 133")
def goodbye_to_one(mobile):
    single(mobile, 1, 1)
    single(mobile, 2, 2)
    dead(mobile, 1, 1)
    mobile.arrives(mobile.home, care_of=mobile.care_of_address(2))
    # Packets that were on their way at the de-registration may still leave the tunnel.
    mobile.silence(lambda heard: False, "", IN_FLIGHT)
    mobile.does_not_leave(mobile.home, care_of=mobile.care_of_address(1))
    sequence = mobile.update(lifetime=0, prefixes=[], options=[binding_identifier(5)], care_of=mobile.care_of_address(5))
    found = mobile.acknowledgement(sequence, care_of=mobile.care_of_address(5))
    expect(found is not None and (found.status == 133 or found.identifiers().get(5) == 133),
           f"status {found and found.status}, identifiers {found and found.identifiers()}")


@case("55", "RFC 5648 5.1, RFC 6275 9.5.1", "all identifiers of a home address share one row of sequence numbers")
def one_row(mobile):
    last = mobile.number_ahead(50)
    single(mobile, 1, 1, sequence=last)
    found = single(mobile, 2, 2, status=135, sequence=last)
    expect(found.sequence == last, f"refused with sequence {found.sequence}")
    single(mobile, 2, 2, sequence=last + 1)


@case("56", "RFC 6089 4.1", "the binding with the lowest BID-PRI carries the traffic; when it ends, the next one does")
def priority(mobile):
    one, other = mobile.care_of_address(1), mobile.care_of_address(2)
    mobile.register(options=[binding_identifier(1, one, priority=20), binding_identifier(2, other, priority=10)], proof=one)
    mobile.arrives(mobile.home, care_of=other)
    mobile.register(lifetime=0, prefixes=[], options=[binding_identifier(2)], care_of=other)
    mobile.arrives(mobile.home, care_of=one)

