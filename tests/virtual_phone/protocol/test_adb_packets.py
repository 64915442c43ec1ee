import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from virtual_phone.protocol import adb_packets
from virtual_phone.protocol.adb_packets import Packet, PacketParser, ProtocolError

u32 = st.integers(0, 2**32 - 1)
kinds = [
    adb_packets.CNXN,
    adb_packets.AUTH,
    adb_packets.OPEN,
    adb_packets.OKAY,
    adb_packets.WRTE,
    adb_packets.CLSE,
]
any_packet = st.builds(
    Packet,
    command=st.sampled_from(kinds),
    arg0=u32,
    arg1=u32,
    payload=st.binary(max_size=300),
)


@given(st.lists(any_packet, max_size=5), st.lists(st.integers(1, 40), min_size=1))
@settings(deadline=None)
def test_packets_are_parsed_from_chunks_of_any_size(sent: list[Packet], cuts: list[int]) -> None:
    data = b"".join(map(adb_packets.encode, sent))
    parser, got, at, turn = PacketParser(), [], 0, 0
    while at < len(data):
        step = cuts[turn % len(cuts)]
        got += parser.feed(data[at : at + step])
        at, turn = at + step, turn + 1
    assert got == sent


@given(st.binary(min_size=24, max_size=400))
@settings(deadline=None)
def test_garbage_is_either_rejected_or_buffered(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        list(PacketParser().feed(data))


@given(st.lists(any_packet, min_size=1, max_size=4), st.integers(0), st.integers(0, 255))
@settings(deadline=None)
def test_packets_with_one_changed_byte_are_parsed_rejected_or_buffered(
    sent: list[Packet], where: int, byte: int
) -> None:
    data = bytearray(b"".join(map(adb_packets.encode, sent)))
    data[where % len(data)] = byte
    parser = PacketParser()
    with contextlib.suppress(ProtocolError):
        got = list(parser.feed(bytes(data)))
        assert sum(24 + len(packet.payload) for packet in got) <= len(data)


def test_a_payload_beyond_the_limit_is_rejected_before_it_is_buffered() -> None:
    head = adb_packets.header(adb_packets.WRTE, 1, 2, adb_packets.MAX_PAYLOAD + 1)
    with pytest.raises(ProtocolError, match="exceeds"):
        list(PacketParser().feed(head))
