"""`agentrl init` and `agentrl schema`: write a configuration, or its JSON schema for editors."""

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from agentrl.cli.terminal_output import suggest
from agentrl.errors import ConfigError
from agentrl.files import write_durably

_DATA_FILES = (".jsonl", ".json", ".csv", ".parquet")
_PLAYERS = ("mediocre", "expert", "random")
"""Players that a warm start can imitate, most useful first."""
_SECTION = re.compile(r"^(\w+):.*(?:\n(?: .*)?)*", re.MULTILINE)
"""A top-level section of a YAML file: the line with its key, and the indented lines below."""


def init(
    file: Annotated[Path, typer.Argument(help="YAML file to write.")] = Path("config.yaml"),
    env: Annotated[
        str | None, typer.Option(help="Environment to train on; see `agentrl envs list --all`.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Data set of questions to train on instead: a file or Hugging Face id."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model to train: `tiny`, a folder, or a Hugging Face id.")
    ] = None,
    on: Annotated[str | None, typer.Option(help="Hardware to train on: `cpu` or `gpu`.")] = None,
) -> None:
    """Write a commented configuration to start from, and ask for options that are not given.

    Example: agentrl init my_job/config.yaml --env NumberGame-v0 --model tiny --on cpu
    """
    if file.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"{file}: must end in .yaml")
    if file.exists():
        raise ConfigError(f"{file} already exists; choose a different file")
    if env is not None and data is not None:
        raise ConfigError("give either --env or --data, not both")
    if not ((env or data) and model and on) and not sys.stdin.isatty():
        raise ConfigError(
            "the input is not a terminal, so all options are required: --env or --data, --model "
            "and --on"
        )
    if env is None and data is None:
        given = typer.prompt(
            "Train on which environment, or data set of questions (file or Hugging Face id)?",
            default="NumberGame-v0",
        )
        is_data = Path(given).suffix in _DATA_FILES or Path(given).is_dir()
        env, data = (None, given) if is_data else (given, None)
    model = model or typer.prompt(
        "Which model (tiny, a folder, or a Hugging Face id)?", default="tiny"
    )
    on = (on or typer.prompt("On which hardware (cpu or gpu)?", default="cpu")).lower()
    if on not in ("cpu", "gpu"):
        raise ConfigError(f"--on {on}: must be cpu or gpu")
    text = _job(file, env, data, model, gpus=on == "gpu")
    file.parent.mkdir(parents=True, exist_ok=True)
    write_durably(file, text)
    typer.echo(f"wrote {file}")
    # Only the columns of local data are checked: reading a data set of the Hub would download it.
    if data is not None and Path(data).exists():
        from agentrl import config as configuration
        from agentrl.rollout.environments.resolved_env import resolve_env

        try:
            resolve_env(configuration.load(file).env).check_arguments()
        except ConfigError as error:
            typer.echo(f"correct this before you train: {error}")
    suggest(("train", file, "--dry-run"), ("train", file))


def _job(file: Path, env: str | None, data: str | None, model: str, *, gpus: bool) -> str:
    """Return the text of a configuration.

    Raises:
        ConfigError: the environment or the data file does not exist.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from agentrl.config.loading import packaged_job
    from agentrl.env_registry import find_env

    if data is not None and Path(data).suffix in _DATA_FILES and not Path(data).is_file():
        raise ConfigError(f"--data {data}: no such file")
    game = find_env(env or "QA-v0")
    players = [name for name in _PLAYERS if name in game.players] if model == "tiny" else []
    # The tiny model learns only with settings that were tuned for its environment.
    packaged = packaged_job(env, model) if env is not None and model == "tiny" else None
    templates = Environment(
        loader=PackageLoader("agentrl.cli", "scaffold/templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        # Safe: the output is YAML, and values are written as JSON.
        autoescape=False,
    )
    return templates.get_template("job.yaml.jinja").render(
        file=file, env=env, data=data, model=model, tiny=model == "tiny", gpus=gpus,
        phones=game.app is not None, player=next(iter(players), None),
        packaged=None if packaged is None else _settings_of(packaged),
    )  # fmt: skip


def _settings_of(file: Path) -> dict[str, Any]:
    """Read what a new job copies from a packaged one: sections as text, and some values."""
    from agentrl.config.loading import read_yaml

    tree = read_yaml(file)
    return {
        "name": file.stem,
        "sections": {m[1]: m[0].rstrip() for m in _SECTION.finditer(file.read_text())},
        "rollout": tree["rollout"],
        "eval_kwargs": tree["eval"].get("kwargs"),
    }


def schema(
    out: Annotated[
        Path | None, typer.Option(help="Write the schema to this file instead of printing it.")
    ] = None,
) -> None:
    """Print the JSON schema of configurations, for completion and validation in editors.

    Example: agentrl schema --out agentrl.schema.json
    """
    from agentrl.config.json_schema import json_schema

    text = json.dumps(json_schema(), indent=1) + "\n"
    if out is None:
        typer.echo(text, nl=False)
        return
    write_durably(out, text)
    typer.echo(f"wrote {out}")
    typer.echo(f"Begin a configuration with: # yaml-language-server: $schema={out}")
