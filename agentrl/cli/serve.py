"""`agentrl serve-reward`: serve a reward function over HTTP."""

import os
from pathlib import Path
from typing import Annotated

import typer

from agentrl import extras
from agentrl.errors import ConfigError


def serve_reward(
    function: Annotated[
        str,
        typer.Argument(
            help="module:name or path/file.py:name; or a run of agentrl train-reward-model."
        ),
    ],
    kwargs: Annotated[
        list[str] | None,
        typer.Argument(help="Keyword arguments of the function.", metavar="KEY=VALUE"),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 picks a free one.", min=0, max=65535)] = 8765,
    deadline_s: Annotated[
        float, typer.Option(help="Time limit of one call, in seconds.", min=0.001)
    ] = 60.0,
    batch: Annotated[
        bool,
        typer.Option(
            "--batch", help="The function takes a list, whatever the name of its parameter."
        ),
    ] = False,
) -> None:
    """Serve a reward function or a reward model over HTTP.

    For the client agentrl.rewards.remote:Remote, and at /get_reward for OpenRLHF's --remote_rm_url.

    If AGENTRL_REWARD_TOKEN is set, it must be the same on both sides.

    Example: agentrl serve-reward my_reward.py:score --port 8765
    """
    from agentrl.config import RewardConfig, arguments

    name, values = function, arguments(kwargs or [])
    if Path(function).is_dir():
        name, values = "model", {"path": function, **values}
    try:
        from agentrl.serving.reward_server import serve
    except ModuleNotFoundError as error:
        raise ConfigError(f"serving needs {error.name}, not installed: {extras.GET_PAGE}") from None
    serve(
        RewardConfig(function=name, kwargs=values, kind="batch" if batch else "auto"),
        host=host,
        port=port,
        deadline_s=deadline_s,
        token=os.environ.get("AGENTRL_REWARD_TOKEN") or None,
        ready=lambda url: typer.echo(f"serving {function} at {url}  (Ctrl-C stops it)"),
    )
