import asyncio
import contextlib
import random
import re
import shlex
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.virtual_phone.shell_runner import probe_phone, run, run_later
from virtual_phone.shell.shell_parser import parse
from virtual_phone.shell.syntax_tree import ShellSyntaxError
from virtual_phone.virtual_phone import VirtualPhone


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("echo a  b", "a b\n"),
        ("echo 'a  b' \"c  d\"", "a  b c  d\n"),
        ("true && echo yes || echo no", "yes\n"),
        ("false && echo yes || echo no", "no\n"),
        ("false; echo $?", "1\n"),
        ("! false; echo $?; ! true; echo $?", "0\n1\n"),
        ("nope 2>/dev/null; echo $?", "127\n"),
        ("echo 'x y' | cat | wc -c", "4\n"),
        ("A=5; echo \"$A\" '$A' ${A}", "5 $A 5\n"),
        ("A='1  2'; echo $A; echo \"$A\"; echo x$A", "1 2\n1  2\nx1 2\n"),
        ("echo $(echo one; echo two) `echo three`", "one two three\n"),
        ('echo "$(echo "it\'s")" $(echo ")")', "it's )\n"),
        ("echo `echo \\`echo deep\\``", "deep\n"),
        ("echo 1 > /sdcard/a; echo 2 >> /sdcard/a; cat /sdcard/a", "1\n2\n"),
        ("ls /nowhere 2>&1 | grep -c 'No such'", "1\n"),
        ("ls /nowhere &> /sdcard/e; wc -l < /sdcard/e", "1\n"),
        ("export LOG=\"''\"; exec echo done", "done\n"),
        ("echo a#b # comment", "a#b\n"),
        ("echo -n hi", "hi"),
        ("cat < /dev/null; echo over", "over\n"),
        ("mkdir -p /sdcard/x/y && touch /sdcard/x/y/z && ls /sdcard/x/y", "z\n"),
        ("cd /sdcard; echo 1 > a; mkdir b; cd b; pwd; cat ../a", "/sdcard/b\n1\n"),
        (
            "cd /sdcard; touch a.txt b.txt c; echo *.txt '*.txt' \\*.txt x*",
            "a.txt b.txt *.txt *.txt x*\n",
        ),
        ("cd /sdcard; touch q1 q2; ls /sd*/q[2-9]; rm q?; ls q? 2>&1 | wc -l", "/sdcard/q2\n1\n"),
        ("settings put system a 1; settings get system a; settings get system b", "1\nnull\n"),
        ("exit 3; echo no", ""),
        ("(A=2; cd /sdcard; exit 4); echo $?$A; pwd", "4\n/\n"),
        ("{ echo a; echo b; } | wc -l; { exit 5; }; echo no", "2\n"),
        ("sh -c 'echo $((1' 2>/dev/null; sh -c 'echo in; exit 3'; echo $?", "in\n3\n"),
        ("[ -d /sdcard ] && [ ! -e /x ] && test 3 -gt 2 && echo yes", "yes\n"),
        ("sleep 0 & echo $?; wait", "0\n"),
        ("echo ' 17  x y ' > /sdcard/l; read t rest < /sdcard/l; echo $?-$t-$rest-", "0-17-x y-\n"),
        ('read t </nowhere; [ "$t" = 17 ] || exit 113; echo no', ""),
        ('echo 17 > /sdcard/l; read t </sdcard/l; [ "$t" = 17 ] || exit 113; echo yes', "yes\n"),
        ('t=5; read t 2>/dev/null </nowhere; echo "$?$t"', "15\n"),
        ("cat 2>/sdcard/e </nowhere; wc -l </sdcard/e", "1\n"),
        ("printf nonewline | read x; echo $?; read < /dev/null; echo $?$REPLY", "1\n1\n"),
        ("{ echo ab; echo b | grep b || true; } | grep -m 1 a | wc -l", "1\n"),
        ("{ sleep 0; echo a; } | grep a; { echo a | cat; } | grep a", "a\na\n"),
        ("echo x | grep y | wc -l; false | true; echo $?; true | grep x; echo $?", "0\n0\n1\n"),
        ("A=1; { A=2; echo 3 | grep 3; }; echo $A; echo 4 | { A=5; }; echo $A", "3\n2\n2\n"),
        ("yes | head -n 2; yes no | grep -m 1 no", "y\ny\nno\n"),
        ("echo ${IFS}x | wc -c", "2\n"),
        ("printf '%s-%s\\n' a b c", "a-b\nc-\n"),
        ("which ls nope; echo $?; command -v cat", "/system/bin/ls\n1\n/system/bin/cat\n"),
        (
            "echo b,a,c | cut -d , -f 2-; echo 'Physical density: 320' | cut -d ' ' -f 3",
            "a,c\n320\n",
        ),
        ("printf '3\\n1\\n2\\n1\\n' | sort -nu | tail -n 2", "2\n3\n"),
        (
            "echo hello | md5sum; echo hello > /sdcard/t; md5sum /sdcard/t | cut -c1-5",
            "b1946ac92492d2347c6235b4d2611184  -\nb1946\n",
        ),
    ],
)
def test_scripts_do_what_a_real_shell_does(script: str, output: str) -> None:
    assert run(script).out == output


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        ("grep -E 'a|c'", "a\nabc\n"),
        ("grep 'a|c'", ""),
        ("grep 'a\\|c'", "a\nabc\n"),
        ("grep -v b", "a\nx.y\n"),
        ("grep -F x.y", "x.y\n"),
        ("grep -o 'b[a-z]*'", "bc\n"),
        ("grep -n '^a$'", "1:a\n"),
        ("grep -i ABC", "abc\n"),
        ("grep -w b", ""),
        ("grep '[[:alpha:]]\\{3\\}'", "abc\n"),
        ("grep -c .", "3\n"),
        ("grep '[.]'", "x.y\n"),
        ("grep -E '(ab)+c?$'", "abc\n"),
        ("grep '*'", ""),
        ("grep -e a -m 1", "a\n"),
        ("grep --color=auto --line-buffered --color abc", "abc\n"),
    ],
)
def test_grep_prints_matching_lines(script: str, lines: str) -> None:
    assert run(f"printf 'a\\nabc\\nx.y\\n' | {script}").out == lines


