"""Check a job before any work starts: every name resolves and every dependency is installed."""

import json
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from agentrl import devices, extras
from agentrl.algorithms.core.algorithm import load_algorithm
from agentrl.cluster.node_report import host_memory
from agentrl.cluster.node_survey import ask_nodes, smallest_gpu
from agentrl.cluster.placement import Layout, unused_gpus
from agentrl.config import (
    AlgorithmConfig,
    Config,
    DevicesConfig,
    ModelConfig,
    OptimConfig,
    RolloutConfig,
    TrainConfig,
    changed_settings,
    trained_image_sizes,
)
from agentrl.errors import ConfigError
from agentrl.policies.models.model_source import (
    attention_heads,
    check_model,
    check_policy,
    find_config,
    is_on_hub,
)
from agentrl.policies.open_model import (
    check_engine,
    check_engine_for,
    check_packages,
    engine_class,
)
from agentrl.rollout.env_pool import check_mixture_pool
from agentrl.rollout.load_translator_and_players import (
    instructions_for,
    load_player,
    open_translator,
)
from agentrl.rollout.nodes.phone_hosts import check_phone_hosts, find_phone_hosts
from agentrl.rollout.nodes.shared_phone_pool import open_settings
from agentrl.rollout.play_plan import PlayPlan, baseline_players, plan_play
from agentrl.rollout.workers.open_rollouts import plan_job
from agentrl.training.custom_classes import custom_classes
from agentrl.training.env_seeds import check_evaluation_seeds, check_run_seeds
from agentrl.training.file_limit import check_open_files
from agentrl.training.length_check import check_lengths, check_rewards, load_and_check_rewards
from agentrl.training.monitoring.logger import check_loggers, check_logins
from agentrl.training.sampling.task_sampler import load_sampler, task_sets
from agentrl.training.supervised.demonstration_filter import (
    DemonstrationSelection,
    select_demonstrations,
)
from agentrl.training.work_estimate import estimate_work
from agentrl.weight_sync import transport_choice
from agentrl.weight_sync.transport_choice import TransportChoice

log = logging.getLogger(__name__)

MEMORY, MISFITS = "memory", "does not fit"
"""Keys of what `resolve` returns: the memory plan, and its list of what does not fit."""
_CARDS_S = 60.0
"""Time for all nodes to report their GPU memory, in seconds."""


def check(
    config: Config, *, learns: bool = True, warm_start_pending: bool = False
) -> DemonstrationSelection:
    """Resolve everything that a job names, and look up on the hub a model that is not local.

    Args:
        config: the job.
        learns: whether the model is trained; otherwise it only plays, and may be behind a server,
            which is not contacted yet.
        warm_start_pending: whether the warm start is still to come, so that its recorded
            demonstrations must exist.

    Returns:
        The recorded demonstrations of the warm start; empty if there are none.

    Raises:
        ConfigError: the first thing that is missing or invalid, and what to do.
    """
    scores = warm_start_pending and learns  # a resumed job has scored episodes
    _check_job(config, learns=learns, rewards=not scores)
    warm = config.warm_start if warm_start_pending else None
    plan = plan_play(config)
    demonstrations = select_demonstrations(warm, plan.tasks[""].train, config.model, config.eval)
    if scores:
        for name in plan.trained:
            with _prefixed(f"mixture, {name}: " if name else ""):
                check_rewards(plan.only(name))
    if engine_class(config.rollout).capabilities.needs_model and is_on_hub(config.model):
        _check_model_with_engine(config.model, config.rollout, learns=learns)
    return demonstrations


def _check_model_with_engine(model: ModelConfig, rollout: RolloutConfig, *, learns: bool) -> None:
    """Check a model, local or of the hub, and whether its engine can be used to train it."""
    folder = find_config(model)
    if learns:
        check_engine_for(model, folder, rollout, transport_choice.num_gpus(rollout))


