"""`agentrl eval` and `agentrl compare`: evaluate policies on held-out seeds and on suites."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentrl.cli.command_completion import complete_environment, complete_setting, complete_suite
from agentrl.cli.model_options import GREEDY
from agentrl.cli.terminal_output import print_table, suggest, table_width
from agentrl.errors import ConfigError
from agentrl.text.formatting import printable, shown_path

_WITH_INTERVAL = ("success", "accuracy", "score", "reward")

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentrl.training.evaluation.evaluate_suite import SuiteCommand
    from agentrl.training.evaluation.held_out_evaluation import Evaluation
    from agentrl.training.evaluation.suite_results import TaskResult


_TargetArgument = Annotated[
    str,
    typer.Argument(
        help="A run folder, a YAML file, a packaged configuration, or an environment (see env.id); "
        "with --suite also a model: its folder or Hugging Face id.",
        metavar="TARGET",
        autocompletion=complete_environment,
    ),
]
_OthersArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Overrides. With --suite: more targets to compare.",
        metavar="TARGET or KEY=VALUE",
        autocompletion=complete_setting,
    ),
]
_EpisodesOption = Annotated[
    int | None,
    typer.Option(
        help="Number of episodes, each on a held-out seed; default: eval.episodes, or the suite's."
    ),
]
_PolicyOption = Annotated[
    list[str] | None,
    typer.Option(
        help="`model` (default; the server's model with rollout.engine=remote), or a scripted "
        "player such as `random` or `expert`. Repeatable with --suite, to compare several."
    ),
]
_CheckpointOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Checkpoint of a run: `best`, `last` or a step; default: its final model. Repeatable "
        "with --suite, to compare several."
    ),
]
_DemosOption = Annotated[
    bool, typer.Option("--demos", help="Play on the seeds reserved for demonstrations.")
]
_SuiteOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Evaluation suite to play: a name (see `agentrl list suite`), FILE.yaml, "
        "module:Class or FILE.py:Class; repeatable; default: eval.suite.",
        autocompletion=complete_suite,
    ),
]
_SamplesOption = Annotated[
    int | None,
    typer.Option(help="With --suite: number of episodes per seed or question, for pass@k."),
]
_ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Resume the interrupted evaluation of suites in the folder TARGET: play its "
        "unfinished tasks.",
    ),
]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def evaluate(
    target: _TargetArgument,
    others: _OthersArgument = None,
    episodes: _EpisodesOption = None,
    policy: _PolicyOption = None,
    greedy: GREEDY = False,
    checkpoint: _CheckpointOption = None,
    demos: _DemosOption = False,
    suite: _SuiteOption = None,
    samples: _SamplesOption = None,
    resume: _ResumeOption = False,
    as_json: _JsonOption = False,
) -> None:
    """Evaluate policies on held-out seeds or on suites, and record the episodes.

    Example: agentrl eval runs/NAME --episodes 50 --greedy

    Example: agentrl eval runs/NAME Qwen/Qwen2.5-VL-3B-Instruct --suite counting
    """
    from agentrl.training.evaluation.evaluate import evaluate as play
    from agentrl.training.evaluation.evaluate_suite import SuiteCommand, resume_suites

    # Folder names may contain "=", so an existing path is not an override.
    settings = [text for text in others or () if "=" in text and not Path(text).exists()]
    targets = [target, *(text for text in others or () if text not in settings)]
    command = SuiteCommand(
        targets=targets, suites=suite or [], policies=policy or ["model"],
        checkpoints=checkpoint or [], greedy=greedy, episodes=episodes, samples=samples,
        overrides=settings,
    )  # fmt: skip
    if resume:
        if command != SuiteCommand(targets=[target]):
            raise ConfigError("--resume takes only the folder, which has all other settings")
        _report(*resume_suites(Path(target)), as_json)
        return
    if _plays_suites(command, demos):
        _play_suites(command, as_json)
        return
    how: dict[str, Any] = {"episodes": episodes, "policy": command.policies[0], "greedy": greedy}
    how |= {"checkpoint": checkpoint[0] if checkpoint else None, "overrides": settings}
    result = play(target, demos=demos, **how)
    if as_json:
        _print_json(result)
    else:
        _print_table(result, target, how["policy"], greedy, how["checkpoint"])


def _plays_suites(command: "SuiteCommand", demos: bool) -> bool:
    """Return whether the command plays suites.

    Raises:
        ConfigError: an option needs a suite but none is given, or does not apply to suites.
    """
    from agentrl.training.command_target import open_target

    several = max(len(command.targets), len(command.policies), len(command.checkpoints)) > 1
    if not command.suites:
        target = open_target(command.targets[0], command.overrides, may_be_model=True)
        if target.config.eval.suite is None:
            if len(command.targets) > 1:
                raise ConfigError(
                    f"{command.targets[1]!r}: write overrides as key=value; to compare several "
                    "models, add --suite (agentrl list suite)"
                )
            if several or command.samples is not None or target.is_model:
                raise ConfigError(
                    "--suite is missing; several policies, --samples, or a model without an "
                    "environment need one (agentrl list suite)"
                )
            return False
    if demos:
        raise ConfigError("omit --demos, because a suite is always played on held-out seeds")
    return True


def _play_suites(command: "SuiteCommand", as_json: bool) -> None:
    from agentrl.training.evaluation.evaluate_suite import evaluate_suites

    def begun(folder: Path) -> None:
        folder = shown_path(folder)
        typer.echo(f"results: {folder} (if interrupted: agentrl eval {folder} --resume)", err=True)

    _report(*evaluate_suites(command, begun), as_json)


def _report(folder: Path, results: "Sequence[TaskResult]", as_json: bool) -> None:
    from agentrl.training.evaluation.suite_results import tree_of
    from agentrl.viewer import export

    page = folder / "report.html"
    export.write_suite_report(results, page)
    if as_json:
        typer.echo(json.dumps({"folder": str(shown_path(folder)), **tree_of(results)}))
        return
    _print_suites(results)
    folder = shown_path(folder)
    typer.echo(f"report: {shown_path(page)}")
    suggest(("view", folder / results[0].run), ("compare", folder, "OTHER"))


def compare(
    results: Annotated[
        list[Path],
        typer.Argument(help="Evaluation folders, or the results.json files of suites."),
    ],
    out: Annotated[Path | None, typer.Option(help="Also write a report to FILE.html.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare models that were evaluated on the same suites or the same environment.

    Differences are relative to the first model, on the seeds that both models played.

    Example: agentrl compare runs/suite-counting-1126-101500 runs/suite-counting-1126-143000
    """
    from agentrl.training.evaluation.suite_results import read_results, tree_of
    from agentrl.viewer import export

    found = read_results(results)
    if out is not None:
        export.write_suite_report(found, out)
    if as_json:
        typer.echo(json.dumps(tree_of(found)))
        return
    _print_suites(found)
    if out is not None:
        typer.echo(f"report: {out}")