@pytest.mark.parametrize("pattern", ["(a*)*b", "(a|b)*c", "((a+)?)+", "[", "(", "a{9999}", "\\("])
def test_an_invalid_or_exponential_pattern_is_rejected(pattern: str) -> None:
    start = time.process_time()
    done = run(f"echo {'a' * 40} | grep -E {shlex.quote(pattern)}")
    assert time.process_time() - start < 5
    assert done.code in (1, 2)


@given(st.text(alphabet="ab()|*+?{}[]^$.\\1,:-&~", max_size=12))
@example("[]||")  # not a set, because it is not closed
@settings(deadline=None)
def test_grep_handles_any_pattern(pattern: str) -> None:
    for option in ("", "-E", "-F"):
        assert run(f"echo abab | grep {option} -e {shlex.quote(pattern)}").code in (0, 1, 2)


@pytest.mark.parametrize("name", ["scrcpy", "ulimit"])
def test_an_unknown_command_is_reported_as_on_a_real_phone(name: str) -> None:
    done = run(f"{name} -x")
    assert (done.out, done.err) == ("", f"sh: {name}: inaccessible or not found\n")
    assert done.code == 127


@pytest.mark.parametrize(
    ("option", "report"),
    [
        ("", r" {4}0m00\.\d\ds real     0m00\.00s user     0m00\.00s system\n"),
        ("-p", r"real 0\.\d\d\nuser 0\.00\nsys 0\.00\n"),
    ],
)
def test_time_reports_how_long_a_command_took(option: str, report: str) -> None:
    assert re.fullmatch(report, run(f"time {option} sleep 0.01").err)