def resolve(
    config: Config, *, run: Path | None = None, warm_start_pending: bool = True
) -> dict[str, Any]:
    """Resolve the job's settings and names for `--dry-run`.

    A scripted player plays a few episodes, to see whether prompts and replies fit; nothing is
    recorded. `not checked` lists what may still keep the job from starting.

    Args:
        config: the job.
        run: the folder of the run that is resumed; None for a new one.
        warm_start_pending: see `check`.

    Raises:
        ConfigError: see `check`; the hub is not contacted.
        WorldError: the environment cannot be played.
    """
    count = _check_job(config)
    warm = config.warm_start if warm_start_pending else None
    plan = plan_play(config)
    own = plan.tasks[""].train
    demonstrations = select_demonstrations(warm, own, config.model, config.eval)
    unverified = check_logins(config.logging)
    if is_on_hub(config.model):  # whose lengths are not measured
        check_rewards(plan)
    lengths = check_lengths(replace(config, warm_start=warm), demonstrations.episodes)
    unmeasured = [f"length of prompts and replies in mixture, {name}" for name in _mixture(config)]
    layout = plan_job(config.rollout, config.train, config.devices.hosts)
    memory, unplanned = _plan_memory(config, layout, run or Path(config.run.dir))
    on_hub = " (not a local folder: looked up on the Hugging Face hub when the job starts)"
    return {
        "config": changed_settings(config),
        "resolved": {
            "environment": own.registration.id,
            "phone app": own.app or "none",
            "distinct episodes": {k: v or "unlimited" for k, v in count.items()},
            "players": sorted(own.players),
            **({"mixture": mixture} if (mixture := _mixture(config)) else {}),
            "model": config.model.path + (on_hub if is_on_hub(config.model) else ""),
            **({"recorded demonstrations": str(demonstrations)} if demonstrations.episodes else {}),
            "rewards": [r.function for r in config.rewards] or ["the environment's own"],
            **({"custom classes": classes} if (classes := custom_classes(config)) else {}),
            **lengths.measured,
        },
        "placement": layout.describe(),
        **({MEMORY: memory} if memory else {}),
        "budget": estimate_work(config),
        "not checked": [
            *unplanned,
            *unmeasured,
            *lengths.unchecked,
            *unverified,
        ],
    }


def _plan_memory(config: Config, layout: Layout, run: Path) -> tuple[dict[str, Any], list[str]]:
    """Plan the memory and disk of a job, and list what does not fit; or why that is not known."""
    used = {slot.node for slot in (*layout.ranks, *layout.engines) if slot.gpus}
    what = "memory and disk space"
    if not used:
        if find_spec("torch"):
            from agentrl.training import cpu_memory_plan  # imports torch

            if problems := cpu_memory_plan.misfits(config, layout.nodes, host_memory().total):
                return {MISFITS: problems}, []
        return {}, [f"{what} (there is no GPU; agentrl plan computes what a job on GPUs needs)"]
    from agentrl.training import memory_plan  # imports torch

    if not memory_plan.is_config_here(config.model):
        return {}, [f"{what} (agentrl plan computes them: it downloads the model's config.json)"]
    nodes = [node for node in layout.nodes if node in used]
    card = smallest_gpu(nodes, _CARDS_S)
    replies = ask_nodes(nodes, host_memory, _CARDS_S)
    host = min((reply.result.total for reply in replies if reply.result), default=None)
    try:
        plan = memory_plan.plan_memory(config, layout, card, host=host)
    except memory_plan.CannotSimulate as error:
        return {}, [f"{what}: {error}"]
    size = "unknown: compare it with the totals" if card is None else f"{card / 1e9:.1f} GB"
    problems = [*plan.problems, *filter(None, [plan.disk.misfit(run)])]
    misfits = {MISFITS: problems} if problems else {}
    notes = {"note": plan.host.warning} if plan.host.warning else {}
    return {"size of a GPU": size, **plan.describe(), **notes, **misfits}, []


