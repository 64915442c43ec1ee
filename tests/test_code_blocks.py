"""Every code block of README.md, CONTRIBUTING.md and docs/ is run or checked, or says why not.

Python runs, block by block in one process per page. Commands of agentrl are parsed by its command
line, with their settings; `agentrl schema` and the like also run. YAML is read as such files are.
A comment above a block, `<!-- not run: REASON -->`, excuses Python, commands of other programs, and
the environments of YAML.
What directives of Sphinx hold, `make docs` checks.
"""

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import jinja2
import numpy as np
import pytest
import typer
import yaml
from PIL import Image

from agentrl import config as configuration
from agentrl.cli import app
from agentrl.cli import run as agentrl
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.training.evaluation.suite_files import read_suite
from agentrl.training.pipeline import StagedRun
from agentrl.training.sweep import plan_sweep
from tests.viewer import runs
from virtual_phone.faults import fault_plan

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+) -->\n\n?)?"
    r"^(?P<indent> *)```(?P<language>[\w{}]*)\n(?P<code>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
_NAME = re.compile(r"(?:#|\{#) (\w+\.\w+)")
_SEPARATORS = {"&&", "||", ";", ";;", "|"}
_SHELL = {"cd", "export", "if", "else", "fi", "case", "esac", "then", "exit", "source"}
_CONFIGURED = (
    "train", "sft", "dpo", "train-reward-model", "plan", "eval", "play", "infer", "chat", "rescore",
)  # fmt: skip
"""Commands whose KEY=VALUE are settings of a configuration."""
_QUICK = re.compile(r"schema|algorithms|list [a-z]+")
"""Commands that also run here."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    where: str
    language: str
    code: str
    reason: str | None
    """Why it is not run."""

    @property
    def name(self) -> str | None:
        """The file name in the first line; None for a fragment."""
        found = _NAME.match(self.code)
        return found and found[1]


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            where=f"{page.name}:{text.count(chr(10), 0, found.start('indent')) + 1}",
            language=found["language"],
            code=re.sub(rf"^{found['indent']}", "", found["code"], flags=re.MULTILINE),
            reason=found["reason"],
        )
        for found in _FENCE.finditer(text)
    ]


PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
    if page.parent.name != "generated" and blocks(page)
]


def commands(code: str) -> list[list[str]]:
    """The words of each command of a script, without assignments and redirections."""
    found: list[list[str]] = []
    for line in code.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in _SEPARATORS:
                found.append(words)
                words = []
            elif words or not re.fullmatch(r"[A-Za-z_]+=.*", word):
                words.append(word)
    return [words[: words.index(">")] if ">" in words else words for words in found if words]


def parse(words: list[str]) -> None:
    """Parse a command of agentrl as its command line does, without running it."""
    command, name = typer.main.get_command(app), "agentrl"
    context, path = None, []
    while True:
        context = command.make_context(name, list(words), parent=context)
        left = [*getattr(context, "_protected_args", ()), *context.args]
        if not left:
            break
        name, command, words = command.resolve_command(context, left)
        path.append(name)
        if not hasattr(command, "commands"):
            context = command.make_context(name, list(words), parent=context)
            break
    check_settings(" ".join(path), context.params)


def check_settings(command: str, params: dict[str, object]) -> None:
    if command == "sweep":
        plan_sweep(base_of(params["config"]), params["settings"])
    if command not in _CONFIGURED:
        return
    given = [
        v for value in params.values() for v in (value if isinstance(value, list) else [value])
    ]
    settings = [v for v in given if isinstance(v, str) and re.match(r"[a-z_.]+=", v)]
    configuration.load(base_of(params.get("config") or params.get("target")), settings)


def base_of(target: object) -> str:
    """A packaged configuration or a file of the page; in place of anything else, a packaged one."""
    name = str(target)
    is_known = configuration.is_packaged(name) or (name.endswith(".yaml") and Path(name).is_file())
    return name if is_known else "number_game"


def check_bash(block: Block, page: str) -> None:
    foreign = []
    for words in commands(block.code):
        program = words[0]
        if program in _SHELL:
            continue
        if "agentrl" in words[:8] and program != "docker":
            given = words[words.index("agentrl") + 1 :]
            parse(given)
            if _QUICK.fullmatch(" ".join(given)):
                assert agentrl(given) == 0
        elif program == "make":
            for target in words[1:]:
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M), target
            continue
        elif program == "python" and words[1] == "-m":
            assert importlib.util.find_spec(words[2]), words[2]
        elif program == "python":
            assert Path(words[1]).is_file() or f"> {words[1]}" in page, words[1]
        if program != "agentrl" and "/" in program:
            assert Path(program).is_file(), program
        elif program not in ("agentrl", "python"):
            foreign.append(program)
    assert bool(foreign) == bool(block.reason), f"{foreign}: not run, for the reason {block.reason}"


def check_yaml(block: Block) -> None:
    """Read it as what it is: a pipeline, a suite, a plan of faults, or a configuration."""
    tree = yaml.safe_load(block.code)
    file = Path(block.name or "fragment.yaml")
    file.write_text(block.code)
    if tree is None:
        assert block.code.startswith("# yaml-language-server: $schema=")
    elif "stages" in tree:
        assert StagedRun(tree, [], file.absolute()).stages
    elif "tasks" in tree:
        assert read_suite(file)
    elif "phones" in tree:
        assert fault_plan.load(file).phones
    else:
        env = configuration.load(file).env
        if "data" not in env.kwargs and not block.reason:
            open_translator(resolve_env(env))


def problem_of(block: Block, page: str) -> str | None:
    """What is wrong with a block that is not run by `run_python`."""
    try:
        if block.language == "bash":
            check_bash(block, page)
        elif block.language == "yaml":
            check_yaml(block)
        elif block.language == "json":
            assert all(json.loads(line) for line in block.code.splitlines())
        elif block.language == "jinja":
            jinja2.Environment().parse(block.code)
        elif block.language == "text":
            assert not re.search(r"^(\$ |agentrl )", block.code, re.MULTILINE), "holds commands"
        else:
            is_known = block.language == "python" or block.language.startswith("{")
            assert is_known, "name the language, or text"
    except (Exception, SystemExit) as error:
        return f"{block.where}: {type(error).__name__}: {error}"
    return None


def run_python(found: list[Block], folder: Path) -> None:
    """Run the blocks in order; a file is imported, other blocks share their names."""
    script = "\n".join(f"import {b.name[:-3]}" if b.name else b.code for b in found)
    (folder / "all_blocks.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "all_blocks.py"], cwd=folder, capture_output=True, text=True, timeout=170
    )
    assert done.returncode == 0, done.stderr[-3000:]


def check_image(drawn: Path, shown: Path) -> None:
    """The picture that a block draws is the one that the page shows."""
    one, other = (np.asarray(Image.open(f).convert("RGB"), dtype=int) for f in (drawn, shown))
    assert one.shape == other.shape
    assert np.abs(one - other).mean() < 1, f"copy {drawn} to {shown}"


def write_files(found: list[Block], folder: Path) -> None:
    """Write the blocks that are files."""
    for block in found:
        if block.name:
            (folder / block.name).write_text(block.code)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder beside the checkout's, with the files that the pages of extending/ share."""
    for name in ("configs", "benchmarks", "examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    for file in (ROOT / "examples" / "extend").glob("*.py"):
        shutil.copy(file, tmp_path)
    for page in (ROOT / "docs" / "extending").glob("*.md"):
        write_files(blocks(page), tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


SLOW = {
    "docs/extending/phone_game",
    "docs/extending/recorded_episodes",
    "docs/replay",
    "docs/virtual-phone",
}


def id_of(page: Path) -> str:
    return page.relative_to(ROOT).with_suffix("").as_posix()


@pytest.mark.quick(*{id_of(page) for page in PAGES} - SLOW)
@pytest.mark.adb
@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_code_blocks_of_a_page_work(page, folder, adb_server):
    found = blocks(page)
    assert page.read_text().count("```") == 2 * len(found), "a fence that is not understood"
    write_files(found, folder)
    wrong = [text for block in found if (text := problem_of(block, page.read_text())) is not None]
    assert not wrong, "\n".join(wrong)
    if run := [one for one in found if one.language == "python" and not one.reason]:
        if any("runs/NAME" in one.code for one in run):
            runs.run(folder / "runs" / "NAME")
        run_python(run, folder)
        for drawn in folder.glob("*.png"):
            if (shown := ROOT / "docs" / "images" / drawn.name).is_file():
                check_image(drawn, shown)


def test_few_blocks_are_not_run_and_each_says_why(capsys):
    found = [b for page in PAGES for b in blocks(page) if not b.language.startswith("{")]
    excused = [block for block in found if block.reason]
    with capsys.disabled():
        kinds = Counter(block.language for block in found)
        print(f"\n{len(found)} code blocks ({dict(kinds)}), not run: {len(excused)}")
        for block in excused:
            print(f"  {block.where}: {block.reason}")
    assert len(excused) <= 18
