import struct
import threading
import time
from collections.abc import Callable

import pytest

from agentrl.devices import CommandResult
from agentrl.devices.adb.adb_shells import packets
from agentrl.devices.adb.deadline import Deadline
from agentrl.devices.adb.shell_script import Gate, ShellScript, quote_command, text_results
from agentrl.devices.adb_phone import AdbPhone
from agentrl.errors import DeviceError, DeviceTimeout

Opened = Callable[..., AdbPhone]


class PiecewiseLink:
    """Gives some bytes in pieces of one length, then its end."""

    def __init__(self, data: bytes, length: int) -> None:
        self._pieces = [data[i : i + length] for i in range(0, len(data), length)]

    def receive(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


@pytest.mark.parametrize("length", [1, 3, 5, 6, 64])
def test_packets_are_parsed_however_the_bytes_are_split(length: int) -> None:
    sent = b"\1\2\0\0\0ab" + b"\2\0\0\0\0" + b"\3\1\0\0\0\7"
    whole = [(1, b"ab"), (2, b""), (3, b"\7")]
    assert list(packets(PiecewiseLink(sent, length))) == whole  # type: ignore[arg-type]
    assert list(packets(PiecewiseLink(sent[:-1], length))) == whole[:2]  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [3, 4096, 5000, 100_000])
def test_a_large_packet_comes_in_pieces_that_make_up_its_data(length: int) -> None:
    large = bytes(range(256)) * 40
    sent = b"\2\1\0\0\0a\1" + struct.pack("<I", len(large)) + large + b"\1\1\0\0\0b\3\1\0\0\0\7"
    found = list(packets(PiecewiseLink(sent, length)))  # type: ignore[arg-type]
    assert found[0] == (2, b"a")
    assert found[-1] == (3, b"\7")
    assert b"".join(data for id, data in found if id == 1) == large + b"b"


def written(script: ShellScript, *outputs: str) -> str:
    """What a shell writes that runs a script: each command's output and its exit code."""
    mark = script.text.split()[1].removesuffix("0;")
    return "".join(output.replace("=m=", mark) for output in outputs)


@pytest.mark.parametrize("length", [1, 7, 1000])
def test_only_commands_with_an_exit_code_have_a_result(length: int) -> None:
    script = ShellScript([("a",), ("b",)])
    whole = written(script, "$ prompt =m=0\n", "a\n=m=0\n", "=m=127\r\n", "$ more").encode()
    ended = [script.add(whole[at : at + length]) for at in range(0, len(whole), length)]
    assert ended[-1]
    assert text_results(script.outputs()) == [
        CommandResult(output="a\n", code=0),
        CommandResult(output="", code=127),
    ]


def test_without_a_prompt_all_output_belongs_to_the_commands() -> None:
    script = ShellScript([("a",)], prompted=False)
    mark = script.text.partition("echo ")[2].partition("$?")[0]
    assert script.add(f"$ a\n{mark}3\n".encode())
    assert text_results(script.outputs()) == [CommandResult(output="$ a\n", code=3)]


@pytest.mark.parametrize("output", ["", "=m=0\na\n=m=0\n=m=12", "=m=0\na\n=m=0\nb", "=m=0\n==m==0"])
def test_a_shell_that_ended_early_names_the_command_it_ended_in(output: str) -> None:
    script = ShellScript([("a",), ("b",)])
    assert not script.add(written(script, output).encode())
    done = int("a" in output)
    assert script.why_incomplete().startswith(f"the shell ended after {done} of 2 commands")
    assert script.under_way == "ab"[done]


@pytest.mark.parametrize("text", ["a\0b", "half \ud83d a letter", "\udc80"])
def test_arguments_that_no_shell_accepts_are_refused(text: str) -> None:
    with pytest.raises(DeviceError, match="cannot be sent to a shell"):
        quote_command(("echo", text))


@pytest.fixture
def shell_phone(virtual_serial: str, opened: Opened) -> AdbPhone:
    return opened(virtual_serial, command_s=20.0)


def run(phone: AdbPhone, *commands: tuple[str, ...], seconds: float = 20) -> list[str]:
    return [r.output for r in phone.persistent_shell.run(commands, Deadline(seconds))]


def test_long_output_is_searched_only_once() -> None:
    script = ShellScript([("a",)], prompted=False)
    mark = script.text.partition("echo ")[2].partition("$?")[0]
    start = time.monotonic()
    for _ in range(2000):
        script.add(b"y\n" * 25_000)
    assert script.add(f"{mark}3\n".encode())
    assert time.monotonic() - start < 10
    assert script.outputs()[0][1] == 3


