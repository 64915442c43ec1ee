"""Interactive episodes, played by a person, a scripted player or a model."""

import asyncio
import json
import logging
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium

from agentrl import event_loop
from agentrl.actions.human_input_parser import available_inputs, parse_typed, strip_tags
from agentrl.actions.translator import Translator
from agentrl.config import Config
from agentrl.config.bounds import MAX_NUMBER
from agentrl.errors import ActionError, AgentRLError, ConfigError, WorldError
from agentrl.files import StrPath
from agentrl.policies.policy import Answer, Policy, PolicySession
from agentrl.rollout.environments.load_translator_and_players import open_translator
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rollout_plan import RolloutPlan, plan_rollouts
from agentrl.rollout.run_episode import EpisodeRequest
from agentrl.rollout.workers.rollout_worker import RolloutWorker
from agentrl.runs.run_folder import PLAY_COMMAND, RunFolder
from agentrl.runs.run_start_records import record_start
from agentrl.text.name_suggestions import did_you_mean
from agentrl.training.chosen_policy import MODEL, ChosenPolicy, choose_policy
from agentrl.training.command_target import Target, is_configuration, open_target
from agentrl.training.engine_check.compared_prompts import opening_prompts
from agentrl.training.engine_check.reference_copy import ReferenceCopy
from agentrl.training.evaluation.human_policy import (
    HumanPolicy,
    NothingPlayed,
    PlayedReply,
    UndoRequested,
)
from agentrl.training.plan.job_plan import check_scripted_play
from agentrl.types import IMAGE, Episode, Message, Observation, ScoredEpisode, Split, Turn
from agentrl.worker_thread import Worker

log = logging.getLogger(__name__)

HUMAN, REMOTE = "human", "remote"
_EXPERT = "expert"
_A_DAY_S = 86_400.0


@dataclass(slots=True, kw_only=True, frozen=True)
class PlayInterface:
    """Callbacks of a user interface that shows an episode and asks a person for actions."""

    show_instructions: Callable[[str], None]
    """Called with the instructions before the episode starts."""
    show_error: Callable[[str], None]
    """Called with the reason why a person's input is not a valid action."""
    show_message: Callable[[Message], None]
    """Called with each message before the player answers, and with the final state."""
    show_turn: Callable[[Turn], None]
    """Called with each turn when it ends."""
    read_input: Callable[[], str | None]
    """Returns a person's input, or None to stop. May raise `UndoRequested`."""
    show_note: Callable[[str], None] = lambda note: None
    """Called with the result of the engine's comparison with transformers."""
    show_inputs: Callable[[Mapping[str, str]], None] = lambda inputs: None
    """Called with all inputs other than typing; see `human_input_parser.available_inputs`."""
    begin_game: Callable[["GameStart"], None] = lambda game: None
    """Called before each game."""
    disable_undo: Callable[[str], None] = lambda reason: None
    """Called with the reason as soon as it is clear that turns cannot be undone."""
    end_game: Callable[[ScoredEpisode | None, str], None] = lambda scored, error: None
    """Called at the end of each game with the recorded game, or None if nothing was recorded, and
    the error message."""
    next_game: Callable[[], int | None] = lambda: None
    """Returns the seed of the next game, or None to stop. May block, and may raise
    `UndoRequested`."""
    show_expert: Callable[[ScoredEpisode | None], None] | None = None
    """Called with the expert's game on the same seed, or with None if the expert failed. If the
    callback is None, the expert does not play."""
    is_stopping: Callable[[], bool] = lambda: False
    """Returns True if the game should end before the next turn, regardless of the player."""


@dataclass(slots=True, kw_only=True, frozen=True)
class GameStart:
    """Facts about a game that are known before it starts."""

    seed: int
    max_turns: int
    num_repeated: int
    """Number of turns that are repeated after an undo."""
    held_out_from: int
    """First held-out seed. Games from this seed on count as evaluations, and no job with these
    settings trains on them."""


