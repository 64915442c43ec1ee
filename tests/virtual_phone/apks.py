"""Builds tiny APKs in the format of Android's build tools."""

import io
import struct
import zipfile

NS = "http://schemas.android.com/apk/res/android"


def pool(strings: list[str], *, utf8: bool) -> bytes:
    """Return a string pool chunk."""
    offsets, data = [], b""
    for text in strings:
        offsets.append(len(data))
        if utf8:
            raw = text.encode()
            data += bytes([len(text), len(raw)]) + raw + b"\0"
        else:
            raw = text.encode("utf-16-le")
            data += struct.pack("<H", len(text)) + raw + b"\0\0"
    data += bytes(-len(data) % 4)
    start = 28 + 4 * len(strings)
    head = (0x0001, 28, start + len(data), len(strings), 0, 256 if utf8 else 0, start, 0)
    return struct.pack("<HHIIIIII", *head) + struct.pack(f"<{len(strings)}I", *offsets) + data


def element(strings: list[str], name: str, attributes: dict[str, str | int]) -> bytes:
    """Return a start-element chunk."""
    body = struct.pack("<II", 0xFFFFFFFF, strings.index(name))
    body += struct.pack("<HHHHHH", 20, 20, len(attributes), 0, 0, 0)
    for key, value in attributes.items():
        if isinstance(value, str):
            index = strings.index(value)
            body += struct.pack("<IIIHBBI", 0, strings.index(key), index, 8, 0, 0x03, index)
        else:
            body += struct.pack("<IIIHBBI", 0, strings.index(key), 0xFFFFFFFF, 8, 0, 0x10, value)
    return struct.pack("<HHIII", 0x0102, 16, 16 + len(body), 1, 0xFFFFFFFF) + body


def binary_manifest(package: str, *, utf8: bool = False, version: int = 7) -> bytes:
    """Return a manifest as `aapt` writes it."""
    strings = [
        NS, "manifest", "package", package, "versionCode", "versionName", "2.5", "application",
        "activity", "name", ".Start",
    ]  # fmt: skip
    attributes = {"versionCode": version, "versionName": "2.5", "package": package}
    chunks = [
        pool(strings, utf8=utf8),
        element(strings, "manifest", attributes),
        element(strings, "application", {}),
        element(strings, "activity", {"name": ".Start"}),
    ]
    body = b"".join(chunks)
    return struct.pack("<HHI", 0x0003, 8, 8 + len(body)) + body


def plain_manifest(package: str) -> bytes:
    """Return a manifest as plain XML."""
    return (
        f'<manifest xmlns:android="{NS}" package="{package}" android:versionName="1.2">'
        '<application><activity android:name=".Main"/></application></manifest>'
    ).encode()


def apk(manifest: bytes, extra: int = 0) -> bytes:
    """Return an APK; `extra` is the size of an additional file in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("AndroidManifest.xml", manifest)
        archive.writestr("classes.dex", bytes(extra))
    return file.getvalue()
