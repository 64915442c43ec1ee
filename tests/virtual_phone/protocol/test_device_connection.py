import asyncio
import struct

import pytest

from tests.virtual_phone.packet_client import PATIENCE_S, PacketClient, serving
from virtual_phone.protocol import (
    adb_packets,
    adb_services,
    device_connection,
    phone_server,
    shell_protocols,
)
from virtual_phone.protocol.adb_packets import CLSE, CNXN, OKAY, OPEN, WRTE


async def test_opening_an_unknown_service_is_refused() -> None:
    async with serving() as phone:
        wire = await PacketClient.to(phone.port)
        wire.send(OPEN, 5, 0, b"nonsense:\0")
        refusal = await wire.next()
        assert (refusal.command, refusal.arg0, refusal.arg1) == (CLSE, 0, 5)


async def test_outputs_of_a_script_share_a_packet_but_wait_for_no_slow_command() -> None:
    async with serving() as phone:
        wire = await PacketClient.to(phone.port)
        wire.send(OPEN, 5, 0, b"shell,v2,raw:echo a; echo b | grep b; sleep 0.3; echo c | cat\0")
        remote, payloads, times = (await wire.next()).arg0, list[bytes](), list[float]()
        while (packet := await wire.next()).command == WRTE:
            payloads.append(packet.payload.replace(b"\1\2\0\0\0", b""))
            times.append(asyncio.get_running_loop().time())
            wire.send(OKAY, 5, remote)
        assert payloads == [b"a\nb\n", b"c\n\3\1\0\0\0\0"]
        assert times[1] - times[0] > 0.2


async def test_large_output_does_not_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell_protocols, "_GATHER_S", 2 * PATIENCE_S)
    async with serving() as phone:
        wire = await PacketClient.to(phone.port)
        wire.send(OPEN, 5, 0, b"shell,v2,raw:head -c 2000000 /dev/zero; sleep 100\0")
        assert (await wire.next()).command == OKAY
        assert len((await wire.next()).payload) > 1_000_000


async def test_nothing_can_be_opened_before_the_handshake() -> None:
    async with serving() as phone:
        wire = await PacketClient.to(phone.port, greet=False)
        wire.send(OPEN, 5, 0, b"shell:echo no\0")
        wire.send(CNXN, adb_packets.VERSION, adb_packets.MAX_PAYLOAD, b"host::")
        assert (await wire.next()).command == CNXN
        assert await wire.ask("shell:echo yes") == b"yes\n"
        assert [command for command, *_ in phone.phone.command_history] == ["echo"]


async def test_a_second_handshake_closes_all_streams() -> None:
    async with serving() as phone:
        wire = await PacketClient.to(phone.port)
        wire.send(OPEN, 5, 0, b"shell:sleep 1000\0")
        assert (await wire.next()).command == OKAY
        wire.send(CNXN, adb_packets.VERSION, adb_packets.MAX_PAYLOAD, b"host::")
        assert (await wire.next()).command == CNXN
        (connection,) = phone._connections
        assert not connection._streams


async def test_a_silent_client_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_connection, "_HANDSHAKE_S", 0.05)
    async with serving() as phone:
        wire = await PacketClient.to(phone.port, greet=False)
        wire.raw(adb_packets.header(CNXN, 1, 2, 100)[:20])
        assert await wire.is_closed()
        assert not phone._connections


async def test_silent_clients_do_not_block_others() -> None:
    async with serving() as phone:
        strangers = [
            await PacketClient.to(phone.port, greet=False)
            for _ in range(phone_server._MAX_CONNECTIONS + 3)
        ]
        client = await PacketClient.to(phone.port)
        assert await client.ask("shell:echo in") == b"in\n"
        assert len(phone._connections) == phone_server._MAX_CONNECTIONS
        for stranger in strangers:
            stranger.close()


async def test_output_that_is_never_read_is_dropped_and_the_phone_keeps_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_connection, "_MAX_HELD", 100_000)
    async with serving() as phone:
        wire = await PacketClient.to(phone.port, greet=False)
        wire.send(CNXN, adb_packets.VERSION, 4096, b"host::")
        for stream in range(1, 9):
            wire.send(OPEN, stream, 0, b"exec:screencap\0")
        closed = 0
        while closed < 5:  # some wait with buffered frames; there is no room for the others
            closed += (await wire.next()).command == CLSE
        (connection,) = phone._connections
        assert connection.held <= 100_000
        other = await PacketClient.to(phone.port)
        assert await other.ask("shell:echo on") == b"on\n"


