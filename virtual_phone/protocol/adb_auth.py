"""ADB authentication: which computers a phone accepts.

The computer signs a random token with its RSA key. If the phone does not know the key, it asks its
user whether to accept it. Public keys use Android's own format:
https://android.googlesource.com/platform/system/core/+/HEAD/libcrypto_utils/android_pubkey.cpp
"""

import base64
import secrets
import struct
from collections.abc import Sequence

from virtual_phone.protocol.adb_packets import AUTH_PUBLIC_KEY, AUTH_SIGNATURE
from virtual_phone.system.file_system import KEYS_FILE, FileSystem

_TOKEN_BYTES = 20
_KEY_BYTES = 256
_PUBLIC_KEY = struct.Struct(f"<II{_KEY_BYTES}s{_KEY_BYTES}sI")
"""Length in words, an inverse, modulus and R^2 (little-endian), exponent."""
_MAX_KEY_LENGTH = 4096
# RSASSA-PKCS1-v1_5: the token takes the place of the SHA-1 digest (RFC 8017, section 9.2).
_DIGEST_INFO = bytes.fromhex("3021300906052b0e03021a05000414")


class TrustedKeys:
    """Public keys that a phone trusts, stored in a file on the phone, as on real phones."""

    def __init__(self, files: FileSystem, known: Sequence[str] | None = None) -> None:
        """Write the trusted keys to the phone.

        Args:
            files: the phone's file system.
            known: public keys, as in `~/.android/adbkey.pub`. None starts without keys and
                accepts new ones, as if a user pressed Allow. With a list, new keys are rejected.
        """
        self._files = files
        self._accepts_new_keys = known is None
        files.make_folders(KEYS_FILE.rpartition("/")[0])
        files.write(KEYS_FILE, "".join(f"{key.strip()}\n" for key in known or ()).encode())

    def accept_new(self, key: str) -> bool:
        """Store an unknown key if the phone's user accepts it; return whether it was accepted."""
        if self._accepts_new_keys and _numbers(key) is not None:
            known = self._files.read(KEYS_FILE) + f"{key}\n".encode()
            self._files.write(KEYS_FILE, known[-16 * _MAX_KEY_LENGTH :])
            return True
        return False

    def verify_signature(self, token: bytes, signature: bytes) -> bool:
        """Return whether the token was signed with the private half of a trusted key."""
        if self._files.find(KEYS_FILE) is None:
            return False
        lines = self._files.read(KEYS_FILE).decode("utf-8", "replace").splitlines()
        digest = _DIGEST_INFO + token
        padding = b"\xff" * (_KEY_BYTES - len(digest) - 3)
        expected = int.from_bytes(b"\x00\x01" + padding + b"\x00" + digest, "big")
        return len(signature) == _KEY_BYTES and any(
            pow(int.from_bytes(signature, "big"), exponent, modulus) == expected
            for modulus, exponent in filter(None, map(_numbers, lines))
        )


class AdbAuthenticator:
    """Authenticates the client of one connection."""

    def __init__(self, keys: TrustedKeys) -> None:
        self._keys = keys
        self._token = b""

    def challenge(self) -> bytes:
        """Create a token for the client to sign."""
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        return self._token

    def reply(self, kind: int, payload: bytes) -> bytes | None:
        """Check the client's reply to the last token.

        Returns:
            None if the client is accepted; otherwise the next token, or b"" to keep it waiting.
        """
        if kind == AUTH_SIGNATURE:
            known = self._keys.verify_signature(self._token, payload)
            return None if known else self.challenge()
        if kind == AUTH_PUBLIC_KEY and len(payload) <= _MAX_KEY_LENGTH:
            key = payload.split(b"\0")[0].decode("ascii", "replace")
            return None if self._keys.accept_new(key.strip()) else b""
        return b""


def _numbers(key: str) -> tuple[int, int] | None:
    """Parse modulus and exponent of a public key such as `QAAAA... user@host`; None if invalid."""
    try:
        raw = base64.b64decode(key.split()[0] if key.split() else "", validate=True)
        words, _, modulus, _, exponent = _PUBLIC_KEY.unpack(raw)
    except (ValueError, struct.error):
        return None
    number = int.from_bytes(modulus, "little")
    # ADB generates only such keys; a larger exponent could stall the phone, even moduli are invalid
    usable = words * 4 == _KEY_BYTES and exponent in (3, 65537) and number % 2
    return (number, exponent) if usable else None
