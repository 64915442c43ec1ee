import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.virtual_phone.apks import apk, binary_manifest
from tests.virtual_phone.shell_runner import probe_phone, run
from virtual_phone import snapshot
from virtual_phone.apps.probe_app import ProbeApp
from virtual_phone.virtual_phone import VirtualPhone

PACKAGE = ProbeApp.package

inputs = st.lists(
    st.one_of(
        st.tuples(st.just("touch"), st.floats(0, 71), st.floats(0, 127)),
        st.tuples(st.just("key"), st.sampled_from(["KEYCODE_ENTER", "KEYCODE_BACK"])),
        st.tuples(st.just("text"), st.text(max_size=5)),
    ),
    max_size=12,
)


def play(phone: VirtualPhone, events: list[tuple[object, ...]]) -> None:
    for name, *values in events:
        getattr(phone.input, str(name))(*values)


def look(phone: VirtualPhone) -> tuple[bytes, object, object]:
    shown = phone.shown
    return bytes(shown.frame.raw), shown.focus, dict(shown.states)


@given(inputs, inputs, inputs)
@settings(deadline=None)
def test_a_restored_phone_behaves_like_the_saved_one(
    before: list[tuple[object, ...]],
    between: list[tuple[object, ...]],
    after: list[tuple[object, ...]],
) -> None:
    phone, other = (
        probe_phone(),
        VirtualPhone([ProbeApp()], size=(72, 128), tempo="quick", number=5),
    )
    phone.tasks.launch(PACKAGE, {"level": "3"})
    play(phone, before)
    saved, seen = json.loads(json.dumps(snapshot.take(phone))), look(phone)
    play(phone, between)
    snapshot.restore(phone, saved)
    snapshot.restore(other, saved)
    assert look(phone) == look(other) == seen
    play(phone, after)
    play(other, after)
    assert look(phone) == look(other)
    assert snapshot.take(phone) == snapshot.take(other)


def test_snapshots_keep_links() -> None:
    phone, other = probe_phone(), probe_phone()
    run("cd /data/local/tmp; echo 1 > b; ln -s b a; ln -s loop loop", phone)
    snapshot.restore(other, json.loads(json.dumps(snapshot.take(phone))))
    assert run("cd /data/local/tmp; cat a; readlink a loop", other).out == "1\nb\nloop\n"


def test_snapshots_include_files_settings_properties_and_the_app_in_front() -> None:
    phone, other = probe_phone(), VirtualPhone([ProbeApp()], size=(72, 128), serialno="OTHER")
    script = (
        "echo hello > /sdcard/a; mkdir /sdcard/b; settings put system x 5; setprop persist.y 6; "
        "dumpsys battery set level 7; wm size 100x200; am start -a android.settings.SETTINGS; "
        "input keyevent 223; setprop debug.agentrl.fault.drop 1"
    )
    assert run(script, phone).code == 0
    snapshot.restore(other, snapshot.take(phone))
    output = run(
        "cat /sdcard/a; ls /sdcard/b; settings get system x; getprop persist.y; "
        "dumpsys battery | grep level; wm size; getprop ro.serialno; "
        "getprop debug.agentrl.fault.drop; dumpsys power | grep Wakefulness=",
        other,
    ).out
    assert output == (
        "hello\n5\n6\n  level: 7\nPhysical size: 72x128\nOverride size: 100x200\nOTHER\n\n"
        "  mWakefulness=Asleep\n"
    )
    run("input keyevent 224 82", other)
    assert other.shown.focus == "com.android.settings/com.android.settings.Settings"


def test_restoring_installs_apps_from_apks_and_removes_others() -> None:
    phone, other = probe_phone(), probe_phone()
    phone.files.write("/sdcard/x.apk", apk(binary_manifest("com.example.one")))
    other.files.write("/sdcard/x.apk", apk(binary_manifest("com.example.two")))
    run("pm install /sdcard/x.apk; monkey -p com.example.one 1", phone)
    run("pm install /sdcard/x.apk", other)
    snapshot.restore(other, snapshot.take(phone))
    listed = run("pm list packages com.example", other).out
    assert listed == "package:com.example.one\n"
    assert other.shown.front == "com.example.one"


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"stack": ["no.such.app"]},
        {"running": ["no.such.app"]},
        {"apps": {"no.such.app": {"manifest": None}}},
        {"apps": {PACKAGE: {"inputs": [["__init__"]]}}},
        {"apps": {PACKAGE: {"inputs": [["touch", 1]]}}},
        {"files": [["/x", 0, 0, "no base64!"]]},
        {"power": {"broken": True}},
        {"dialog": {"kind": "other", "package": "x"}},
        {"override": [1, 1]},
        {"settings": 5},
    ],
)
def test_an_invalid_snapshot_changes_nothing(change: dict[str, object]) -> None:
    phone = probe_phone()
    phone.tasks.launch(PACKAGE, {})
    phone.input.touch(30, 20)
    before = snapshot.take(phone)
    broken = json.loads(json.dumps(before))
    for key, value in change.items():
        if key == "apps" and isinstance(value, dict) and PACKAGE in value:
            broken["apps"][PACKAGE].update(value[PACKAGE])
        else:
            broken[key] = value
    with pytest.raises(ValueError, match=r"\w"):
        snapshot.restore(phone, broken)
    assert snapshot.take(phone) == before


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"version": 1}', "\udcff", "[" * 100_000])
def test_loading_an_invalid_snapshot_is_rejected(text: str) -> None:
    phone = probe_phone()
    done = run("cmd agentrl load", phone, text.encode("utf-8", "surrogateescape"))
    assert done.code == 1
    assert "Error: invalid snapshot" in done.err