@pytest.mark.parametrize(
    "script",
    [
        "echo 'open", 'echo "open', "| cat", "a && ", "; x", "echo >", "echo $(", "echo `x", "a)",
        "(a", "{ a", "a | | b", "a(b)", "()", "if true; then a;", "for x in a; do b", "fi", "done",
        "while true do a; done", "echo $((1+1", "echo ${x:-y", "cat << E", "f() a", "!",
        "case a in", "echo $'open", "[[ a", "a[1]=2", "select x in a; do b; done", "(" * 100,
        "$((" * 100, "$(" * 100, "echo a; echo $(echo 'x)",
    ],
)  # fmt: skip
def test_a_script_with_a_syntax_error_runs_nothing(script: str) -> None:
    phone = probe_phone()
    done = run(script, phone)
    assert done.code == 1
    assert done.err.startswith("sh: ")
    assert not list(phone.command_history)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("echo $LINENO", "sh: $LINENO is not supported"),
        ("echo {a,b}", "sh: {...,...}: brace expansion is not supported"),
        ("echo {a,$PWD}", "sh: {...,...}: brace expansion is not supported"),
        ("set -Q", "set: -Q: unknown option"),
        ("trap 'echo no' INT", "trap: INT: a virtual phone supports only EXIT"),
        ("read -t 1 x", "read: Unknown option 't' (see \"read --help\")"),
        ("typeset -i x=1", "typeset: Unknown option 'i' (see \"typeset --help\")"),
        ("ls -Q /", "ls: Unknown option 'Q' (see \"ls --help\")"),
        ("head -n x", "head: not integer: x"),
        ("case a in a) ;& esac", "sh: syntax error: unexpected ';&'"),
        ("cat <> x", "sh: syntax error: unexpected '>'"),
        ("find / -foo", "find: bad arg '-foo'"),
    ],
)
def test_what_is_not_supported_is_an_error(script: str, error: str) -> None:
    done = run(script)
    assert (done.out, done.err, done.code) == ("", f"{error}\n", 1)


text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(text)
@example("$(reboot)")
@example("'; reboot; '")
@example("\\")
@settings(deadline=None)
def test_one_quoted_argument_stays_one_argument(text: str) -> None:
    phone = VirtualPhone(size=(72, 128))
    run(shlex.join(["echo", text]), phone)
    assert list(phone.command_history) == [("echo", text)]


@given(st.lists(text, max_size=5))
@settings(deadline=None)
def test_quoted_words_are_split_correctly(words: list[str]) -> None:
    (pipeline,) = parse(shlex.join(["echo", *words]))
    (command,) = pipeline.commands
    assert ["".join(part.text for part in word) for word in command.words] == ["echo", *words]


@given(st.one_of(st.text(), st.text(alphabet="ab $`'\"\\();&|<>\n#2{}?=*!", max_size=60)))
@settings(deadline=None, max_examples=500)
def test_any_text_is_either_parsed_or_rejected(script: str) -> None:
    with contextlib.suppress(ShellSyntaxError):
        parse(script)


@pytest.mark.parametrize(
    "piece",
    [
        "a", " ", "'x'", '"x"', '"x', "\\x", "$(a", "$(a)", "`a`", "a;", "a|", "(", "{ ", "#",
        "$x", "> a ", "&& a", '"$(', "$'\\x", "\\\n", "a=b ",
    ],
)  # fmt: skip
def test_parsing_takes_linear_time(piece: str) -> None:
    def seconds(count: int) -> float:
        least = float("inf")
        for _ in range(3):
            start = time.process_time()
            with contextlib.suppress(ShellSyntaxError):
                parse(piece * count)
            least = min(least, time.process_time() - start)
        return least

    # Linear time is 20 times as long, quadratic 400 times; the constant allows for coarse clocks.
    assert seconds(10_000) < 100 * seconds(500) + 0.05


def test_a_long_word_is_expanded_in_linear_time() -> None:
    start = time.process_time()
    assert len(run('echo "' + "$x-" * 100_000 + '"').out) == 100_001
    assert time.process_time() - start < 20


async def test_a_long_script_yields_to_other_tasks() -> None:
    phone = probe_phone()
    running = asyncio.create_task(run_later("true;" * 2000, phone))
    turns = 0
    while not running.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 30


