"""The phones of a running job."""

import json
import time

import pytest

from agentrl.errors import ConfigError
from agentrl.replay import Run
from agentrl.replay.live_phone_states import LivePhone, LivePhones, read_live_phones
from agentrl.viewer.phone_wall import PhoneWall
from tests.viewer.conftest import wait_for


@pytest.mark.adb
def test_phones_are_shown_with_their_episodes(live, pool, tmp_path):
    run, (busy, free) = tmp_path / "run", pool.serials
    live.playing(busy, "train-00001-g000-m00")
    live.frame(busy, "0" * 32)
    live.turn(busy, 4, 0.25)
    wait_for(lambda: any(phone["turn"] == 4 for phone in read_live_phones(run)))
    found = {phone["serial"]: phone for phone in read_live_phones(run)}
    assert found.keys() == {busy, free}
    assert found[busy]["episode"] == "train-00001-g000-m00"
    assert (found[busy]["act_s"], found[busy]["state"], found[free]["episode"]) == (
        0.25,
        "free",
        None,
    )
    live.close()
    assert read_live_phones(run) == []


def test_reports_of_two_processes_about_one_phone_are_merged(tmp_path):
    keeper = LivePhones(
        tmp_path, "keeper", lambda: [LivePhone(serial="a", state="leased", leases=3)]
    )
    player = LivePhones(tmp_path, "rollout1")
    player.playing("a", "e")
    (phone,) = wait_for(
        lambda: [p for p in read_live_phones(tmp_path) if p["episode"] and p["state"]]
    )
    assert (phone["state"], phone["leases"], phone["episode"]) == ("leased", 3, "e")
    keeper.close()
    player.close()


def test_phones_of_two_hosts_may_have_the_same_serial(tmp_path):
    serial, reports = "emulator-5554", []
    for number, host in enumerate(["10.0.0.1", "shelf-2"]):
        state = "free" if number else "leased"
        keeper = LivePhones(
            tmp_path,
            f"phones{number}",
            lambda state=state: [LivePhone(serial=serial, state=state)],
            host,
        )
        player = LivePhones(tmp_path, f"rollout{number}", host=host)
        player.playing(serial, f"episode-{number}")
        reports += [keeper, player]
    wall = PhoneWall(Run(tmp_path))
    found = wait_for(
        lambda: [p for p in wall.phones() if p["state"] and p["episode"]][1:] and wall.phones()
    )
    assert [(p["name"], p["host"], p["state"], p["episode"]) for p in found] == [
        ("emulator-5554@10.0.0.1", "10.0.0.1", "leased", "episode-0"),
        ("emulator-5554@shelf-2", "shelf-2", "free", "episode-1"),
    ]
    # adb may know another phone with this serial here.
    with pytest.raises(ConfigError, match="belongs to shelf-2 and cannot be reached"):
        wall.tap("emulator-5554@shelf-2", 0.5, 0.5)
    for report in reports:
        report.close()


def test_the_report_of_a_killed_process_expires(tmp_path):
    (tmp_path / "live").mkdir()
    report = {"time": time.time() - 60, "phones": [{"serial": "a"}]}
    (tmp_path / "live" / "gone.json").write_text(json.dumps(report))
    (tmp_path / "live" / "torn.json").write_text('{"time": 1, "pho')
    (tmp_path / "live" / "other.json").write_text(
        '{"time": 9e12, "phones": [{"serial": 1, "x": 2}]}'
    )
    report["time"] = time.time() + 3600
    (tmp_path / "live" / "never_out_of_date.json").write_text(json.dumps(report))
    assert read_live_phones(tmp_path) == []


@pytest.mark.parametrize(
    "report",
    [
        "[" * 100_000, f'{{"time": 1{"0" * 400}, "phones": []}}',
        '{"time": NOW, "phones": [{"serial": 5}]}', '{"time": NOW, "phones": [{"serial": null}]}',
        '{"time": NOW, "phones": [{"serial": "a", "frame": 5}]}',
        '{"time": NOW, "phones": [{"serial": "a", "host": 5}]}',
    ],
    ids=["deep", "huge", "number", "null", "frame", "host"],
)  # fmt: skip
def test_invalid_phone_reports_are_ignored(tmp_path, report):
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "other.json").write_text(report.replace("NOW", str(time.time())))
    assert PhoneWall(Run(tmp_path)).phones() == []


def test_a_serial_with_a_lone_surrogate_has_a_name(tmp_path):
    (tmp_path / "live").mkdir()
    report = {"time": time.time(), "phones": [{"serial": "a\ud800"}]}
    (tmp_path / "live" / "other.json").write_text(json.dumps(report))
    assert PhoneWall(Run(tmp_path)).phones()[0]["name"].startswith("usb-")


@pytest.mark.adb
async def test_a_leased_phone_is_not_touched(live, pool, tmp_path):
    wall = PhoneWall(Run(tmp_path / "run"))
    async with pool.lease(10) as lease:
        live.playing(lease.serial, "e")
        wait_for(lambda: [p for p in read_live_phones(tmp_path / "run") if p["state"] == "leased"])
        with pytest.raises(ConfigError, match="is not free, but leased"):
            wall.tap(lease.serial, 0.5, 0.5)
    with pytest.raises(ConfigError, match=r"must be in \[0, 1\]"):
        wall.tap(lease.serial, 2, 0.5)
    with pytest.raises(ConfigError, match="no running job reports a phone 'unknown'"):
        wall.screen("unknown")
    wall.close()
