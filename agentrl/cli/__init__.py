"""The command line, with one or two commands per file. Commands import heavy modules lazily."""

import os
import sys
from functools import cache
from typing import Annotated, Any

import typer
import typer.core

from agentrl._version import __version__
from agentrl.cli import (
    chat,
    check,
    cluster,
    device_commands,
    envs,
    eval_and_compare,
    infer,
    init_and_schema,
    list_extensions,
    play,
    serve,
    terminal_output,
    virtual_phones,
)
from agentrl.cli.command_completion import complete_zsh_script, settings
from agentrl.cli.command_help import CONTEXT, CommandGroup, name_arguments
from agentrl.cli.jobs import finetuning, pipeline, plan, sweep, train
from agentrl.cli.porting import port
from agentrl.cli.recordings import audit, episodes, export, prune, rescore_and_rehearse, runs, view
from agentrl.errors import AgentRLError, ConfigError, message_of
from agentrl.package_links import check_links
from agentrl.text.formatting import printable

_GROUPS = {
    "Train": (
        "init",
        "port",
        "schema",
        "train",
        "sweep",
        "plan",
        "eval",
        "compare",
        "merge",
        "algorithms",
    ),
    "Train on data": ("pipeline", "sft", "dpo", "train-reward-model"),
    "Use": ("infer", "chat"),
    "Inspect": ("runs", "play", "view", "episodes"),
    "Phones": ("devices", "phone"),
    "Data": ("export", "pairs", "prune", "rescore", "rehearse", "audit"),
    "Environments": ("envs", "serve-env", "serve-reward"),
    "Extend": ("list", "check"),
    "Installation": ("doctor", "cluster"),
}
"""Commands by task, in the order of `agentrl --help`."""


_LONGEST_ERROR = 20_000
"""Number of characters after which a printed error is cut: user code may put any text in it."""
_INTERRUPTED = 130
"""Exit code after Ctrl-C, following the shells' convention."""


class _CommandsByTask(CommandGroup):
    """Lists the commands of `agentrl --help` by task."""

    sections = _GROUPS


class _CommandWithOverrides(typer.core.TyperCommand):
    """Command that answers `--steps 3` with the suggestion `train.steps=3`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises:
            ConfigError: an unknown option has the name of a setting.
        """
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            option = getattr(error, "option_name", None)
            key = None if option is None else _setting(option.strip("-"))
            if key is None:
                raise
            # Include the given value, so the suggestion can be pasted as is.
            _, equals, value = " ".join(given).partition(f"{option}=")
            if not equals:
                after = given[given.index(option) + 1 :] if option in given else []
                value = after[0] if after else "..."
            raise ConfigError(
                f"{option} is not an option of {ctx.command_path}, but a setting; write it as "
                f"{key}={value.split()[0] if value else '...'}"
            ) from None


def _setting(name: str) -> str | None:
    """Return the dotted key of the setting called `name`, which may include its section."""
    name = name.replace("-", "_")
    found = [key for key in settings() if f".{key}".endswith(f".{name}")]
    # Several sections have `steps` and `lr`, so prefer those of the job itself.
    return min(
        found,
        key=lambda key: (not key.startswith("train."), "warm" in key, key.count(".")),
        default=None,
    )


app = typer.Typer(
    cls=_CommandsByTask,
    help="Train vision-language agents that act on screens.",
    no_args_is_help=True,
    context_settings=CONTEXT,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("train", cls=_CommandWithOverrides)(train.train)
app.command("sft", cls=_CommandWithOverrides)(finetuning.sft)
app.command("dpo", cls=_CommandWithOverrides)(finetuning.dpo)
app.command("train-reward-model", cls=_CommandWithOverrides)(finetuning.train_reward_model)
app.command("pipeline", cls=_CommandWithOverrides)(pipeline.pipeline)
app.command("sweep")(sweep.sweep)
app.command("plan", cls=_CommandWithOverrides)(plan.plan)
app.command("eval", cls=_CommandWithOverrides)(eval_and_compare.evaluate)
app.command("compare")(eval_and_compare.compare)
app.command("play", cls=_CommandWithOverrides)(play.play)
app.command("infer", cls=_CommandWithOverrides)(infer.infer)
app.command("chat", cls=_CommandWithOverrides)(chat.chat)
app.command("runs")(runs.runs)
app.command("view")(view.view)
app.command("episodes")(episodes.episodes)
app.command("export")(export.export)
app.command("pairs")(export.pairs)
app.command("merge")(export.merge)
app.command("prune")(prune.prune)
app.command("rescore")(rescore_and_rehearse.rescore)
app.command("rehearse")(rescore_and_rehearse.rehearse)
app.command("audit")(audit.audit)
app.command("algorithms")(list_extensions.algorithms)
app.command("list")(list_extensions.list_)
app.command("check")(check.check)
app.command("init")(init_and_schema.init)
app.command("port")(port.port)
app.command("schema")(init_and_schema.schema)
app.command("serve-reward")(serve.serve_reward)
app.command("doctor")(check.doctor)
app.command("cluster")(cluster.cluster)
app.command("serve-env")(serve.serve_env)
app.add_typer(virtual_phones.app, name="phone")
app.add_typer(device_commands.app, name="devices")
app.add_typer(envs.app, name="envs")


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"agentrl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also log informational messages.")
    ] = False,
) -> None:
    terminal_output.set_up_logging(verbose)


@cache
def root_command() -> Any:
    """Return the root command with all subcommands."""
    command = typer.main.get_command(app)
    name_arguments(command)
    return command


def main() -> None:
    """Run the command line and exit."""
    # A closed stream (`2>&-`) is None in Python. The next file to be opened would get its file
    # descriptor, and child processes would write to that file, so open the null device instead.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode)  # noqa: SIM115 -- must stay open
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command.

    Returns:
        The exit code: 2 for a user's mistake, 130 when interrupted, 1 for any other failure.
    """
    # Other libraries' progress bars would clutter a log file.
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        check_links()
        root_command()(arguments, prog_name="agentrl")
    except SystemExit as end:
        if "--install-completion" in arguments:
            complete_zsh_script()
        # Ctrl-C or Ctrl-D at a prompt: Typer has already reported the abort.
        if isinstance(end.__context__, typer.Abort):
            return _INTERRUPTED
        if end.code == _INTERRUPTED:
            # A terminal has already echoed ^C on this line.
            after_echo = "\n" if sys.stderr.isatty() else ""
            sys.stderr.write(f"{after_echo}interrupted\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    # An OSError comes from the machine (a full disk, for example), so a traceback would not help.
    except (AgentRLError, OSError) as error:
        text = message_of(error, _LONGEST_ERROR)
        sys.stderr.write(printable(f"{type(error).__name__}: {text}") + "\n")
        return 2 if isinstance(error, ConfigError) else 1
    return 0