def play(
    target: Config | StrPath,
    interface: PlayInterface,
    *,
    policy: str = HUMAN,
    seed: int = 0,
    greedy: bool = False,
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    begun: Callable[[Path], None] = lambda folder: None,
) -> tuple[ScoredEpisode, Path]:
    """Play and record one episode, or more if the interface asks for them.

    Args:
        target: a run's folder, a configuration, its file or name, or an environment as in
            `env.id`.
        interface: shows the episode and reads a person's input.
        policy: `human`, `model` (the server's model with `rollout.engine=remote`), or the name of a
            scripted player.
        seed: seed of the first episode.
        greedy: the model always takes its most probable token.
        checkpoint: checkpoint of a run: `best`, `last` or a step; None uses its final model.
        overrides: `key=value` settings.
        begun: called with the folder before the first episode starts.

    Returns:
        The last recorded episode, and the folder with all recorded episodes.

    Raises:
        ConfigError: an argument or setting names something that does not exist, the seed is out of
            range, or the server does not answer.
        NothingPlayed: every game ended before its first turn.
    """
    if not 0 <= seed <= MAX_NUMBER:
        raise ConfigError(f"seed={seed}: must be between 0 and {MAX_NUMBER:,}")
    opened = open_target(target, overrides)
    opened.check_names_env()
    chosen = choose_policy(opened, policy, checkpoint)
    plan = _plan(opened, chosen)
    label = REMOTE if chosen.is_served else policy
    folder = RunFolder.create(plan.settings.run, f"play-{label}")
    folder.save_config(plan.settings.to_dict())
    folder.save_command(PLAY_COMMAND)
    record_start(folder.path)
    begun(folder.path)
    with folder.removed_if_empty(), TemporaryDirectory(prefix="agentrl-") as scratch:
        model, settings = chosen.model_folder(plan, Path(scratch)), plan.settings
        copy = None if model is None else ReferenceCopy(model, settings.model, settings.rollout)
        rollouts = RolloutWorker(plan, model, folder.path, version=chosen.trained_steps)
        games = _Games(rollouts, plan, interface, policy, label, greedy=greedy, copy=copy)
        scored = event_loop.run(games.run(seed))
    return scored, folder.path


def _plan(target: Target, policy: ChosenPolicy) -> RolloutPlan:
    """Plan games that are played one at a time in this process, on separate phones."""
    config, is_human = target.config, policy.name == HUMAN
    # Extend the deadline, because a person may leave a game open over lunch.
    deadline_s = _A_DAY_S if is_human else config.rollout.deadline_s
    config = replace(
        config,
        rollout=replace(config.rollout, launcher="local", concurrency=1, deadline_s=deadline_s),
        run=replace(config.run, name=target.run_name),
        devices=replace(config.devices, hosts={}),
    )
    plan = plan_rollouts(config.without_learner())
    scripted = {name for task in plan.trained.values() for name in task.train.players}
    if policy.name not in (known := [HUMAN, MODEL, *sorted(scripted)]):
        raise ConfigError(
            f"policy={policy.name}: there is no such policy{did_you_mean(policy.name, known)}; "
            f"choose one of {', '.join(known)}, or give the folder of a run or a model"
        )
    if not is_human:
        return policy.plan(config)
    check_scripted_play(plan)
    return plan


def training_command(
    target: Config | StrPath, overrides: Sequence[str], folder: StrPath
) -> str | None:
    """Return the command that trains on a person's games, if a configuration exists for it.

    Args:
        target: see `play`.
        overrides: see `play`.
        folder: folder of the recorded games.
    """
    if isinstance(target, Config):
        return None
    config, path = str(target), str(folder)
    if Path(target).is_dir():
        config = f"{target}/config.yaml"
    elif not is_configuration(config):
        return None
    # OmegaConf parses the list, so a path with special characters must be quoted in it.
    quoted = path if re.fullmatch(r"[\w./-]+", path, re.ASCII) else json.dumps(path)
    command = (
        "agentrl", "train", config, *(o for o in overrides if not o.startswith("run.")),
        "warm_start.player=null", f"warm_start.recorded=[{quoted}]",
        "warm_start.recorded_filter.label=human",
    )  # fmt: skip
    return shlex.join(command)