def _check_job(
    config: Config, *, learns: bool = True, rewards: bool = True
) -> dict[str, int | None]:
    engine = engine_class(config.rollout).capabilities
    if learns and not engine.trains:
        raise ConfigError(
            f"rollout.engine={config.rollout.engine}: its model cannot be trained. Play with it by "
            "`agentrl eval` or `agentrl play`; warm_start.recorded trains a model of your own on "
            "what it played"
        )
    check_open_files(config.rollout)
    players, warm = baseline_players(plan_play(config)), config.warm_start
    if warm is not None and warm.player is not None:
        players = [*players, warm.player]
    with_engines = engine.needs_model and config.rollout.launcher == "ray"
    count = check_env_setup(config, players, phones=not with_engines, rewards=rewards)
    check_packages(config.rollout)
    check_engine(config.rollout)
    if not engine.needs_model:
        return count
    if learns:
        config.validate_for_training()
    if learns or engine.uses_attention:
        _check_attention(config.model, config.rollout, learns=learns)
    check_loggers(config.logging)
    check_model(config.model)
    check_policy(config.model)
    if config.model.path != "tiny" and not is_on_hub(config.model):
        _check_model_with_engine(config.model, config.rollout, learns=learns)
    _check_model_settings(config.model, config.train, config.optim, config.rollout, learns=learns)
    train = config.train if learns else None
    layout = plan_job(config.rollout, train, config.devices.hosts)
    each = engine_class(config.rollout).num_gpus(config.rollout.engine_kwargs)
    if unused := unused_gpus(layout, config.rollout, train, each):
        log.warning("%s", unused)
    if with_engines:
        app = plan_play(config).tasks[""].train.app
        _check_phones(config.devices, app, config.rollout.start_deadline_s, layout)
    config = layout.applied_to(config)
    config.validate()
    choice = TransportChoice(rollout=config.rollout, train=config.train, lora=config.model.lora)
    choice.check()
    if learns and layout.num_nodes > 1 and choice.transport_class().needs.one_node:
        raise ConfigError(
            f"train.weight_transfer={config.train.weight_transfer}: does not reach engines on other"
            f" nodes, and this job uses {layout.num_nodes}; set train.weight_transfer=file"
        )
    return count


def check_learner(config: Config) -> None:
    """Check a job that only trains, without environment and engines.

    Raises:
        ConfigError: see `check`.
    """
    models, launcher = extras.missing_for_models(config.rollout.launcher)
    if lacking := [*models, *launcher]:
        raise ConfigError(". ".join(lacking))
    config.validate_for_training()
    _check_attention(config.model, config.rollout, learns=True)
    check_loggers(config.logging)
    check_model(config.model)
    if config.model.path != "tiny":
        find_config(config.model)  # a model of the hub exists
    _check_model_settings(config.model, config.train, config.optim, config.rollout, learns=True)


def check_inference(config: Config) -> None:
    """Check a job whose model only answers, without environment and learner.

    Raises:
        ConfigError: see `check`.
    """
    check_packages(config.rollout)
    check_engine(config.rollout)
    engine = engine_class(config.rollout).capabilities
    if not engine.needs_model:
        return
    if engine.uses_attention:
        _check_attention(config.model, config.rollout, learns=False)
    check_model(config.model)
    check_policy(config.model)
    if config.model.path != "tiny":
        find_config(config.model)  # a model of the hub exists
    plan_job(config.rollout, None)


def _compare_image_sizes(model: ModelConfig) -> None:
    """Warn if a model was trained with images of another size."""
    for name, before in trained_image_sizes(model.path).items():
        now = getattr(model, name)
        if now != before:
            log.warning(
                "model.%s=%s: %s was trained with %s",
                name, json.dumps(now), model.path, json.dumps(before),
            )  # fmt: skip


