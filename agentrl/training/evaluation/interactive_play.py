"""Play one episode interactively: by a person, a scripted player or a model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentrl import event_loop
from agentrl.config import Config, EnvConfig, EvalConfig
from agentrl.env import Translator
from agentrl.errors import ActionError, ConfigError
from agentrl.policies.policy import Answer, Policy, PolicySession, answer_without_tokens
from agentrl.rollout.load_translator_and_players import open_translator
from agentrl.rollout.make_env import Split
from agentrl.rollout.run_episode import EpisodeRequest
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.training import preflight
from agentrl.training.model_to_play import (
    check_checkpoint,
    checkpoint_of,
    is_served,
    model_folder,
    model_of_run,
    trained_steps,
    with_served_model,
)
from agentrl.training.run_folder import (
    RunFolder,
    check_names_env,
    open_target,
    overridden_name,
)
from agentrl.training.supervised.reply_conversion import available_gestures, parse_typed, strip_tags
from agentrl.types import IMAGE, Message, Observation, ScoredEpisode, Turn
from agentrl.worker_threads import Worker

HUMAN, MODEL, REMOTE = "human", "model", "remote"
_A_DAY_S = 86_400.0


@dataclass(slots=True, kw_only=True, frozen=True)
class PlayInterface:
    """Callbacks of a user interface that shows an episode and asks a person for actions."""

    show_instructions: Callable[[str], None]
    """Called with the instructions before the episode starts."""
    show_error: Callable[[str], None]
    """Called with the reason why a person's input is not an action."""
    show_message: Callable[[Message], None]
    """Called with each message to the player before it answers, and with the final state."""
    show_turn: Callable[[Turn], None]
    """Called with each turn when it ends."""
    read_input: Callable[[], str | None]
    """Returns a person's input; None to stop."""
    show_gestures: Callable[[Sequence[str]], None] = lambda available_gestures: None
    """Called with the gestures and keys of a person, as in `reply_conversion.GESTURES`."""


def play(
    target: Config | str | Path,
    interface: PlayInterface,
    *,
    policy: str = HUMAN,
    seed: int = 0,
    greedy: bool = False,
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    begun: Callable[[Path], None] = lambda folder: None,
) -> tuple[ScoredEpisode, Path]:
    """Play one episode; it is recorded like any other.

    Args:
        target: a run's folder, a configuration, or its file or name.
        interface: shows the episode, and reads a person's input.
        policy: `human`, `model` (the server's with `rollout.engine=remote`), or the name of a
            scripted player.
        seed: seed of the episode.
        greedy: the model takes its most probable token each time.
        checkpoint: of a run: `best`, `last` or a step; None takes its final model.
        overrides: `key=value` settings.
        begun: called with the folder before the episode starts.

    Returns:
        The episode, and the folder in which it is recorded.

    Raises:
        ConfigError: something named does not exist, no server answers, or nothing was played.
    """
    config, run = open_target(target, overrides)
    check_names_env(config, target, overrides)
    kept = checkpoint_of(run, checkpoint)
    served = policy == MODEL and is_served(config.rollout, checkpoint)
    if run is not None and policy == MODEL and not served:
        config = replace(config, model=model_of_run(config.model, run, kept))
    deadline_s = _A_DAY_S if policy == HUMAN else config.rollout.deadline_s
    rollout = replace(config.rollout, launcher="local", concurrency=1, deadline_s=deadline_s)
    own = replace(config.run, name=overridden_name(config.run.name, overrides))
    devices = replace(config.devices, hosts={})
    config = replace(config, rollout=rollout, run=own, devices=devices).without_learner()
    if policy == MODEL:
        preflight.check(config, learns=False)
        check_checkpoint(config.model, kept)
    else:
        preflight.check_env_setup(config, [] if policy == HUMAN else [policy])
    if served:
        config = replace(config, rollout=with_served_model(config.rollout))
    of_run = policy == MODEL and not served
    version = trained_steps(run, kept) if of_run else 0
    folder = RunFolder.create(config.run, f"play-{REMOTE if served else policy}")
    folder.save_config(config)
    begun(folder.path)
    with TemporaryDirectory(prefix="agentrl-") as scratch:
        model = model_folder(config.model, config.seed, Path(scratch), kept) if of_run else None
        rollouts = RolloutWorker(config, model, folder.path, version=version)
        request = _request(seed, config.eval, REMOTE if served else policy)
        scored = event_loop.run(
            _play(rollouts, config.env, request, interface, policy, greedy=greedy)
        )
    return scored, folder.path