class _Games:
    """Plays successive games in the same run."""

    def __init__(
        self,
        rollouts: RolloutWorker,
        plan: RolloutPlan,
        interface: PlayInterface,
        policy: str,
        label: str,
        *,
        greedy: bool,
        copy: ReferenceCopy | None,
    ) -> None:
        self._rollouts, self._interface, self._plan = rollouts, interface, plan
        self._copy = copy
        """The model in transformers; None if no model on this machine plays."""
        self._env, self._evaluation = plan.tasks[""].train, plan.tasks[""].eval
        self._policy, self._label, self._greedy = policy, label, greedy
        self._is_human = policy == HUMAN
        self._rules = self._shown_rules = ""
        self._added_to_system: str | None = None
        """Instructions shown below a game's own system message; None if all games have the same
        rules."""
        self._num_recorded = 0
        self._recorded: EpisodeRequest | None = None
        """The last game; None if it was not recorded."""
        self._of_expert: dict[int, ScoredEpisode] = {}
        """The expert's games by seed."""
        self._last: ScoredEpisode | None = None
        self._error: AgentRLError | None = None
        """The error that ended the last game or its recording, if any."""
        self._worker = Worker("games")

    def _instructions(self, translator: Translator) -> str:
        """Return the instructions; a person is always shown the rules and the reply format."""
        instructions = translator.instructions()
        if instructions or not self._is_human:
            return instructions
        settings = self._env.settings
        # A model may be trained without instructions, but a person cannot guess the rules.
        if settings.translator_kwargs.get("instruct") is False:
            instructed = {**settings.translator_kwargs, "instruct": True}
            env = resolve_env(replace(settings, translator_kwargs=instructed))
            return open_translator(env).instructions()
        return _answer_format(translator)

    def _show_message(self, message: Message) -> None:
        """Show a message, preceded by the rules of its game if they are not shown yet."""
        rules = self._rules
        if message.system and self._added_to_system is not None:
            rules = "\n\n".join(filter(None, (message.system, self._added_to_system)))
        if rules != self._shown_rules:
            self._shown_rules = rules
            self._interface.show_instructions(rules)
        self._interface.show_message(message)

    async def run(self, seed: int) -> ScoredEpisode:
        """Play until no more games are requested, and return the last recorded game."""
        env, interface = self._env, self._interface
        try:
            translator = open_translator(env)
            self._rules = self._shown_rules = self._instructions(translator)
            interface.show_instructions(self._rules)
            if hasattr(translator, "system_message"):
                self._added_to_system = _answer_format(translator) if self._is_human else ""
            if self._is_human:
                interface.show_inputs(available_inputs(translator))
                # Undo replays all turns except the last, which only works if the game is
                # deterministic.
                spec = gymnasium.registry.get(env.registration.id)
                if spec is not None and spec.nondeterministic:
                    interface.disable_undo(f"{env.id} is registered as nondeterministic")
            await self._rollouts.start()
            await self._check_engine(seed)
            await self._play_all(seed)
        finally:
            self._worker.close()
            await self._rollouts.close()
        if self._last is None:
            raise self._error or NothingPlayed
        return self._last

    async def _check_engine(self, seed: int) -> None:
        """Compare the engine with transformers on the first turns, if configured.

        Raises:
            EngineMismatch: they disagree.
        """
        rollouts, copy = self._rollouts, self._copy
        if copy is None:
            return
        await rollouts.engines.start()
        if await asyncio.to_thread(copy.is_wanted):
            prompts = await opening_prompts(
                rollouts, self._plan, copy.encoder, [seed], split=self._split_of(seed)
            )
            found = await copy.compare(prompts, rollouts.engines.generate)
            self._interface.show_note(str(found))

    def _split_of(self, seed: int) -> Split:
        """Return the split of a game; a held-out seed is an evaluation, even for a person."""
        return "eval" if seed >= self._evaluation.first_seed else "demo"

    async def _play_all(self, seed: int) -> None:
        following: int | None = seed
        undone: list[PlayedReply] = []
        while following is not None:
            seed = following
            played = await self._play_game(seed, undone)
            undone = []
            try:
                following = await self._ask_for_next()
            except UndoRequested:
                undone = played

    async def _play_game(self, seed: int, undone: Sequence[PlayedReply]) -> list[PlayedReply]:
        """Play one game until it is recorded.

        Args:
            seed: seed of the game.
            undone: replies of a game whose last turn was undone; all but the last are repeated.

        Returns:
            The person's replies.
        """
        abandoned: Episode | None = None
        while True:
            request = EpisodeRequest(
                split=self._split_of(seed), step=0, group=self._num_recorded, member=0, seed=seed,
                label=self._label,
            )  # fmt: skip
            player = await self._open_player(request, undone)
            episode = await self._play_episode(request, player)
            if not isinstance(player, HumanPolicy):
                await self._record(request, episode)
                return []
            # Record the abandoned game if the undo failed, because its turns would be lost.
            if abandoned is not None and not player.has_caught_up:
                await self._record(request, abandoned)
                request = replace(request, group=self._num_recorded)
            if not player.undo_requested:
                await self._record(request, episode)
                return player.replies
            abandoned, undone = episode, player.replies

    async def _open_player(self, request: EpisodeRequest, undone: Sequence[PlayedReply]) -> Policy:
        interface, rollouts = self._interface, self._rollouts
        interface.begin_game(
            GameStart(
                seed=request.seed,
                max_turns=self._env.settings.max_turns,
                num_repeated=max(0, len(undone) - 1),
                held_out_from=self._evaluation.first_seed,
            )
        )
        if not self._is_human:
            name = None if self._policy == MODEL else self._policy
            player = await rollouts.policy(name, self._greedy, request.split)
            return WatchedPolicy(player, self._show_message, interface.is_stopping)

        def differs(turn: int) -> None:
            reason = (
                f"the same actions led to a different screen in turn {turn}, so the game is not "
                "deterministic"
            )
            interface.disable_undo(reason)
            interface.show_error(f"Undo failed: {reason}. Continue from here.")

        # Use a separate translator, because the episode's translator keeps episode state.
        reader = open_translator(self._env, rollouts.engines.resize_of)
        return HumanPolicy(
            _reader(reader, interface, self._env.settings.max_actions_per_reply),
            _shown_to_both(reader, self._show_message),
            undone[:-1],
            undone[-1].seen if undone else "",
            differs,
        )

    async def _play_episode(self, request: EpisodeRequest, player: Policy) -> Episode | None:
        """Play one episode; return None if there is nothing to record."""

        def ends(seen: Observation) -> None:
            if seen.images or seen.text:
                text = IMAGE * len(seen.images) + seen.text
                self._interface.show_message(Message(role="user", text=text, images=seen.images))

        self._error = None
        try:
            episode = await self._rollouts.play_episode(
                request, player, self._interface.show_turn, ends
            )
        except WorldError as error:
            self._error = error
            return None
        except NothingPlayed:
            return None
        # A game that was left before its first turn does not count as lost.
        is_unplayed = isinstance(player, HumanPolicy) and player.has_stopped and not episode.turns
        return None if is_unplayed else episode

    async def _record(self, request: EpisodeRequest, episode: Episode | None) -> None:
        scored: ScoredEpisode | None = None
        self._recorded = request if episode is not None else None
        if episode is not None:
            # If an abandoned game has been recorded in the meantime, the episode number has
            # changed.
            episode = replace(episode, id=request.id, group=request.group_id)
            scored, self._error = await self._rollouts.record(request, episode)
            self._last = scored
            self._num_recorded += 1
        self._interface.end_game(scored, str(self._error or ""))

    async def _ask_for_next(self) -> int | None:
        """Return the seed of the next game; meanwhile, the expert plays the current game.

        Raises:
            UndoRequested: the person undoes the last turn.
        """
        # The expert plays while the person reads the result, and is cancelled when the person
        # moves on.
        expert = asyncio.create_task(self._play_as_expert())
        try:
            return await self._worker.call(self._interface.next_game)
        finally:
            expert.cancel()
            await asyncio.gather(expert, return_exceptions=True)

    async def _play_as_expert(self) -> None:
        show, last = self._interface.show_expert, self._recorded
        if show is None or last is None:
            return
        if not self._is_human or _EXPERT not in self._env.players:
            return
        # After an undo, the seed is played again, but the expert has already played it.
        if last.seed not in self._of_expert:
            request = replace(last, label=_EXPERT)
            try:
                player = await self._rollouts.policy(_EXPERT, greedy=False, split=last.split)
                episode = await self._rollouts.play_episode(
                    request, player, lambda turn: None, lambda seen: None
                )
                scored, _ = await self._rollouts.record(request, episode)
            except AgentRLError as error:
                log.warning("the expert cannot play seed %d: %s", last.seed, error)
                show(None)
                return
            self._of_expert[last.seed] = scored
        scored = self._of_expert[last.seed]
        show(None if scored.episode.outcome.void else scored)