async def test_a_pipeline_streams_while_it_runs() -> None:
    phone = probe_phone()
    phone.log.add("before", "x")
    running = asyncio.create_task(run_later("logcat -v raw | grep -m 2 hit", phone))
    for number in range(200):
        await asyncio.sleep(0.005)
        phone.log.add("tag", "miss" if number % 2 else "hit")
        if running.done():
            break
    assert (await running).out == "hit\nhit\n"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("-v brief", "I/mine    ( 1000): said"),
        ("-v time", "11-14 "),
        ("--format=tag", "I/mine    : said"),
        ("-vraw", "said"),
        ("-v raw mine:W '*:S'", ""),
        ("-v raw mine:I '*:S'", "said"),
        ("-s mine -v raw", "said"),
        ("-v raw -e 'sa.d'", "said"),
        ("-v raw -t 1", "last"),
        ("-v raw --pid=7", ""),
    ],
)
def test_logcat_applies_its_filters_and_formats(options: str, line: str) -> None:
    output = run(f"logcat -c; log -t mine said; log -p e -t other last; logcat -d {options}").out
    first, _, rest = output.partition("\n")
    assert first == ("--------- beginning of main" if line else "")
    assert line in rest


def test_logcat_rejects_unknown_options() -> None:
    assert run("logcat -v nope -d").code == 1
    assert run("logcat --wrong").code == 1
    assert run("export ANDROID_LOG_TAGS=\"''\"; exec logcat '-d'").code == 0


@pytest.mark.parametrize(
    ("script", "output"),
    [
        (
            "content query --uri content://settings/system --where \"name='a'\"",
            "No result found.\n",
        ),
        (
            "content insert --uri content://settings/system --bind name:s:a --bind value:s:x:y; "
            "content query --uri content://settings/system --where \"name='a'\"",
            "Row: 0 _id=1, name=a, value=x:y\n",
        ),
        ("content query --uri content://sms/", "No result found.\n"),
        ("setprop ro.serialno x; getprop ro.serialno | wc -l", "1\n"),
        ("getprop no.such; getprop no.such fallback", "\nfallback\n"),
        ("svc wifi disable; settings get global wifi_on", "0\n"),
        (
            "settings delete system a; settings put system a 1; settings delete system a",
            "Deleted 0 rows\nDeleted 1 rows\n",
        ),
        ("ls -ld /sdcard | cut -c1", "d\n"),
        (
            "cd /sdcard; echo 12345 > a; cp a b; mv b Download; cat Download/b; ls b 2>&1 | wc -l",
            "12345\n1\n",
        ),
        ("rm /nowhere; rm -f /nowhere; echo $?", "0\n"),
        ("rm -rf /; ls /sdcard | head -1", "DCIM\n"),
    ],
)
def test_commands_answer_as_on_a_real_phone(script: str, output: str) -> None:
    assert run(script).out == output


@pytest.mark.parametrize("script", ["sort", "cut -d 7 -f 1,2", "wc", "grep -c 77", "md5sum"])
async def test_heavy_work_on_one_phone_lets_the_others_take_turns(script: str) -> None:
    phone, line = probe_phone(), random.Random(0).randbytes
    phone.files.write("/sdcard/big", b"\n".join(line(8).hex().encode() for _ in range(150_000)))
    heavy = asyncio.create_task(run_later(f"{script} /sdcard/big", phone))
    num_turns = 0
    while not heavy.done():
        await asyncio.sleep(0)
        num_turns += 1
    assert (await heavy).code == 0
    assert num_turns > 6


async def test_lines_are_sorted_as_by_another_sort() -> None:
    phone, choice = probe_phone(), random.Random(0).choice
    words = ["".join(choice("abc") for _ in range(4)) for _ in range(30_000)]
    phone.files.write("/sdcard/words", "\n".join(words).encode())
    assert (await run_later("sort /sdcard/words", phone)).out.splitlines() == sorted(words)
    unique = sorted(set(words), reverse=True)
    assert (await run_later("sort -ru /sdcard/words", phone)).out.splitlines() == unique
    assert (await run_later("sort -n /sdcard/words /sdcard/words | wc -l", phone)).out == "60000\n"
    phone.files.write("/sdcard/huge", bytes(65 << 20))
    assert "Cannot allocate memory" in (await run_later("sort /sdcard/huge", phone)).err