def _request(seed: int, evaluation: EvalConfig, label: str) -> EpisodeRequest:
    # A held-out seed is recorded as such, also when a person plays it.
    split: Split = "eval" if seed >= evaluation.first_seed else "demo"
    return EpisodeRequest(split=split, step=0, group=0, member=0, seed=seed, label=label)


async def _play(
    rollouts: RolloutWorker,
    environment: EnvConfig,
    request: EpisodeRequest,
    interface: PlayInterface,
    policy: str,
    *,
    greedy: bool,
) -> ScoredEpisode:
    def ends(seen: Observation) -> None:
        if seen.images or seen.text:
            text = IMAGE * len(seen.images) + seen.text
            interface.show_message(Message(role="user", text=text, images=seen.images))

    try:
        translator = open_translator(environment)
        interface.show_instructions(_instructions(translator, is_human=policy == HUMAN))
        if policy == HUMAN:
            interface.show_gestures(available_gestures(translator))
        await rollouts.start()
        show = interface.show_message
        if policy == HUMAN:
            reader = open_translator(environment, rollouts.resize_of)
            player: Policy = HumanPolicy(_reader(reader, interface))
            show = _shown_to_both(reader, show)
        else:
            name = None if policy == MODEL else policy
            player = await rollouts.policy(name, greedy, request.split)
        watched = WatchedPolicy(player, show)
        return await rollouts.play(request, watched, interface.show_turn, ends)
    finally:
        await rollouts.close()


def _instructions(translator: Translator, *, is_human: bool) -> str:
    """The instructions; a person always gets at least the format of an answer."""
    instructions = translator.instructions()
    how: Callable[[], str] | None = getattr(translator, "answer_format", None)
    needs_how = is_human and not instructions and how is not None
    return strip_tags(how()) if needs_how and how is not None else instructions


def _shown_to_both(
    translator: Translator, show: Callable[[Message], None]
) -> Callable[[Message], None]:
    """Shows messages to a person, and their screens to the translator that reads the answers."""
    see = getattr(translator, "see", None)

    def show_both(message: Message) -> None:
        if see is not None and message.images:
            see(message.images)
        show(message)

    return show_both


def _reader(translator: Translator, interface: PlayInterface) -> Callable[[], str | None]:
    """Asks until the input is an action; the tags around it may be left out."""

    def ask() -> str | None:
        while (said := interface.read_input()) is not None:
            try:
                return parse_typed(translator, said)
            except ActionError as error:
                interface.show_error(str(error))
        return None

    return ask


class WatchedPolicy:
    """Wraps a policy and reports each message before it answers.

    Args:
        policy: plays.
        watch: called with each message.
    """

    def __init__(self, policy: Policy, watch: Callable[[Message], None]) -> None:
        self._policy, self._watch = policy, watch

    def start_episode(self, instructions: str, seed: int) -> "WatchedSession":
        """See `Policy.start_episode`."""
        return WatchedSession(self._policy.start_episode(instructions, seed), self._watch)


class WatchedSession:
    """One watched episode.

    Args:
        session: gives the answers.
        watch: called with each message.
    """

    def __init__(self, session: PolicySession, watch: Callable[[Message], None]) -> None:
        self._session, self._watch = session, watch

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """See `PolicySession.answer`."""
        self._watch(message)
        return await self._session.answer(message, info)

    def close(self) -> None:
        """See `PolicySession.close`."""
        self._session.close()


class HumanPolicy:
    """A human player.

    Args:
        ask: returns the reply, and may block; None to stop.
    """

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self._ask = ask

    def start_episode(self, instructions: str, seed: int) -> "HumanSession":
        """Start an episode; the seed is not used."""
        return HumanSession(self._ask)


class HumanSession:
    """One episode of a human player.

    Args:
        ask: see `HumanPolicy`.
    """

    def __init__(self, ask: Callable[[], str | None]) -> None:
        self._ask = ask
        self._has_played = False
        self._worker = Worker("human")

    async def answer(self, message: Message, info: Mapping[str, Any]) -> Answer | None:
        """The typed reply; `info` is not shown.

        Raises:
            ConfigError: the player stopped before the first turn.
        """
        text = await self._worker.call(self._ask)
        if text is None and not self._has_played:
            raise ConfigError("nothing was played")
        self._has_played = True
        return None if text is None else answer_without_tokens(text, message.images)

    def close(self) -> None:
        """End the episode."""
        self._worker.close()
