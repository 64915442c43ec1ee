import base64
import random
import struct
from dataclasses import dataclass

import pytest

from tests.virtual_phone.packet_client import PacketClient, serving
from virtual_phone.protocol import adb_packets
from virtual_phone.protocol.adb_auth import _DIGEST_INFO, KEYS_FILE, TrustedKeys
from virtual_phone.protocol.adb_packets import AUTH, AUTH_PUBLIC_KEY, AUTH_SIGNATURE, CNXN
from virtual_phone.system.file_system import FileSystem


def prime(source: random.Random) -> int:
    """Return a random 1024-bit prime."""
    small = [n for n in range(3, 2000, 2) if all(n % d for d in range(3, int(n**0.5) + 1, 2))]
    while True:
        n = source.getrandbits(1024) | (3 << 1022) | 1
        if all(n % p for p in small) and pow(2, n - 1, n) == 1 and n % 65537 != 1:
            return n


@dataclass
class Key:
    """A computer's RSA key."""

    modulus: int
    secret: int

    @property
    def public(self) -> str:
        raw = struct.pack("<II", 64, 0) + self.modulus.to_bytes(256, "little") + bytes(256)
        return base64.b64encode(raw + struct.pack("<I", 65537)).decode() + " somebody@here"

    def sign(self, token: bytes) -> bytes:
        digest = _DIGEST_INFO + token
        padded = b"\0\1" + b"\xff" * (253 - len(digest)) + b"\0" + digest
        return pow(int.from_bytes(padded, "big"), self.secret, self.modulus).to_bytes(256, "big")


@pytest.fixture(scope="module")
def keys() -> tuple[Key, Key]:
    source = random.Random(5)

    def one() -> Key:
        p, q = prime(source), prime(source)
        return Key(p * q, pow(65537, -1, (p - 1) * (q - 1)))

    return one(), one()


async def challenged(wire: PacketClient) -> bytes:
    wire.send(CNXN, adb_packets.VERSION, adb_packets.MAX_PAYLOAD, b"host::")
    packet = await wire.next()
    assert (packet.command, packet.arg0, len(packet.payload)) == (AUTH, 1, 20)
    return packet.payload


async def test_a_client_with_a_trusted_key_is_accepted(keys: tuple[Key, Key]) -> None:
    ours, _ = keys
    async with serving(auth=True, keys=[ours.public]) as phone:
        wire = await PacketClient.to(phone.port, greet=False)
        token = await challenged(wire)
        wire.send(AUTH, AUTH_SIGNATURE, 0, ours.sign(token))
        assert (await wire.next()).command == CNXN
        assert await wire.ask("shell:echo in") == b"in\n"


async def test_an_unknown_key_is_challenged_again_and_never_accepted(
    keys: tuple[Key, Key],
) -> None:
    ours, theirs = keys
    async with serving(auth=True, keys=[ours.public, "garbage", ""]) as phone:
        wire = await PacketClient.to(phone.port, greet=False)
        first = await challenged(wire)
        wire.send(AUTH, AUTH_SIGNATURE, 0, theirs.sign(first))
        second = await wire.next()
        assert second.command == AUTH
        assert second.payload != first
        wire.send(AUTH, AUTH_SIGNATURE, 0, ours.sign(first))  # an old token is invalid
        assert (await wire.next()).command == AUTH
        wire.send(AUTH, AUTH_PUBLIC_KEY, 0, theirs.public.encode() + b"\0")
        wire.send(adb_packets.OPEN, 5, 0, b"shell:echo in\0")
        wire.send(AUTH, AUTH_SIGNATURE, 0, b"short")
        assert (await wire.next()).command == AUTH, "nothing was said in between"
        assert not phone.phone.command_history


async def test_an_allowed_key_stays_trusted(
    keys: tuple[Key, Key],
) -> None:
    _, theirs = keys
    async with serving(auth=True) as phone:
        wire = await PacketClient.to(phone.port, greet=False)
        await challenged(wire)
        wire.send(AUTH, AUTH_PUBLIC_KEY, 0, theirs.public.encode() + b"\0")
        assert (await wire.next()).command == CNXN
        assert theirs.public.encode() in phone.phone.files.read(KEYS_FILE)
        again = await PacketClient.to(phone.port, greet=False)
        again.send(AUTH, AUTH_SIGNATURE, 0, theirs.sign(await challenged(again)))
        assert (await again.next()).command == CNXN


@pytest.mark.parametrize("key", ["", "AAAA", "é", "A" * 100_000, base64.b64encode(bytes(524))])
def test_an_invalid_key_is_never_accepted(key: str | bytes) -> None:
    assert not TrustedKeys(FileSystem()).accept_new(key if isinstance(key, str) else key.decode())