async def test_a_client_that_does_not_wait_for_acknowledgements_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_connection, "_MAX_HELD", 1 << 20)
    async with serving() as phone:
        wire = await PacketClient.to(phone.port)
        wire.send(OPEN, 5, 0, b"shell:sleep 1000\0")
        remote = (await wire.next()).arg0
        for _ in range(40):
            wire.send(WRTE, 5, remote, bytes(60_000))
        assert await wire.is_closed()
        other = await PacketClient.to(phone.port)
        assert await other.ask("shell:echo on") == b"on\n"


async def test_a_client_that_never_reads_is_not_read_either() -> None:
    async with serving() as phone:
        wire = await PacketClient.to(phone.port)
        (connection,) = phone._connections
        refused = adb_packets.encode(
            adb_packets.Packet(command=OPEN, arg0=9, arg1=0, payload=b"no:\0")
        )
        for _ in range(400):
            wire.raw(refused * 1000)
            await asyncio.sleep(0)
            if not connection._is_reading:
                break
        assert not connection._is_reading
        assert connection.held < 1 << 20
        got = 0
        while got < 1000:  # it is served again once it reads
            got += (await wire.next()).command == CLSE
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while not connection._is_reading and asyncio.get_running_loop().time() < end:
            await wire.next()
        assert connection._is_reading


async def test_the_number_of_streams_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_connection, "_MAX_STREAMS", 3)
    async with serving() as phone:
        wire = await PacketClient.to(phone.port)
        for stream in range(1, 5):
            wire.send(OPEN, stream, 0, b"shell:sleep 1000\0")
        kinds = [(await wire.next()).command for _ in range(4)]
        assert kinds == [OKAY, OKAY, OKAY, CLSE]


async def test_data_for_an_unknown_stream_is_refused() -> None:
    async with serving() as phone:
        wire = await PacketClient.to(phone.port)
        wire.send(OPEN, 5, 0, b"shell:cat\0")
        remote = (await wire.next()).arg0
        wire.send(WRTE, 6, remote, b"not mine")
        refusal = await wire.next()
        assert (refusal.command, refusal.arg1) == (CLSE, 6)


async def test_standard_input_is_passed_on_in_chunks_whatever_its_claimed_length() -> None:
    async with serving() as phone:
        wire = await PacketClient.to(phone.port)
        wire.send(OPEN, 5, 0, b"shell,v2:cat\0")
        remote = (await wire.next()).arg0
        wire.send(WRTE, 5, remote, struct.pack("<BI", 0, 0xFFFFFFFF) + b"first")
        received = b""
        while b"first" not in received:
            packet = await wire.next()
            received += packet.payload if packet.command == WRTE else b""
        (connection,) = phone._connections
        assert connection.held < 1000


@pytest.mark.parametrize("size", [1, 100, 4096, 70_000, adb_packets.MAX_PAYLOAD])
async def test_output_is_split_to_the_clients_maximum_payload(size: int) -> None:
    async with serving() as phone:
        wire = await PacketClient.to(phone.port, greet=False)
        wire.send(CNXN, adb_packets.VERSION, size, b"host::")
        await wire.next()
        phone.phone.files.write("/sdcard/x", bytes(range(256)) * 1000)
        longest, local = 0, 7
        wire.send(OPEN, local, 0, b"exec:cat /sdcard/x\0")
        got, remote = b"", 0
        while (packet := await wire.next()).command != CLSE:
            remote = packet.arg0
            if packet.command == WRTE:
                longest = max(longest, len(packet.payload))
                got += packet.payload
                wire.send(OKAY, local, remote)
        assert got == bytes(range(256)) * 1000
        assert longest <= max(4096, size)


async def test_an_offline_phone_returns_on_the_same_port() -> None:
    async with serving() as phone:
        wire = await PacketClient.to(phone.port)
        phone.phone.faults.set("offline_s", "0.1")
        assert await wire.is_closed()
        with pytest.raises(ConnectionRefusedError):
            await PacketClient.to(phone.port)
        async with asyncio.timeout(PATIENCE_S):
            while phone._listener.fileno() < 0:
                await asyncio.sleep(0.01)
        again = await PacketClient.to(phone.port)
        assert await again.ask("shell:echo back") == b"back\n"
        assert phone.phone.faults.get("offline_s") == ""