@pytest.mark.adb
def test_one_shell_serves_many_calls(shell_phone: AdbPhone) -> None:
    run(shell_phone, ("export", "KEPT=yes"))
    first = shell_phone.persistent_shell._link
    for turn in range(20):
        assert run(shell_phone, ("echo", f"{turn}"), ("echo", "it's $HOME; x")) == [
            f"{turn}\n",
            "it's $HOME; x\n",
        ]
    assert shell_phone.persistent_shell._link is first
    assert shell_phone.shell("echo", "-n", "apart") == "apart"


@pytest.mark.adb
def test_a_failed_gate_ends_its_script_but_not_the_shell(shell_phone: AdbPhone) -> None:
    run(shell_phone, ("true",))
    link = shell_phone.persistent_shell._link
    passed = [("echo", "1"), Gate("true"), ("echo", "it's 2"), Gate("true")]
    for shell in (shell_phone.persistent_shell, shell_phone.one_shot_shell):
        results = shell.run(passed, Deadline(20))
        assert [(r.output, r.code) for r in results] == [
            ("1\n", 0), ("", 0), ("it's 2\n", 0), ("", 0),
        ]  # fmt: skip
        results = shell.run(
            [("echo", "1"), Gate("ls /no | cat && false"), ("mkdir", "/x")], Deadline(20)
        )
        assert [r.code for r in results] == [0, 1]
        assert "No such file" in results[1].output
        assert run(shell_phone, ("ls", "-d", "/x"))[0].startswith("ls: /x: No such")
        (result,) = shell.run([Gate("false"), ("mkdir", "/x")], Deadline(20))
        assert result == CommandResult(output="", code=1)
    assert shell_phone.persistent_shell._link is link


@pytest.mark.adb
def test_a_command_does_not_read_the_shells_stdin(shell_phone: AdbPhone) -> None:
    assert run(shell_phone, ("cat",), ("echo", "next")) == ["", "next\n"]


@pytest.mark.adb
def test_a_hung_command_costs_its_own_deadline_and_the_shell(shell_phone: AdbPhone) -> None:
    run(shell_phone, ("true",))
    start = time.monotonic()
    with pytest.raises(DeviceTimeout, match=r"sleep 30: no answer within 0\.3 s"):
        run(shell_phone, ("sleep", "30"), seconds=0.3)
    assert time.monotonic() - start < 3
    assert run(shell_phone, ("echo", "on")) == ["on\n"]


@pytest.mark.adb
def test_a_shell_that_has_ended_is_restarted(shell_phone: AdbPhone) -> None:
    for _ in range(3):
        run(shell_phone, ("true",))
        link = shell_phone.persistent_shell._link
        assert link is not None
        link.send(struct.pack("<BI", 0, 5) + b"exit\n")
        assert run(shell_phone, ("echo", "on")) == ["on\n"]
        assert shell_phone.persistent_shell._link is not link
    link = shell_phone.persistent_shell._link
    assert link is not None
    link.close()
    assert run(shell_phone, ("echo", "on")) == ["on\n"]


@pytest.mark.adb
def test_a_concurrent_call_gets_its_own_shell(shell_phone: AdbPhone) -> None:
    slow = threading.Thread(target=lambda: run(shell_phone, ("sleep", "0.5")))
    slow.start()
    while not shell_phone.persistent_shell._lock.locked():
        time.sleep(0.001)
    assert run(shell_phone, ("echo", "beside")) == ["beside\n"]
    assert slow.is_alive()
    slow.join()


@pytest.mark.adb
def test_an_answer_in_pieces_is_not_delayed(shell_phone: AdbPhone) -> None:
    start = time.monotonic()
    for _ in range(100):
        assert run(shell_phone, ("sh", "-c", "echo a | cat"), ("echo", "b")) == ["a\n", "b\n"]
    assert time.monotonic() - start < 3  # 40 ms each, where the server is not answered at once


@pytest.mark.adb
def test_multiline_arguments_arrive_unchanged(shell_phone: AdbPhone) -> None:
    assert run(shell_phone, ("echo", "a\nb; 'c'\r\nd")) == ["a\nb; 'c'\r\nd\n"]
    assert run(shell_phone) == []


@pytest.mark.adb
def test_closing_ends_a_running_call(shell_phone: AdbPhone) -> None:
    messages: list[str] = []

    def hang() -> None:
        with pytest.raises(DeviceError) as raised:
            run(shell_phone, ("sleep", "30"))
        messages.append(str(raised.value))

    hanging = threading.Thread(target=hang)
    hanging.start()
    while shell_phone.persistent_shell._link is None:
        time.sleep(0.001)
    shell_phone.persistent_shell.close()
    hanging.join(10)
    assert messages
