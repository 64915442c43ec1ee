"""Endless scripts can be stopped, and neither exhaust the memory nor block other phones."""

import asyncio
import time

import pytest

from tests.virtual_phone.shell_runner import probe_phone, run, run_later

ENDLESS = [
    "while true; do :; done",
    "until false; do x=$((x+1)); done",
    "f() { while :; do echo x; done; }; f | while :; do read y; done",
    "while true; do echo a line; done | sleep 100",
    "yes | sort | head -1 & wait",
    "while :; do (:); done",
    "while :; do sh -c :; done",
    "while :; do awk 'BEGIN { while (1) x++ }'; done 2>/dev/null",
    "sleep 100 & sleep 100",
    "while :; do nope; done 2>/dev/null",
    "x=$(yes); while :; do :; done",
]


@pytest.mark.parametrize("script", ENDLESS)
async def test_an_endless_script_leaves_turns_and_ends_when_its_client_leaves(script: str) -> None:
    phone = probe_phone()
    endless = asyncio.create_task(run_later(script, phone))
    longest_s, end = 0.0, time.monotonic() + 0.15
    while time.monotonic() < end:
        start = time.monotonic()
        await asyncio.sleep(0)
        longest_s = max(longest_s, time.monotonic() - start)
    assert longest_s < 0.25
    assert not endless.done()
    endless.cancel()
    await asyncio.wait([endless], timeout=10)
    assert endless.cancelled()
    assert not phone.processes.running


@pytest.mark.parametrize(
    "script",
    [
        "x=aaaaaaaaaaaaaaaa; while x=$x$x; do :; done",
        "set -- aaaaaaaaaaaaaaaa; while set -- $1$1; do :; done",
        pytest.param("echo $(yes)", marks=pytest.mark.slow),
        pytest.param("x=$(while :; do echo aaa; done); echo ${#x}", marks=pytest.mark.slow),
        "x=a; while x=${x//a/aaaaaaaa}; do :; done",
        "printf '%1000000d' 1",
    ],
)
def test_memory_has_a_ceiling(script: str) -> None:
    done = run(script)
    assert len(done.out) <= 1 << 21
    assert any(why in done.err for why in ("Cannot allocate memory", "exceeds limit"))


def test_recursion_ends_with_a_message() -> None:
    for script in ("f() { f; }; f; echo no", "eval 'f() { eval f; }; f'; echo no"):
        done = run(script)
        assert done.code == 1
        assert "nested too deeply" in done.err
        assert done.out == ""


def test_programs_in_other_shells_are_listed_and_killed() -> None:
    async def scene() -> None:
        phone = probe_phone()
        sleeper = asyncio.create_task(run_later("sleep 100; echo $?", phone))
        looper = asyncio.create_task(run_later("while :; do sleep 50; done", phone))
        await asyncio.sleep(0.01)
        listed = await run_later("ps -A -o PID,ARGS | grep 'slee[p]'", phone)
        assert "sleep 100" in listed.out
        assert "sleep 50" in listed.out
        assert (await run_later("pkill -f 'sleep 100'", phone)).code == 0
        assert (await asyncio.wait_for(sleeper, 10)).out == "143\n"
        found = await run_later("pgrep -l sh | head -1; kill -9 $(pgrep sh | head -1)", phone)
        assert found.out.endswith(" sh\n")
        assert (await asyncio.wait_for(looper, 10)).code == 137

    asyncio.run(scene())


def test_top_lists_apps_and_programs() -> None:
    phone = probe_phone()
    out = run("am start -n org.agentrl.probe/.Main; sleep 9 & top -b -n 1; kill $!", phone).out
    assert "org.agentrl.probe" in out
    assert "sleep 9" in out


async def test_programs_keep_their_own_output_however_many_have_run() -> None:
    phone = probe_phone()
    for number in range(1, 1101):  # Bashkit's interpreters refuse the 1,001st program
        assert (await run_later(f"seq {number} {number}", phone)).out == f"{number}\n"
