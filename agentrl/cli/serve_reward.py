"""`agentrl serve-reward`."""

import os
from typing import Annotated

import typer

from agentrl.errors import ConfigError


def serve_reward(
    function: Annotated[str, typer.Argument(help="module:name or path/file.py:name.")],
    kwargs: Annotated[
        list[str] | None, typer.Argument(help="For the function.", metavar="KEY=VALUE")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one.", min=0, max=65535)] = 8765,
    deadline_s: Annotated[float, typer.Option(help="Seconds for one call.", min=0.001)] = 60.0,
    batch: Annotated[
        bool, typer.Option("--batch", help="It takes a list, whatever its parameter is called.")
    ] = False,
) -> None:
    """Serve a batch reward function over HTTP, for agentrl.rewards.remote:Remote to ask.

    AGENTRL_REWARD_TOKEN, if it is set here, must be set where the server is asked, too.
    """
    from agentrl.config import RewardConfig, arguments

    try:
        from agentrl.serving.reward_server import serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"serving needs {error.name}, not installed: pip install 'agentrl[page]'"
        ) from None
    serve(
        RewardConfig(
            function=function, kwargs=arguments(kwargs or []), kind="batch" if batch else "auto"
        ),
        host=host,
        port=port,
        deadline_s=deadline_s,
        token=os.environ.get("AGENTRL_REWARD_TOKEN") or None,
        ready=lambda url: typer.echo(f"{function} is served at {url}"),
    )