def _answer_format(translator: Translator) -> str:
    """Return the format of a person's replies; empty if the translator does not describe it."""
    how: Callable[[], str] | None = getattr(translator, "answer_format", None)
    return "" if how is None else strip_tags(how())


def _shown_to_both(
    translator: Translator, show: Callable[[Message], None]
) -> Callable[[Message], None]:
    """Return a callback that shows messages to a person, and their screens to the translator."""
    see = getattr(translator, "see", None)

    def show_both(message: Message) -> None:
        if see is not None and message.images:
            see(message.images)
        show(message)

    return show_both


def _reader(
    translator: Translator, interface: PlayInterface, most: int
) -> Callable[[], str | None]:
    """Return a function that asks for input until it is a valid action; tags are optional."""

    def ask() -> str | None:
        while (said := interface.read_input()) is not None:
            try:
                return parse_typed(translator, said, most)
            except ActionError as error:
                interface.show_error(str(error))
        return None

    return ask


class WatchedPolicy:
    """A policy whose messages are shown before it replies, and whose episodes can be stopped."""

    def __init__(
        self,
        policy: Policy,
        watch: Callable[[Message], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._policy, self._watch, self._is_stopping = policy, watch, is_stopping

    def start_episode(self, instructions: str, seed: int) -> "WatchedSession":
        """See `Policy.start_episode`."""
        session = self._policy.start_episode(instructions, seed)
        return WatchedSession(session, self._watch, self._is_stopping)


class WatchedSession:
    """One watched episode."""

    def __init__(
        self,
        session: PolicySession,
        watch: Callable[[Message], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._session, self._watch, self._is_stopping = session, watch, is_stopping
        self._has_answered = False

    async def answer(
        self, message: Message, info: Mapping[str, Any], observation: Any = None
    ) -> Answer | None:
        """See `PolicySession.answer`.

        Raises:
            NothingPlayed: the episode was stopped before its first turn.
        """
        self._watch(message)
        if self._is_stopping():
            if not self._has_answered:
                raise NothingPlayed
            return None
        self._has_answered = True
        return await self._session.answer(message, info, observation)

    def close(self) -> None:
        """See `PolicySession.close`."""
        self._session.close()
