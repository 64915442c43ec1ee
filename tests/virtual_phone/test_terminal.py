"""`adb shell` in a real terminal: the adb program behind a pseudo-terminal of this machine."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest

from agentrl.devices.adb import AdbServer, find_adb
from virtual_phone import spawn

pytestmark = pytest.mark.adb
PROBE = "virtual_phone.apps.probe_app:ProbeApp"
PATIENCE_S = 20


class Typist:
    """Types into a program and reads its screen."""

    def __init__(self, command: list[str], rows: int = 24, columns: int = 80) -> None:
        self.screen = ""
        self._seen = 0
        master, slave = pty.openpty()
        self._master = master
        self.resize(rows, columns)
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, close_fds=True
        )
        os.close(slave)

    def resize(self, rows: int, columns: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: str) -> str:
        """Read until a string is shown; return everything shown since the last call."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.screen[self._seen :]:
            assert time.monotonic() < end, self.screen
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    shown = os.read(self._master, 4096)
                except OSError:  # the program has ended
                    shown = b""
                assert shown, self.screen
                self.screen += shown.decode("utf-8", "replace")
        at = self.screen.index(text, self._seen) + len(text)
        new, self._seen = self.screen[self._seen : at], at
        return new

    def close(self) -> int:
        """Wait until the program ends; return its exit code."""
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            os.close(self._master)


@pytest.fixture(scope="module")
def serial(adb_server: AdbServer) -> Iterator[str]:
    with spawn(1, [PROBE], tempo="quick") as phones:
        adb_server.connect(phones.serials[0])
        yield phones.serials[0]
        adb_server.disconnect(phones.serials[0])


def typist(serial: str, *arguments: str, **size: int) -> Typist:
    return Typist([find_adb(), "-s", serial, "shell", *arguments], **size)


def test_a_terminal_shows_what_is_typed_and_the_prompt_of_android(serial: str) -> None:
    screen = typist(serial)
    prompt = screen.wait_for(":/ $ ")
    screen.type("echo one\r")
    assert screen.wait_for(":/ $ ").replace(prompt, "") == "echo one\r\none\r\n"
    screen.type("cd /sdcard\r")
    screen.wait_for(":/sdcard $ ")
    screen.type("false\r")
    assert screen.wait_for(":/sdcard $ ").split("\r\n")[1].startswith("1|")
    screen.type("exit 7\r")
    assert screen.close() == 7


def test_a_line_can_be_edited(serial: str) -> None:
    screen = typist(serial)
    screen.wait_for(" $ ")
    screen.type("echo wrong\x7f\x7f\x7f\x7f\x7fright\r")
    assert screen.wait_for("right\r\nright\r\n")
    screen.type("nonsense\x15echo kä\x7filled a c\r")
    screen.wait_for("\r\nkilled a c\r\n")
    screen.type("for i in 1 2; do\r")
    screen.wait_for("> ")
    screen.type("echo n$i; done\r")
    screen.wait_for("n1\r\nn2\r\n")
    screen.type("\x04")
    assert screen.close() == 0


def test_arrow_keys_move_the_cursor_and_take_earlier_lines(serial: str) -> None:
    screen = typist(serial)
    screen.wait_for(" $ ")
    up, down, right, left = (f"\x1b[{letter}" for letter in "ABCD")
    screen.type(f"echo ät{left}{left}kl{right}X{right}!\r")
    screen.wait_for("\r\nkläXt!\r\n")
    screen.type("echo two\r")
    screen.wait_for("\r\ntwo\r\n")
    screen.type(f"{up}{up}{down}{up}\r")
    screen.wait_for("\r\nkläXt!\r\n")
    screen.type(f"{up}{up}{down}{down} echo new{left}\x7f\x7fO\r")
    screen.wait_for("\r\nOw\r\n")
    screen.type("echo go; cat\r")
    screen.wait_for("\r\ngo\r\n")
    screen.type(f"{up}\r")
    screen.wait_for("^[[A\r\n\x1b[A\r\n")
    screen.type("\x04\x04")
    assert screen.close() == 0


def test_ctrl_c_ends_the_command_and_not_the_shell(serial: str) -> None:
    screen = typist(serial)
    screen.wait_for(" $ ")
    for endless in ("sleep 100", "while true; do :; done", "yes > /dev/null", "cat"):
        screen.type(f"{endless}\r")
        screen.wait_for(f"{endless}\r\n")
        time.sleep(0.1)
        screen.type("\x03")
        screen.wait_for("130|")
        screen.wait_for(" $ ")
    screen.type("half a line\x03")
    screen.wait_for(" $ ")
    screen.type("echo alive; exit\r")
    screen.wait_for("\r\nalive\r\n")
    screen.close()


def test_programs_know_the_size_of_the_window(serial: str) -> None:
    screen = typist(serial, rows=31, columns=97)
    screen.wait_for(" $ ")
    screen.type("stty size; echo $COLUMNS $LINES; [ -t 0 ] && echo terminal\r")
    screen.wait_for("31 97\r\n97 31\r\nterminal\r\n")
    screen.resize(40, 120)
    screen.type("while [ $COLUMNS = 97 ]; do sleep 0.01; done; stty size\r")
    screen.wait_for("stty size\r\n")
    os.killpg(screen.process.pid, signal.SIGWINCH)
    screen.wait_for("40 120\r\n")
    screen.type("exit\r")
    assert screen.close() == 0


def test_without_a_terminal_there_is_no_prompt(serial: str) -> None:
    command = [find_adb(), "-s", serial, "shell"]

    def run(*options: str, input: str) -> tuple[str, str, int]:
        done = subprocess.run(
            [*command, *options], input=input.encode(), capture_output=True, timeout=20, check=False
        )
        return done.stdout.decode(), done.stderr.decode(), done.returncode

    script = "echo a; [ -t 0 ] || echo none\nread x\nline\necho $x >&2; exit 7\necho no\n"
    assert run(input=script) == ("a\nnone\n", "line\n", 7)
    assert run("cat <<E\n$((6*7))\nE", input="") == ("42\n", "", 0)
    out, _, code = run("-t", "-t", input="echo $((6*7))\nexit 5\n")
    assert out.startswith("virtual:/ $ echo $((6*7))\r\n")
    assert "\r\n42\r\n" in out
    assert code == 5
    assert run("-t", "-t", "[ -t 0 ]; echo $?", input="")[0] == "0\r\n"
    assert run("-T", "[ -t 0 ]; echo $?", input="")[0] == "1\n"
