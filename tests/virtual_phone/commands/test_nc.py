"""Connections by `nc` inside a phone."""

import asyncio

import pytest

from tests.virtual_phone.shell_runner import probe_phone, run, run_later
from tests.virtual_phone.socket_ends import SocketEnd, connected_sockets
from virtual_phone.system.byte_channels import Channel
from virtual_phone.system.phone_network import PortListener
from virtual_phone.virtual_phone import VirtualPhone


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("127.0.0.1 9", "connect: Connection refused"),
        ("-w 1 localhost 9", "connect: Connection refused"),
        ("-U /no/socket", "connect: No such file or directory"),
        ("localhost", 'bad argument count (see "nc --help")'),
        ("-z localhost 9", "Unknown option 'z' (see \"nc --help\")"),
        ("-l -p 8080", "Unknown option 'l' (see \"nc --help\")"),
        ("-q", 'Missing argument to -q (see "nc --help")'),
        ("-w x localhost 9", "not integer: x"),
        ("10.255.255.1 80", "connect: Network is unreachable"),
        ("example.com 80", "example.com:80: No address associated with hostname"),
    ],
)
def test_errors_are_those_of_toybox(words: str, error: str) -> None:
    done = run(f"nc {words}")
    assert (done.err, done.out, done.code) == (f"nc: {error}\n", "", 1)


def accepted(phone: VirtualPhone) -> list[SocketEnd]:
    """Listen at port 8080; returns the connections made from then on."""
    connections: list[SocketEnd] = []

    def accept() -> Channel:
        theirs, ours = connected_sockets()
        connections.append(ours)
        return theirs

    phone.network.listen("tcp:8080", PortListener(owner=None, accept=accept))
    return connections


async def test_data_goes_both_ways() -> None:
    phone = probe_phone()
    connections = accepted(phone)
    client = asyncio.create_task(run_later("echo hello | nc 127.0.0.1 8080 | wc -c", phone))
    while not connections:
        await asyncio.sleep(0)
    assert await connections[0].read() == b"hello\n"
    connections[0].write(bytes(3_000_000))
    connections[0].close()
    assert (await client).out == "3000000\n"


@pytest.mark.parametrize("option", ["-W", "-q"])
async def test_a_client_leaves_a_silent_server_in_time(option: str) -> None:
    phone = probe_phone()
    connections = accepted(phone)
    assert (await run_later(f"nc {option} 1 localhost 8080", phone)).code == 0
    assert len(connections) == 1
