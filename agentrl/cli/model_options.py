"""Arguments and options shared by the commands that run a model."""

from typing import Annotated

import typer

from agentrl.cli.command_completion import complete_run, complete_setting

MODEL = Annotated[
    str,
    typer.Argument(
        help="Folder of a run or a model, a GGUF file, a Hugging Face id, or the URL of a chat "
        "completions server, such as http://HOST:PORT/v1.",
        autocompletion=complete_run,
    ),
]
OVERRIDES = Annotated[
    list[str] | None,
    typer.Argument(
        help="Overrides, such as rollout.temperature=0.7.",
        metavar="KEY=VALUE",
        autocompletion=complete_setting,
    ),
]
GREEDY = Annotated[bool, typer.Option("--greedy", help="Always take the most probable token.")]
CHECKPOINT = Annotated[
    str | None,
    typer.Option(help="Checkpoint of a run: `best`, `last` or a step; default: its final model."),
]