async def test_a_phone_that_goes_offline_during_a_reboot_has_rebooted_when_it_returns() -> None:
    async with serving() as phone:
        phone.phone.tasks.launch("org.agentrl.probe", {})
        phone.phone.faults.set("reboot", "30")
        phone.phone.faults.set("offline_s", "0.05")
        async with asyncio.timeout(PATIENCE_S):
            while phone._listener.fileno() < 0:
                await asyncio.sleep(0.01)
        assert not phone.phone.tasks.running


async def test_packets_carry_checksums_until_the_client_announces_that_it_ignores_them() -> None:
    async with serving() as phone:
        for version, is_summed in ((0x01000000, True), (adb_packets.VERSION, False)):
            wire = await PacketClient.to(phone.port, greet=False)
            wire.send(CNXN, version, adb_packets.MAX_PAYLOAD, b"host::")
            wire.send(OPEN, 5, 0, b"exec:echo hello\0")
            received = b""
            while b"hello\n" not in received:
                received += await wire.raw_bytes()
            while received:
                length, checksum = struct.unpack_from("<2I", received, 12)
                payload, received = received[24 : 24 + length], received[24 + length :]
                assert checksum == (sum(payload) if is_summed else 0)


async def test_exec_stores_what_was_sent_by_a_client_that_then_closes() -> None:
    async with serving() as phone:
        wire = await PacketClient.to(phone.port)
        wire.send(OPEN, 5, 0, b"exec:cat > /sdcard/x; sleep 0.05; cp /sdcard/x /sdcard/y\0")
        remote = (await wire.next()).arg0
        for part in (b"a" * 5000, b"b" * 5000):
            wire.send(WRTE, 5, remote, part)
            assert (await wire.next()).command == OKAY
        wire.send(CLSE, 5, remote)
        assert (await wire.next()).command == CLSE
        async with asyncio.timeout(PATIENCE_S):
            while phone.phone.files.find("/sdcard/y") is None:
                await asyncio.sleep(0.01)
        assert phone.phone.files.read("/sdcard/y") == b"a" * 5000 + b"b" * 5000


async def test_exec_ends_when_it_writes_to_a_client_that_is_gone_or_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(adb_services, "_EXEC_OUTLIVES_S", 0.3)
    async with serving() as phone:
        wire = await PacketClient.to(phone.port)
        (connection,) = phone._connections
        tasks = []
        for number, command in enumerate((b"yes", b"sleep 1000"), 5):
            wire.send(OPEN, number, 0, b"exec:" + command + b"\0")
            while (packet := await wire.next()).command != OKAY or packet.arg1 != number:
                pass
            tasks.append(connection._streams[packet.arg0].task)
            wire.send(CLSE, number, packet.arg0)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait(tasks)
        assert [task.cancelled() for task in tasks] == [False, True]


async def test_more_connections_than_there_is_room_for_do_not_displace_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(phone_server, "_MAX_CONNECTIONS", 10)
    async with serving() as phone:
        clients = [await PacketClient.to(phone.port) for _ in range(10)]
        refused = await PacketClient.to(phone.port, greet=False)
        assert await refused.is_closed()
        for client in clients:
            assert await client.ask("shell:echo in") == b"in\n"


async def test_a_port_that_another_connection_reversed_is_reversed_again() -> None:
    async with serving() as phone:
        first, second = [await PacketClient.to(phone.port) for _ in range(2)]
        assert await first.ask("reverse:forward:tcp:80;tcp:1") == b"OKAY"
        refused = await second.ask("reverse:forward:norebind:tcp:80;tcp:2")
        assert b"cannot rebind existing socket" in refused
        assert await second.ask("reverse:forward:tcp:80;tcp:2") == b"OKAY"
        assert b"tcp:80 tcp:2\n" in await first.ask("reverse:list-forward")
        await first.closed()
        assert b"tcp:80 tcp:2\n" in await second.ask("reverse:list-forward")


async def test_junk_connections_are_logged_once_and_then_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    junk = device_connection._LimitedLog()
    monkeypatch.setattr(device_connection, "_junk", junk)
    async with serving() as phone:
        for number in range(5):
            if number == 3:
                junk._next_s = 0.0  # a minute later
            wire = await PacketClient.to(phone.port, greet=False)
            wire.raw(b"GET / HTTP/1.1\r\nHost: phone\r\n\r\n")
            assert await wire.is_closed()
    first, later = caplog.messages
    assert first.startswith("connection dropped: not an ADB packet")
    assert later == f"{first} (2 more since the last warning)"
