"""Read another trainer's settings from its YAML file or the shell script that starts it."""

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from agentrl.cli.porting.launch_script import launch_command
from agentrl.config.loading import read_yaml
from agentrl.config.other_trainers import OtherTrainer
from agentrl.errors import ConfigError

_KEY_VALUE = re.compile(r"[+~]*(-?-?[A-Za-z][\w.-]*)=(.*)", re.DOTALL)
_ENVIRONMENT = re.compile(r"[A-Z_]+=.*")
_FLOAT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


def read_settings(file: Path, trainers: Sequence[OtherTrainer]) -> tuple[dict[str, Any], list[str]]:
    """Return a file's settings under their dotted keys, and the words of its command.

    Args:
        file: YAML file or shell script. If a script sets `config` to a file, that is read, too.
        trainers: trainers that the settings may belong to.

    Raises:
        ConfigError: the file cannot be read, or does not start any of `trainers`.
    """
    if file.suffix in (".yaml", ".yml"):
        tree = read_yaml(file)
        if not isinstance(tree, dict):
            raise ConfigError(f"{file}: must be a YAML mapping, not a {type(tree).__name__}")
        return dict(_flat(tree, trainers)), []
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    launch = re.compile("|".join(trainer.launch for trainer in trainers))
    words = launch_command(text, launch)
    if not words:
        raise ConfigError(
            f"{file}: contains no command that starts {trainers[0].name}; give a script that does, "
            "or a YAML file"
        )
    given = dict(_from_words(words, launch))
    if not given:
        raise ConfigError(
            f"{file}: no settings can be read from the command that starts {words[0]}"
        )
    base = given.pop("config", None)
    return (given if base is None else _settings_of(base, file, trainers) | given), words


def _settings_of(name: str, script: Path, trainers: Sequence[OtherTrainer]) -> dict[str, Any]:
    """Read the settings file that a script names relative to one of its parent folders."""
    for folder in script.absolute().parents:
        if (folder / name).is_file():
            return read_settings(folder / name, trainers)[0]
    raise ConfigError(f"{script}: config={name} is not in the script's folder or any parent folder")


def _flat(
    tree: Mapping[str, Any], trainers: Sequence[OtherTrainer], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value and not any(key in one.keys for one in trainers):
            yield from _flat(value, trainers, f"{key}.")
        else:
            yield key, _value(value) if isinstance(value, str) else value


def _from_words(words: list[str], launch: re.Pattern[str]) -> Iterator[tuple[str, Any]]:
    """Parse `key=value`, `--key value`, `--key` and `--key value value` into keys and values.

    Arguments that are known only when the script runs, such as `$@`, become keys without a value.
    The word that starts the trainer ends the options of `torchrun` or `accelerate launch`.
    """
    key: str | None = None
    values: list[str] = []
    for word in [*words, "--"]:
        if _ENVIRONMENT.fullmatch(word):
            continue
        pair = _KEY_VALUE.fullmatch(word)
        starts_trainer = launch.search(word) is not None
        if word.startswith("$") and (values or key is None):
            yield word, None
            continue
        if not (word.startswith("--") or pair or starts_trainer):
            values.append(word)
            continue
        if key is not None:
            yield key, _value(values[0]) if len(values) == 1 else [*map(_value, values)] or True
        key, values = None, []
        if pair is not None:
            name = pair[1] if pair[1].startswith("--config-") else pair[1].lstrip("-")
            yield name, _value(pair[2])
        elif not starts_trainer:
            key = word[2:] or None


def _value(text: str) -> Any:
    """Parse a value as YAML, including numbers such as 1e-6."""
    if _FLOAT.fullmatch(text):
        return float(text)
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    # YAML would take ` #` for a comment, but a shell would not.
    is_cut = " #" in text and isinstance(value, str)
    return text if is_cut or isinstance(value, datetime.date) else value