def _check_model_settings(
    model: ModelConfig,
    train: TrainConfig,
    optim: OptimConfig,
    rollout: RolloutConfig,
    *,
    learns: bool,
) -> None:
    """Check that the model can be divided, adapted and compiled as configured."""
    _compare_image_sizes(model)
    if train.sequence_parallel > 1 and (heads := attention_heads(model)):
        from agentrl.training.learner.parallel import sequence_parallel

        sequence_parallel.check_heads(heads, train.sequence_parallel)
    if learns and max(train.tensor_parallel, train.expert_parallel) > 1:
        from agentrl.training.learner.parallel import model_parallel

        model_parallel.check_model(model, train.tensor_parallel, train.expert_parallel)
    if model.lora.rank:
        from agentrl.training.learner import lora_adapters

        lora_adapters.check(model)
    if learns and train.compile:
        _check_compiler(rollout)
    if learns and optim.moments == "8bit" and find_spec("bitsandbytes") is None:
        raise ConfigError(extras.NO_8BIT)


def _check_attention(model: ModelConfig, rollout: RolloutConfig, *, learns: bool) -> None:
    if model.attention == "flex" and learns and transport_choice.num_gpus(rollout) == 0:
        raise ConfigError(
            "model.attention=flex: FlexAttention has no backward pass without a GPU, and there is "
            "none; model.attention=auto uses SDPA instead"
        )
    if model.attention != "flash_attention_2":
        return
    # With `kernels` installed instead, transformers takes the flash-attn kernels from the hub.
    if find_spec("flash_attn") is None and find_spec("kernels") is None:
        raise ConfigError(extras.NO_FLASH)
    if transport_choice.num_gpus(rollout) == 0:
        raise ConfigError(
            "model.attention=flash_attention_2 needs a GPU, and there is none; "
            "model.attention=auto uses SDPA instead"
        )
    if model.dtype == "float32":
        raise ConfigError(
            "model.attention=flash_attention_2 computes in half precision, but model.dtype=float32;"
            " set model.dtype=bfloat16 or model.attention=auto"
        )


def _check_compiler(rollout: RolloutConfig) -> None:
    """Check for what torch compiles with: C++ for the CPU, and C to launch a GPU's kernels."""
    on_cpu = transport_choice.num_gpus(rollout) == 0
    variable, wanted = ("CXX", "g++") if on_cpu else ("CC", "gcc")
    compiler = os.environ.get(variable, wanted)
    if not shutil.which(compiler):
        raise ConfigError(
            f"train.compile=true: needs {compiler}, which is not installed; install it, set "
            f"{variable} to another compiler, or set train.compile=false"
        )


def check_env_setup(
    config: Config,
    players: Sequence[str] = (),
    *,
    phones: bool = True,
    rewards: bool = True,
) -> dict[str, int | None]:
    """Check what any player needs: environment, translator, players, rewards, seeds and phones.

    Args:
        config: the job.
        players: scripted players.
        phones: whether to check the phones, too, of a job without engines of its own.
        rewards: whether to load the rewards, which `check_rewards` does otherwise.

    Returns:
        The number of distinct episodes in `training` and in `evaluation`, also of each environment
        of a mixture; None if unknown.

    Raises:
        ConfigError: see `check`.
    """
    config.validate()
    plan = plan_play(config)
    own = plan.tasks[""].train
    counts = _check_environment(plan.only(""), [] if config.mixture else players, rewards=rewards)
    if config.mixture:
        check_mixture_pool(own, {name: task.train for name, task in plan.trained.items()})
        for name in plan.trained:
            with _prefixed(f"mixture, {name}: "):
                found = _check_environment(plan.only(name), players, rewards=rewards)
            counts |= {f"{name}, {part}": count for part, count in found.items()}
    check_evaluation_seeds(config.eval)
    check_run_seeds(
        config.seed,
        config.rollout,
        load_algorithm(config.algorithm).attempts,
        steps=config.train.steps,
        demonstrations=config.warm_start.episodes if config.warm_start else 0,
    )
    sampler = load_sampler(
        config.sampling,
        task_sets(config),
        config.rollout,
        run_seed=config.seed,
        folder=Path(config.run.dir),
    )
    if sampler.replays:
        _check_replay(config.algorithm, config.sampling.name)
        if config.devices.mask and own.app is not None:
            raise ConfigError(
                f"sampling.name={config.sampling.name}: keeps screens as the model saw them, but "
                "devices.mask hides parts of what is recorded; leave one of them out"
            )
    if own.app is not None:
        if config.env.processes:
            raise ConfigError(
                f"env.processes={config.env.processes}: {config.env.id} is played on phones, which "
                "run in processes of their own; leave it out"
            )
        if phones:
            hosts = config.devices.hosts
            layout = plan_job(config.rollout, None, hosts) if hosts else None
            _check_phones(config.devices, own.app, config.rollout.start_deadline_s, layout)
    return counts


