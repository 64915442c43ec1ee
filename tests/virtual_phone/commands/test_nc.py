"""Connections by `nc` inside a phone, and to this computer through adb."""

import asyncio

import pytest

from tests.virtual_phone.shell_runner import Done, probe_phone, run, run_later
from virtual_phone.virtual_phone import VirtualPhone


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("127.0.0.1 9", "connect: Connection refused"),
        ("-w 1 localhost 9", "connect: Connection refused"),
        ("-U /no/socket", "connect: No such file or directory"),
        ("localhost", 'bad argument count (see "nc --help")'),
        ("-z localhost 9", "Unknown option 'z' (see \"nc --help\")"),
        ("-q", 'Missing argument to -q (see "nc --help")'),
        ("-w x localhost 9", "not integer: x"),
        ("-l -w 1 -p 8080", "Timeout"),
        ("10.255.255.1 80", "connect: Network is unreachable"),
        ("example.com 80", "example.com:80: No address associated with hostname"),
    ],
)
def test_errors_are_those_of_toybox(words: str, error: str) -> None:
    done = run(f"nc {words}")
    assert (done.err, done.out, done.code) == (f"nc: {error}\n", "", 1)


async def listening(server: str, phone: VirtualPhone, port: int = 8080) -> "asyncio.Task[Done]":
    """A command that listens at a port."""
    serving = asyncio.create_task(run_later(server, phone))
    while phone.network.find(f"tcp:{port}") is None:
        assert not serving.done(), serving.result()
        await asyncio.sleep(0.001)
    return serving


@pytest.mark.parametrize(
    ("server", "client", "outputs"),
    [
        ("echo from-server | nc -l -p 8080", "echo hello | nc 127.0.0.1 8080",
         ("hello\n", "from-server\n")),
        ("nc -l -p 8080 sh -c 'echo child; cat'", "echo hello | nc localhost 8080",
         ("", "child\nhello\n")),
        ("head -c 3000000 /dev/zero | nc -l -p 8080", "nc localhost 8080 < /dev/null | wc -c",
         ("", "3000000\n")),
    ],
)  # fmt: skip
async def test_data_goes_both_ways(server: str, client: str, outputs: tuple[str, str]) -> None:
    phone = probe_phone()
    serving = await listening(server, phone)
    connected = await run_later(client, phone)
    served = await serving
    assert (served.code, connected.code) == (0, 0)
    assert (served.out, connected.out) == outputs
    assert phone.network.find("tcp:8080") is None


async def test_a_server_without_a_port_says_which_it_has() -> None:
    phone = probe_phone()
    serving = await listening("nc -l", phone, 40000)
    assert (await run_later("nc -l -p 40000", phone)).err == "nc: bind: Address already in use\n"
    await run_later("echo x | nc localhost 40000", phone)
    assert (await serving).out == "40000\nx\n"


@pytest.mark.parametrize("option", ["-W", "-q"])
async def test_a_client_leaves_a_silent_server_in_time(option: str) -> None:
    phone = probe_phone()
    serving = await listening("nc -l -p 8080 sleep 100", phone)
    assert (await run_later(f"nc {option} 1 localhost 8080", phone)).code == 0
    serving.cancel()
