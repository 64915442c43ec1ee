"""`agentrl play`: play one episode, or watch a policy play it."""

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from agentrl import extras
from agentrl.cli.command_completion import complete_environment, complete_setting
from agentrl.cli.model_options import CHECKPOINT, GREEDY
from agentrl.cli.terminal_output import draw_image, output_console, suggest
from agentrl.errors import ConfigError
from agentrl.text.formatting import format_signed, one_line, pluralize, printable, shown_path

if TYPE_CHECKING:
    from agentrl.training.evaluation.interactive_play import PlayInterface
    from agentrl.types import Message, ScoredEpisode, Turn


_TargetArgument = Annotated[
    str,
    typer.Argument(
        help="An environment (see env.id), a YAML file, or a run folder.",
        autocompletion=complete_environment,
    ),
]
_OverridesArgument = Annotated[
    list[str] | None,
    typer.Argument(help="Overrides.", metavar="KEY=VALUE", autocompletion=complete_setting),
]
_PolicyOption = Annotated[
    str,
    typer.Option(
        help="`human`, `model` (the server's model with rollout.engine=remote), a scripted player, "
        "or the folder of a run or a model."
    ),
]
_WidthOption = Annotated[
    int,
    typer.Option(
        help="Width of images in characters; 0 hides them. Needs a color terminal.",
        min=0,
        max=400,
    ),
]


def play(
    target: _TargetArgument,
    overrides: _OverridesArgument = None,
    policy: _PolicyOption = "human",
    seed: Annotated[int, typer.Option(help="Seed of the episode.", min=0)] = 0,
    greedy: GREEDY = False,
    checkpoint: CHECKPOINT = None,
    delay: Annotated[
        float, typer.Option(help="Pause after each of a policy's turns, in seconds.", min=0)
    ] = 0.0,
    width: _WidthOption = 48,
    browser: Annotated[
        bool, typer.Option("--browser", help="Play on a web page: tap, swipe, and type.")
    ] = False,
    port: Annotated[
        int, typer.Option(help="Port of the page; 0 picks a free one.", min=0, max=65535)
    ] = 8200,
) -> None:
    """Play in the terminal or browser, or watch a policy play, and record the episode.

    Type an action, such as `up` or `tap(0.2, 0.7)`; an empty line ends the episode. In the browser,
    play as many games as you like, and undo turns.

    Example: agentrl play sokoban --policy expert --delay 0.5
    """
    from agentrl.training.chosen_policy import MODEL
    from agentrl.training.evaluation.human_policy import NothingPlayed
    from agentrl.training.evaluation.interactive_play import HUMAN, training_command
    from agentrl.training.evaluation.interactive_play import play as play_one

    settings = list(overrides or [])
    # A run brings its own environment and checkpoints; a plain model plays the target.
    if Path(policy).is_dir():
        if (Path(policy) / "config.yaml").is_file():
            target = policy
        else:
            settings.append(f"model.path={policy}")
        policy = MODEL
    console = output_console()
    how: dict[str, Any] = {"policy": policy, "seed": seed, "greedy": greedy}
    how["checkpoint"] = checkpoint
    try:
        if browser:
            scored, folder = _in_browser(target, settings, port, how)
        else:
            audience = _audience(console, width, policy == HUMAN, 0.0 if policy == HUMAN else delay)
            scored, folder = play_one(target, audience, overrides=settings, **how)
    except NothingPlayed as end:
        typer.echo(str(end))
        return
    _print_result(console, scored)
    folder = shown_path(folder)
    typer.echo(f"recorded: {folder}")
    suggest(("view", folder), ("episodes", folder))
    if policy == HUMAN and (command := training_command(target, settings, folder)) is not None:
        typer.echo(f"To train on what you played: {command}")


def _print_result(console: Console, scored: "ScoredEpisode") -> None:
    """Print the episode's outcome, reward and metrics."""
    episode = scored.episode
    ended = f"{episode.outcome.value} after {pluralize(len(episode.turns), 'turn')}"
    parts = {name: sum(values) for name, values in scored.components.items()}
    of = ", ".join(f"{name} {value:g}" for name, value in parts.items())
    of = f" (unweighted components: {of})" if len(parts) > 1 else ""
    console.print(escape(f"{ended}, reward {scored.reward:g}{of}"))
    if episode.error:
        console.print(escape(printable(one_line(episode.error))))
    metrics = episode.turns[-1].info.get("metrics", {}) if episode.turns else {}
    for name, value in metrics.items():
        console.print(f"{escape(str(name))} {value:g}")


def _in_browser(
    target: str, overrides: list[str], port: int, how: dict[str, Any]
) -> "tuple[ScoredEpisode, Path]":
    try:
        from agentrl.viewer.viewer_server import play_in_browser
    except ImportError as error:
        raise ConfigError(
            f"--browser needs {error.name}, which is not installed; run: {extras.GET_PAGE}"
        ) from None

    def ready(url: str) -> None:
        typer.echo(f"{url}  (Ctrl-C stops it)")

    return play_in_browser(
        target, overrides=overrides, port=port, ready=ready, stays=threading.Event(), **how
    )


def _audience(console: Console, width: int, asks: bool, delay_s: float) -> "PlayInterface":
    from agentrl.training.evaluation.interactive_play import PlayInterface

    def show_error(words: str) -> None:
        console.print(escape(printable(words)), style="yellow")

    def show_instructions(words: str) -> None:
        show_error(words)
        if asks:
            show_error("Type an action; an empty line ends the episode.")

    def show_note(note: str) -> None:
        console.print(escape(printable(note)), style="dim")

    def show_message(message: "Message") -> None:
        for image in message.all_images if width and console.color_system else ():
            console.print(draw_image(image, min(width, console.width)))
        words = message.transcript()
        if words:
            console.print(escape(printable(words)))

    def show_turn(turn: "Turn") -> None:
        said = escape(printable(turn.reply))
        went = turn.parse_error or f"reward {format_signed(turn.env_reward)}"
        console.print(
            f"[bold]{said}[/]  [dim]{escape(printable(one_line(went, 1000)))}[/]", highlight=False
        )
        time.sleep(delay_s)

    def read_input() -> str | None:
        try:
            return input("> ").strip() or None
        except EOFError:
            return None

    return PlayInterface(
        show_instructions=show_instructions,
        show_error=show_error,
        show_note=show_note,
        show_message=show_message,
        show_turn=show_turn,
        read_input=read_input,
    )
