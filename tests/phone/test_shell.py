import asyncio
import contextlib
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.phone.apps import ProbeApp
from agentrl.phone.commands import COMMANDS
from agentrl.phone.lexer import ShellSyntaxError, parse
from agentrl.phone.phone import Phone
from agentrl.phone.shell import Shell


def run(script: str, phone: Phone | None = None) -> tuple[str, str, int]:
    out, err = [], []
    phone = phone or Phone([ProbeApp()], size=(72, 128), effect_delay_ms=(0, 0))
    shell = Shell(phone=phone, commands=COMMANDS, out=out.append, err=err.append)
    code = asyncio.run(shell.run(script))
    return b"".join(out).decode(), b"".join(err).decode(), code


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("echo a  b", "a b\n"),
        ("echo 'a  b' \"c  d\"", "a  b c  d\n"),
        ("true && echo yes || echo no", "yes\n"),
        ("false && echo yes || echo no", "no\n"),
        ("false; echo $?", "1\n"),
        ("nope 2>/dev/null; echo $?", "127\n"),
        ("echo 'x y' | cat | wc -c", "4\n"),
        ("A=5; echo \"$A\" '$A' ${A}", "5 $A 5\n"),
        ("echo $(echo one; echo two) `echo three`", "one two three\n"),
        ("echo 1 > /sdcard/a; echo 2 >> /sdcard/a; cat /sdcard/a", "1\n2\n"),
        ("ls /nowhere 2>&1 | grep -c 'No such'", "1\n"),
        ("export LOG=\"''\"; exec echo done", "done\n"),
        ("echo a#b # comment", "a#b\n"),
        ("echo -n hi", "hi"),
        ("cat < /dev/null; echo over", "over\n"),
        ("mkdir -p /sdcard/x/y && touch /sdcard/x/y/z && ls /sdcard/x/y", "z\n"),
        ("settings put system a 1; settings get system a; settings get system b", "1\nnull\n"),
        ("exit 3; echo no", ""),
    ],
)
def test_scripts_do_what_a_real_shell_does(script: str, output: str) -> None:
    assert run(script)[0] == output


def test_an_unknown_command_says_so_as_on_a_phone() -> None:
    assert run("scrcpy -x") == ("", "sh: scrcpy: inaccessible or not found\n", 127)


@pytest.mark.parametrize("script", ["echo 'open", 'echo "open', "| cat", "a && ", "; x", "echo >"])
def test_what_cannot_be_read_runs_nothing(script: str) -> None:
    phone = Phone(size=(72, 128))
    assert run(script, phone)[2] == 1
    assert not phone.seen_commands


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_one_quoted_argument_stays_one_argument(text: str) -> None:
    phone = Phone(size=(72, 128))
    run(shlex.join(["echo", text]), phone)
    assert list(phone.seen_commands) == [("echo", text)]


@given(st.text(alphabet="ab $`'\"\\();&|<>\n#2{}?=*", max_size=30))
def test_the_lexer_ends_on_everything(script: str) -> None:
    with contextlib.suppress(ShellSyntaxError):
        parse(script)