def _check_environment(
    plan: PlayPlan, players: Iterable[str], *, rewards: bool
) -> dict[str, int | None]:
    """Check one environment, without its phones; see `check_env_setup`."""
    task = plan.tasks[""]
    env, evaluation = task.train, task.eval
    trained = held_out = env.check_arguments()
    if evaluation.kwargs:
        held_out = task.held_out.check_arguments()
        open_translator(task.held_out)
    if held_out is not None and evaluation.episodes > held_out:
        log.warning(
            "eval.episodes=%s: only %s distinct episodes are held out; they are played repeatedly",
            evaluation.episodes,
            held_out,
        )
    env.with_allowed_apps(plan.devices.allow)
    instructions_for(env.settings.prompt, open_translator(env))
    env.history  # noqa: B018  # raises where it is invalid
    for name in players:
        load_player(env, name)
    if rewards:
        load_and_check_rewards(plan)
    return {"training": trained, "evaluation": held_out}


def _check_replay(settings: AlgorithmConfig, sampler: str) -> None:
    """Check that old episodes are weighted by how likely the current policy is to play them.

    Raises:
        ConfigError: they are not, or their tokens are dropped.
    """
    if settings.importance_correction.kind != "none":
        return
    import torch

    from agentrl.algorithms.core.policy_loss import LossInputs, load_loss

    logprobs = torch.zeros(2, requires_grad=True)
    tokens = {"advantages": torch.ones(2), "turn": torch.tensor([0, 1])}
    old = torch.tensor([0.0, 0.1])  # within all clip ranges of ratios per token
    loss = load_loss(settings.loss)(LossInputs(logprobs=logprobs, old_logprobs=old, **tokens)).loss
    (slope,) = torch.autograd.grad(loss.sum(), logprobs)
    if slope[0] == slope[1]:
        raise ConfigError(
            f"sampling.name={sampler}: algorithm.loss.name={settings.loss.name} does not weight "
            "tokens by their probability ratio, which old episodes need; set "
            "algorithm.importance_correction.kind=token_truncate, or another loss"
        )


@contextmanager
def _prefixed(where: str) -> Iterator[None]:
    """Name the environment of a mixture in an error about it.

    Raises:
        ConfigError: with this prefix.
    """
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from error


def _mixture(config: Config) -> dict[str, str]:
    """Id and share of each environment of a mixture."""
    jobs, weights = config.environments(), config.mixture_weights()
    return {name: f"{job.env.id}, {weights[name]:.0%}" for name, job in jobs.items() if name}


def _check_phones(
    settings: DevicesConfig, app: str | None, deadline_s: float, layout: Layout | None
) -> None:
    """Check the phones on the nodes that have them, or on this machine without a layout."""
    if app is None:
        return
    if layout is not None:
        hosts = find_phone_hosts(settings, layout, deadline_s)
        if [host.node for host in hosts] != [layout.nodes[0]]:
            check_phone_hosts(hosts, deadline_s)
            return
        settings = hosts[0].settings
    devices.check_source(settings.source, **open_settings(settings))
