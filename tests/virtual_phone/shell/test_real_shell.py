"""The shell of a virtual phone against the real mksh and toybox."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.virtual_phone.real_shell import both, folder_of_programs, needs_mksh
from tests.virtual_phone.shell.link_scripts import LINKS
from tests.virtual_phone.shell.real_shell_scripts import DOCUMENTS, LANGUAGE, PROGRAMS

pytestmark = needs_mksh


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of_programs(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("scratch")
    counter = itertools.count()
    return (folder / str(number) for number in counter)  # a new folder for each script


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("script", [*LANGUAGE, *DOCUMENTS])
def test_the_language_is_that_of_mksh(script: str, programs: Path, scratch: Iterator[Path]) -> None:
    ours, real = both(script, programs, next(scratch))
    assert ours == real


@pytest.mark.slow
@pytest.mark.parametrize("script", PROGRAMS)
def test_programs_answer_as_those_of_toybox(
    script: str, programs: Path, scratch: Iterator[Path]
) -> None:
    ours, real = both(script, programs, next(scratch))
    assert ours == real


@pytest.mark.quick(every=3)
@pytest.mark.parametrize("script", LINKS)
def test_links_are_those_of_toybox(script: str, programs: Path, scratch: Iterator[Path]) -> None:
    ours, real = both(script, programs, next(scratch))
    assert ours == real


numbers = st.one_of(st.integers(0, 99), st.integers(0, 1 << 31), st.sampled_from(["x", "y", "z"]))
expressions = st.recursive(
    numbers.map(str),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["-", "!", "~", "+"]), inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(
            inner,
            st.sampled_from(
                [
                    "+",
                    "-",
                    "*",
                    "/",
                    "%",
                    "&",
                    "|",
                    "^",
                    "==",
                    "!=",
                    "<",
                    "<=",
                    ">",
                    ">=",
                    "&&",
                    "||",
                    "<<",
                    ">>",
                ]
            ),
            inner,
        ).map(" ".join),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} ? {t[1]} : {t[2]})"),
        inner.map(lambda text: f"({text})"),
        st.tuples(st.sampled_from(["x=", "y+=", "x-=", "y*="]), inner).map(
            lambda t: f"({t[0]}{t[1]})"
        ),
        st.sampled_from(["x++", "--y", "++x", "y--"]),
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.lists(expressions, min_size=20, max_size=20))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_arithmetic_is_that_of_mksh(
    programs: Path, scratch: Iterator[Path], tried: list[str]
) -> None:
    # An error ends a shell, so each expression runs in a separate shell.
    script = "\n".join(f"(x=7 y=3 z=-5; echo $(({text})) $x $y) 2>/dev/null" for text in tried)
    ours, real = both(script, programs, next(scratch))
    for text, our, their in zip(tried, ours[0].split("\n"), real[0].split("\n"), strict=False):
        assert our == their, text
    assert ours == real


values = st.text("ab/. *-", max_size=8)
patterns = st.text("ab/.*?", min_size=1, max_size=4)
operators = st.sampled_from(["#", "##", "%", "%%", ":-", "-", ":+", "+", "/", "//"])


@pytest.mark.slow
@given(st.lists(st.tuples(values, operators, patterns, st.booleans()), min_size=20, max_size=20))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_expansions_are_those_of_mksh(
    programs: Path, scratch: Iterator[Path], tried: list[tuple[str, str, str, bool]]
) -> None:
    lines = ["set -f; f() { echo $#; printf '<%s>' \"$@\"; echo; }"]
    for value, operator, pattern, quoted in tried:
        pattern = pattern.replace("/", "") or "a" if operator in ("/", "//") else pattern
        # Unquoted, mksh drops a space that a trimmed value starts with.
        quote = '"' if quoted or operator[0] in "#%/" else ""
        lines.append(
            f"v='{value}'; f {quote}x${{v{operator}{pattern}}}y{quote} $v {quote}$v{quote}"
        )
    ours, real = both("\n".join(lines), programs, next(scratch))
    for line, our, their in zip(
        lines[1:], ours[0].split("\n")[1::2], real[0].split("\n")[1::2], strict=False
    ):
        assert our == their, line
    assert ours == real


@pytest.mark.slow
@given(
    st.lists(st.text("ab:, \t", max_size=8), min_size=20, max_size=20),
    st.sampled_from([":", ", ", ": \t", ","]),
)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_fields_are_split_as_by_mksh(
    programs: Path, scratch: Iterator[Path], tried: list[str], separators: str
) -> None:
    lines = ["f() { echo $#; printf '<%s>' \"$@\"; echo; }", f"IFS='{separators}'"]
    lines += [
        f"v='{value}'; f $v; echo '{value}' | {{ read a b; echo \"[$a][$b]\"; }}" for value in tried
    ]
    ours, real = both("\n".join(lines), programs, next(scratch))
    assert ours == real
