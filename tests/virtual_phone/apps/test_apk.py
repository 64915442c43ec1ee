import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.virtual_phone.apks import apk, binary_manifest, plain_manifest
from tests.virtual_phone.shell_runner import probe_phone, run
from virtual_phone import snapshot
from virtual_phone.apps.apk import ApkManifest, read_manifest


@pytest.mark.parametrize("utf8", [False, True])
def test_the_manifest_of_a_real_apk_is_read(utf8: bool) -> None:
    manifest = read_manifest(apk(binary_manifest("com.example.app", utf8=utf8)))
    assert manifest == ApkManifest(
        package="com.example.app", version_name="2.5", version_code=7, activity=".Start"
    )


def test_a_plain_xml_manifest_is_read() -> None:
    manifest = read_manifest(apk(plain_manifest("com.example.app")))
    assert (manifest.package, manifest.version_name, manifest.activity) == (
        "com.example.app",
        "1.2",
        ".Main",
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "NOT_APK"),
        (b"PK\3\4 and so on", "NOT_APK"),
        (apk(b""), "UNEXPECTED_EXCEPTION"),
        (apk(b"<manifest"), "UNEXPECTED_EXCEPTION"),
        (apk(plain_manifest("nodots")), "BAD_PACKAGE_NAME"),
        (apk(plain_manifest("a.b/../c")), "BAD_PACKAGE_NAME"),
        (apk(binary_manifest("com.example.app")[:60]), "UNEXPECTED_EXCEPTION"),
    ],
)
def test_an_invalid_apk_is_rejected_with_androids_error(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=f"INSTALL_PARSE_FAILED_{reason}"):
        read_manifest(content)


@given(st.integers(0, 400), st.binary(min_size=1, max_size=8))
@settings(deadline=None)
def test_a_damaged_manifest_is_either_read_or_rejected(at: int, junk: bytes) -> None:
    manifest = bytearray(binary_manifest("com.example.app"))
    manifest[at : at + len(junk)] = junk
    with contextlib.suppress(ValueError):
        read_manifest(apk(bytes(manifest)))


def test_an_app_can_be_installed_started_replaced_and_uninstalled() -> None:
    phone = probe_phone()
    package = "com.example.app"
    for version in (7, 8):
        content = apk(binary_manifest(package, version=version))
        done = run(f"pm install -r -t -S {len(content)}", phone, content)
        assert done.out == "Success\n"
        assert f"versionCode={version}" in run(f"dumpsys package {package}", phone).out
    assert f"package:{package}\n" in run("pm list packages -3", phone).out
    assert run(f"pm path {package}", phone).out == f"package:/data/app/{package}/base.apk\n"
    run(f"am start -n {package}/.Start", phone)
    assert phone.shown.focus == f"{package}/{package}.Start"
    output = run(f"cmd package resolve-activity --brief {package}", phone).out
    assert output.endswith(f"\n{package}/.Start\n")
    assert run(f"pm uninstall {package}", phone).out == "Success\n"
    assert phone.shown.front is None
    assert run(f"pm list packages {package}", phone).out == ""
    assert "DELETE_FAILED_INTERNAL_ERROR" in run(f"pm uninstall {package}", phone).out


def test_the_path_of_a_package_is_a_file_that_installs_again() -> None:
    phone, other = probe_phone(), probe_phone()
    content = apk(binary_manifest("com.example.app"))
    run(f"pm install -S {len(content)}", phone, content)
    for package in ("com.example.app", "org.agentrl.probe", "com.android.settings"):
        pulled = run(f"cat $(pm path {package} | cut -d: -f2)", phone).out_bytes
        assert read_manifest(pulled).package == package
    installed = run("cat $(pm path com.example.app | cut -d: -f2)", phone).out_bytes
    assert installed == content
    snapshot.restore(other, snapshot.take(phone))
    assert run("cat /data/app/com.example.app/base.apk", other).out_bytes == content
    run("pm uninstall com.example.app", phone)
    assert run("ls /data/app/com.example.app/base.apk", phone).code == 1


def test_an_app_of_several_apks_is_installed_in_a_session() -> None:
    phone, content = probe_phone(), apk(binary_manifest("com.example.app"))
    for end in ("abandon", "commit"):
        created = run(f"pm install-create -r -S {len(content) + 3}", phone)
        assert created.out == "Success: created install session [1]\n"
        for name, data in (("split_a.apk", b"abc"), ("base.apk", content)):
            wrote = run(f"cmd package install-write -S {len(data)} 1 {name} -", phone, data)
            assert wrote.out == f"Success: streamed {len(data)} bytes\n"
        assert run("pm install-write -S 9 1 short.apk -", phone, b"abc").code == 1
        assert run(f"pm install-{end} 1", phone).out == "Success\n"
        assert ("com.example.app" in run("pm list packages", phone).out) == (end == "commit")
    for stale in (
        "pm install-commit 1",
        "pm install-write -S 0 ../../sdcard x",
        "pm install-write",
    ):
        assert run(stale, phone).code == 255


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("pm install /sdcard/none.apk", "INSTALL_FAILED_INVALID_URI"),
        ("pm install -S 100", "INSTALL_FAILED_INVALID_APK: got 3 of 100 bytes"),
        ("pm install -S 99999999999", "INSTALL_FAILED_INSUFFICIENT_STORAGE"),
        ("pm install -S -5", "INSTALL_FAILED_INSUFFICIENT_STORAGE"),
        ("pm install", "INSTALL_FAILED_INSUFFICIENT_STORAGE"),
    ],
)
def test_a_failed_installation_reports_the_reason(script: str, reason: str) -> None:
    phone = probe_phone()
    free = phone.files.num_free
    done = run(script, phone, b"abc")
    assert done.code == 1
    assert f"Failure [{reason}" in done.out
    assert phone.files.num_free == free


def test_a_disabled_app_does_not_start() -> None:
    phone = probe_phone()
    package = "org.agentrl.probe"
    run(f"pm disable-user {package}", phone)
    assert run(f"am start -n {package}/.Main", phone).code == 1
    assert package in run("pm list packages -d", phone).out
    run(f"pm enable {package}", phone)
    assert run(f"am start -n {package}/.Main", phone).code == 0