def _print_suites(results: "Sequence[TaskResult]") -> None:
    from agentrl.training.evaluation.suite_table import suite_tables

    for one in suite_tables(results):
        typer.echo(printable(f"{one.suite}: {one.about}" if one.about else one.suite))
        for part in one.table.fold(table_width()):
            print_table(part)
        for note in one.footnotes:
            typer.echo(note)


def _print_json(result: "Evaluation") -> None:
    extra = {"audit": result.audit or None, "model": result.model, "run": str(result.run)}
    shown = {key: value for key, value in extra.items() if value is not None}
    typer.echo(json.dumps(result.summary() | shown))


def _print_table(
    result: "Evaluation", target: str, policy: str, greedy: bool, checkpoint: str | None
) -> None:
    from agentrl.text_tables import ResultTable

    who = f"{result.model or policy}{', greedy' if greedy else ''}"
    rings = {"unseen seeds": result}
    rings |= {f"unseen {ring}": found for ring, found in result.rings.items()}
    typer.echo(printable(f"{target}: {who}" if result.rings else target))
    columns = {ring if result.rings else who: found for ring, found in rings.items()}
    shown = {name: replace(found, rings={}).summary() for name, found in columns.items()}
    for part in ResultTable.of_metrics(shown).fold(table_width()):
        print_table(part)
    for ring, found in rings.items():
        ends = [
            f"{name} {low:.3g} to {high:.3g}"
            for name, (low, high) in found.intervals().items()
            if name in _WITH_INTERVAL
        ]
        if ends:
            of = f", {ring}" if result.rings else ""
            typer.echo(f"95% intervals over the seeds{of}: {', '.join(ends)}")
    if policy == "model" and result.model is None and Path(target).is_dir():
        model = f"checkpoint {checkpoint}" if checkpoint else "the final model"
        typer.echo(f"model: {model} of {target}")
    if result.audit:
        from agentrl.devices import vision

        typer.echo(vision.format_audit(result.audit))
    if result.run is not None:
        run = shown_path(result.run)
        typer.echo(f"recorded: {run}")
        suggest(("view", run), ("episodes", run))
