"""`agentrl serve-env` and `serve-reward`: serve an environment or reward function over HTTP."""

import os
import re
from pathlib import Path
from typing import Annotated

import typer

from agentrl import extras
from agentrl.cli.command_completion import complete_environment
from agentrl.errors import ConfigError


def serve_reward(
    function: Annotated[
        str,
        typer.Argument(
            help="module:function or path/file.py:function, or the folder of a run of `agentrl "
            "train-reward-model`."
        ),
    ],
    kwargs: Annotated[
        list[str] | None,
        typer.Argument(help="Keyword arguments for the function.", metavar="KEY=VALUE"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535)] = 8765,
    deadline_s: Annotated[
        float, typer.Option(help="Time limit of one call, in seconds.", min=0.001)
    ] = 60.0,
    batch: Annotated[
        bool,
        typer.Option(
            "--batch", help="Call the function with a list, whatever its parameter is named."
        ),
    ] = False,
) -> None:
    """Serve a reward function or a reward model over HTTP.

    Jobs use it with the reward agentrl.rewards.remote:Remote, OpenRLHF with --remote_rm_url
    http://HOST:PORT/get_reward.

    If AGENTRL_REWARD_TOKEN is set here, clients must set the same value.

    Example: agentrl serve-reward my_reward.py:score --port 8765
    """
    from agentrl.config import RewardConfig, arguments

    name, values = function, arguments(kwargs or [])
    # A folder must be the run of a reward model.
    if Path(function).is_dir():
        name, values = "model", {"path": function, **values}
    try:
        from agentrl.rollout.rewards.reward_server import serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"serving needs {error.name}, which is not installed; run: {extras.GET_PAGE}"
        ) from None
    serve(
        RewardConfig(function=name, kwargs=values, kind="batch" if batch else "auto"),
        host=host,
        port=port,
        deadline_s=deadline_s,
        token=os.environ.get("AGENTRL_REWARD_TOKEN") or None,
        ready=lambda url: typer.echo(f"serving {function} at {url}  (Ctrl-C stops it)"),
    )


def serve_env(
    environment: Annotated[
        str,
        typer.Argument(
            help="An environment (see env.id), or a YAML file that names one.",
            autocompletion=complete_environment,
        ),
    ] = "",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535)] = 8100,
    most: Annotated[int, typer.Option(help="Maximum number of open environments.", min=1)] = 256,
    idle: Annotated[
        float, typer.Option(help="Seconds after which an idle environment is closed.", min=1)
    ] = 900.0,
    program: Annotated[
        bool, typer.Option("--program", help="Print a standalone program of the server instead.")
    ] = False,
) -> None:
    """Serve an environment to jobs on other machines.

    The jobs set env.id=http://HOST:PORT. If AGENTRL_ENV_TOKEN is set here, jobs must set the same
    value.

    Example: agentrl serve-env FrozenLake-v1 --host 0.0.0.0
    """
    from agentrl import env_registry
    from agentrl.config import resolve
    from agentrl.rollout.environments import env_server
    from agentrl.training.command_target import named_job

    if program:
        typer.echo(standalone_program(), nl=False)
        return
    if not environment:
        raise ConfigError("ENVIRONMENT is missing; give an id, module:Class or path/file.py:Class.")
    id = resolve(named_job(environment)).env.id
    # Reject an unknown id here, not in each request.
    env_registry.find_env(id)
    given = ["--host", host, "--port", str(port), "--most", str(most), "--idle", str(idle)]
    try:
        env_server.main([id, *given])
    except env_server.InvalidRequest as error:
        raise ConfigError(str(error)) from error


def standalone_program() -> str:
    """Return the environment server as a single file that does not need agentrl."""
    from agentrl import cross_origin_requests
    from agentrl.rollout.environments import env_calls, env_server

    # Replace each import from agentrl by the source of the imported object, which must not import
    # from agentrl itself.
    program = Path(str(env_server.__file__)).read_text("utf-8")
    for module in (env_calls, cross_origin_requests):
        text = Path(str(module.__file__)).read_text("utf-8")
        text = text.replace("from __future__ import annotations\n", "")
        imports = rf"(?m)^from {re.escape(module.__name__)} import .*\n"
        program = re.sub(imports, text.replace("\\", r"\\"), program)
    return program
