"""Read the package, version and main activity from the manifest of an APK.

The manifest of a real APK is binary XML:
https://android.googlesource.com/platform/frameworks/base/+/HEAD/libs/androidfw/include/androidfw/ResourceTypes.h
A hand-made APK may contain plain XML.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

_MANIFEST = "AndroidManifest.xml"
_MAX_MANIFEST_BYTES = 1 << 20
_ANDROID = "{http://schemas.android.com/apk/res/android}"
_XML, _STRING_POOL, _START_ELEMENT = 0x0003, 0x0001, 0x0102
_UTF8 = 1 << 8
_CHUNK = struct.Struct("<HHI")
_NO_STRING = 0xFFFFFFFF
_TYPE_STRING = 0x03
_MAX_STRINGS = 100_000

Element = tuple[str, dict[str, str]]
"""Tag name and attributes."""


class InstallFailure(ValueError):
    """An app cannot be installed; the message is the text `pm install` prints."""


@dataclass(slots=True, kw_only=True, frozen=True)
class ApkManifest:
    """The parts of an app manifest that the phone uses."""

    package: str
    version_name: str
    version_code: int
    activity: str


def read_manifest(apk: bytes) -> ApkManifest:
    """Read the manifest of an APK.

    Raises:
        InstallFailure: the APK is not valid.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(apk)) as archive, archive.open(_MANIFEST) as file:
            manifest = file.read(_MAX_MANIFEST_BYTES)
    except KeyError as error:
        raise InstallFailure("INSTALL_PARSE_FAILED_BAD_MANIFEST: it is missing") from error
    except (zipfile.BadZipFile, OSError, zlib.error, RuntimeError, NotImplementedError) as error:
        raise InstallFailure(f"INSTALL_PARSE_FAILED_NOT_APK: {error}") from error
    try:
        is_binary = manifest[:2] == _XML.to_bytes(2, "little")
        elements = list(_binary(manifest) if is_binary else _plain(manifest))
    except (struct.error, IndexError, UnicodeDecodeError, ElementTree.ParseError) as error:
        raise InstallFailure(f"INSTALL_PARSE_FAILED_UNEXPECTED_EXCEPTION: {error}") from error
    return _manifest(elements)


def build_apk(package: str, activity: str) -> bytes:
    """Build an APK with a plain XML manifest and no code, for apps not installed from an APK."""
    manifest = (
        f'<manifest xmlns:android="{_ANDROID[1:-1]}" package="{package}" android:versionCode="1" '
        f'android:versionName="1.0"><application><activity android:name="{activity}"/>'
        "</application></manifest>"
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_MANIFEST), manifest)
    return file.getvalue()


def _manifest(elements: list[Element]) -> ApkManifest:
    attributes = next((a for name, a in elements if name == "manifest"), {})
    package = attributes.get("package", "")
    if not all(part.isidentifier() for part in package.split(".")) or "." not in package:
        raise InstallFailure(f"INSTALL_PARSE_FAILED_BAD_PACKAGE_NAME: {package[:100]!r}")
    activities = (a.get("name", "") for name, a in elements if name == "activity")
    code = attributes.get("versionCode", "")
    return ApkManifest(
        package=package[:200],
        version_name=attributes.get("versionName", "1.0")[:100],
        version_code=int(code[:9]) if code.isascii() and code.isdecimal() else 1,
        activity=next(activities, "") or ".Main",
    )


def _plain(xml: bytes) -> Iterator[Element]:
    for element in ElementTree.fromstring(xml).iter():
        named = {key.removeprefix(_ANDROID): value for key, value in element.attrib.items()}
        yield element.tag, named


def _binary(xml: bytes) -> Iterator[Element]:
    """Yield the elements of binary XML, chunk by chunk."""
    at, strings = _CHUNK.unpack_from(xml)[1], [""]
    while at + _CHUNK.size <= len(xml):
        kind, head, size = _CHUNK.unpack_from(xml, at)
        if size < _CHUNK.size:
            raise IndexError(f"chunk of {size} bytes")
        if kind == _STRING_POOL:
            strings = _strings(xml[at : at + size])
        elif kind == _START_ELEMENT:
            yield _element(xml[at + head : at + size], strings)
        at += size


def _element(body: bytes, strings: list[str]) -> Element:
    _, name, start, size, count = struct.unpack_from("<IIHHH", body)
    attributes = {}
    for number in range(count):
        _, key, raw, _, _, kind, value = struct.unpack_from("<IIIHBBI", body, start + number * size)
        if raw != _NO_STRING:
            attributes[strings[key]] = strings[raw]
        else:
            attributes[strings[key]] = strings[value] if kind == _TYPE_STRING else str(value)
    return strings[name], attributes


def _strings(chunk: bytes) -> list[str]:
    _, head, _, count, _, flags, start, _ = struct.unpack_from("<HHIIIIII", chunk)
    if count > _MAX_STRINGS:
        raise IndexError(f"{count} strings")
    offsets = struct.unpack_from(f"<{count}I", chunk, head)
    return [_string(chunk, start + offset, bool(flags & _UTF8)) for offset in offsets]


def _string(chunk: bytes, at: int, is_utf8: bool) -> str:
    if not is_utf8:
        (length,) = struct.unpack_from("<H", chunk, at)
        at += 2
        if length & 0x8000:  # lengths over 15 bits take another 16
            length = (length & 0x7FFF) << 16 | struct.unpack_from("<H", chunk, at)[0]
            at += 2
        return chunk[at : at + 2 * length].decode("utf-16-le")
    at += 2 if chunk[at] & 0x80 else 1  # skip the length in characters
    length = chunk[at]
    at += 1
    if length & 0x80:
        length = (length & 0x7F) << 8 | chunk[at]
        at += 1
    return chunk[at : at + length].decode("utf-8")
