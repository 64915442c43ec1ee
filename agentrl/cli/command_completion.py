"""Shell completion of the commands' arguments."""

import glob
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import typer

_PACKAGED = Path(__file__).parents[1] / "configs"
_COMPLETE_FOLDERS = ("config.yaml", "config.json")
"""Files that mark a run or model folder, where path completion stops."""
_ZSH = Path(".zfunc/_agentrl")
"""File with the zsh completion, relative to the home folder."""
_ZSH_FIRST_TIME = '\n[[ $funcstack[1] == _agentrl ]] && _agentrl_completion "$@"\n'
_MOST = 200
"""Maximum number of paths offered to the shell."""
_PLAIN = re.compile(r"[\w@%+=:,./-]+")
"""Names that need no quotes in any shell. Typer's scripts insert names as they are, so a file named
`$(rm -rf ~)` would run as a command. Shells complete other file names themselves, with quotes."""


def complete_config(incomplete: str) -> list[str]:
    """Return packaged configurations, YAML files and runs that start with the text."""
    files = (*_PACKAGED.glob("*.yaml"), *_PACKAGED.glob("recipes/*.yaml"))
    names = (str(file.relative_to(_PACKAGED).with_suffix("")) for file in files)
    found = _beginning(incomplete, names) + _paths(incomplete, ".yaml")
    return _with_content(found + _runs(incomplete), complete_config)


def complete_environment(incomplete: str) -> list[str]:
    """Return what `complete_config` returns, and environments that start with the text."""
    import gymnasium

    from agentrl.env_registry import registered_envs

    # Gymnasium's hundreds of environments would bury ours, so wait until something is typed.
    own = [entry.id for entry in registered_envs()]
    ids = gymnasium.registry if incomplete else own
    return _beginning(incomplete, ids)[:_MOST] + complete_config(incomplete)


def complete_run(incomplete: str) -> list[str]:
    """Return runs and folders that start with the text."""
    return _with_content(_runs(incomplete), complete_run)


def complete_kind(incomplete: str) -> list[str]:
    """Return kinds of `agentrl list` that start with the text."""
    from agentrl import extension_points
    from agentrl.extension_points import ExtensionPoint

    points = vars(extension_points).values()
    return _beginning(incomplete, (p.kind for p in points if isinstance(p, ExtensionPoint)))


def complete_algorithm(incomplete: str) -> list[str]:
    """Return algorithms that start with the text."""
    from agentrl.extension_points import ALGORITHM

    return _beginning(incomplete, ALGORITHM.names())


def complete_suite(incomplete: str) -> list[str]:
    """Return evaluation suites and YAML files that start with the text."""
    from agentrl.extension_points import SUITE

    return _beginning(incomplete, SUITE.names()) + _paths(incomplete, ".yaml")


def _runs(incomplete: str) -> list[str]:
    runs = (f"{file.parent}/" for file in Path("runs").glob("*/config.yaml"))
    return list(dict.fromkeys(_beginning(incomplete, runs) + _paths(incomplete)))


def _with_content(found: list[str], complete: Callable[[str], list[str]]) -> list[str]:
    """Add a folder's content if it is the only match, since a shell would add a space after it."""
    is_folder = len(found) == 1 and found[0].endswith("/")
    if not is_folder or any(Path(found[0], name).is_file() for name in _COMPLETE_FOLDERS):
        return found
    return [*found, *(one for one in complete(found[0]) if one != found[0])]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(n for n in names if n.startswith(incomplete) and _PLAIN.fullmatch(n))


def _paths(incomplete: str, suffix: str | None = None) -> list[str]:
    """Return files with this suffix that start with the text; folders if `suffix` is None."""
    found = glob.glob(f"{glob.escape(incomplete)}*{suffix or '/'}")
    return _beginning(incomplete, found)[:_MOST]


def complete_zsh_script() -> None:
    """Make the installed zsh completion work on a terminal's first Tab, too.

    The first Tab only loads the script, and Typer 0.29's script then defines its function without
    calling it.
    """
    script = Path.home() / _ZSH
    if script.is_file() and _ZSH_FIRST_TIME not in (text := script.read_text()):
        script.write_text(text + _ZSH_FIRST_TIME)


def complete_setting(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return sections and settings that start with the text; add its default to a single match."""
    given = ctx.params.get("overrides") or ctx.params.get("others") or ()
    found, prefix = settings(), incomplete
    # bash treats `=` as a separate word.
    if "=" in incomplete or (given and (given[-1] == "=" or given[-1] in found)):
        return []
    while True:
        keys = [key for key, value in found.items() if key.startswith(prefix)]
        steps = {key[: key.find(".", len(prefix)) + 1] or f"{key}=" for key in keys}
        if len(steps) != 1 or not (step := steps.pop()).endswith("."):
            break
        prefix = step
    # A shell adds no space after the common prefix of several choices.
    return [step, f"{step}{found[step[:-1]]}"] if len(keys) == 1 else sorted(steps)


def settings() -> dict[str, Any]:
    """Return the default of each setting by its dotted key."""
    from agentrl.config import (
        Config,
        DPOConfig,
        RewardAuditConfig,
        RewardModelConfig,
        SFTConfig,
        WarmStartConfig,
        flat_settings,
    )

    # Fill sections that are absent by default with their own defaults.
    whole = Config(
        warm_start=WarmStartConfig(),
        sft=SFTConfig(),
        dpo=DPOConfig(),
        reward_model=RewardModelConfig(),
        reward_audit=RewardAuditConfig(),
    )
    return flat_settings(whole.to_dict())
