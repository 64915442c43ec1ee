"""Recorded runs for tests of the viewer."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentrl.policies import tiny_model
from agentrl.replay.recorder import Recorder
from agentrl.types import Outcome, ScoredEpisode
from tests.replay.episodes import episode, screen, turn


def played(
    recorder: Recorder, label: str, member: int, *, step: int = 0, group: int = 0, turns: int = 3,
    split: str = "train", won: bool = True, **changes: Any,
) -> ScoredEpisode:  # fmt: skip
    """Record one episode of a game whose last turn is rewarded with 1 if it is won."""
    name = f"{label}-{step:05d}-g{group:03d}"
    rewards = (*(0.0,) * (turns - 1), 1.0 if won else -1.0)
    made = tuple(
        turn(
            frames=(recorder.frame(screen(100 * member + 31 * group + 7 * n, 180, 320)),),
            reply=f"I look at card {n}. <action>tap(0.25, 0.50)</action>",
            shown=f"<image>Round {n} of {turns}.",
            reply_ids=(3, 4, 5),
            state_key=f"{group}/{n}" if n == 0 or won else f"{group}/{n}/{member}",
            info={"round": n, "metrics": {"accuracy": float(won)}},
            timings={"generate": 0.2, "act": 0.1 + 0.05 * n, "settle": 0.04},
        )
        for n in range(turns)
    )
    whole = {
        "seed": 1000 + group,
        "group": name,
        "member": member,
        "final_frames": (recorder.frame(screen(999 + member, 180, 320)),),
        **changes,
    }
    scored = ScoredEpisode(
        episode=episode(f"{name}-m{member:02d}", turns=made, **whole),
        components={"outcome": rewards, "format": (0.0,) * turns},
        rewards=rewards,
    )
    recorder.episode(scored, split=split, step=step)
    return scored


def run(folder: Path) -> Path:
    """A small run: two training steps, an evaluation before and after, one void episode."""
    with Recorder(folder, config="c0ffee") as recorder:
        for label, wins in (("before-sampled", 1), ("after-sampled", 3)):
            for seed in range(4):
                step = 2 if label.startswith("after") else 0
                played(recorder, label, 0, step=step, group=seed, split="eval", won=seed < wins)
        for step in (1, 2):
            for member in range(4):
                scored = played(recorder, "train", member, step=step, won=member % 2 == 0)
                credits = [
                    [0.5 if member % 2 == 0 else -0.5] * len(t.reply_ids)
                    for t in scored.episode.turns
                ]
                recorder.record_advantages(scored, credits, step=step)
        played(
            recorder, "train", 4, step=2, outcome=Outcome.DEVICE_ERROR,
            error="DeviceOffline: net-3fa2c1 is gone",
        )  # fmt: skip
    lines = [
        {
            "stage": "reinforcement", "step": step, "time": 1e9 + 90 * (step - 1),
            "rollout/episodes_per_s": 4.0, "rollout/tokens_per_s": 80.0, "seconds/rollout": 4.0,
            "train/reward": 0.1 * step,
            "train/accuracy": 0.2 * step, "train/turns": 3.0, "learner/entropy": 1.0 / step,
            "learner/mismatch_k1": 1e-4, "rollout/void": 0.0, "rollout/turns_per_s": 40.0,
        }
        for step in (1, 2)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "config.yaml").write_text("seed: 0\nenv:\n  id: Game-v0\n")
    return folder


def record_probabilities(folder: Path) -> str:
    """Record an episode with the probable tokens of its first turn; its id."""
    (folder / "start").mkdir()
    tiny_model.save_tokenizer(folder / "start", 512)
    ids = tiny_model.token_ids()
    sampled = {
        "<action>tap(": {"<action>tap(": 0.9, "<action>select(": 0.05},
        "0.25": {"0.25": 0.6, "0.75": 0.3},
        ", ": {", ": 1.0},
        "0.50": {"0.90": 0.5, "0.50": 0.4, "0.": 0.05},
        ")</action>": {")</action>": 1.0},
    }
    ids["0."] = ids["0"]  # the text of the token is "0"
    first = turn(
        reply_ids=tuple(ids[token] for token in sampled),
        reply_logprobs=tuple(math.log(position[token]) for token, position in sampled.items()),
        frames=(),
        info={"round": 1, "board": [[0, 1], [2, 3]], "metrics": {"accuracy": 0.5}},
    )
    top = tuple(
        tuple((ids[token], math.log(p)) for token, p in position.items())
        for position in sampled.values()
    )
    with Recorder(folder, "probable") as recorder:
        shown = {"frames": (recorder.frame(screen(7, 180, 320)),)}
        info = {"round": 2, "board": [[0, 1], [2, 4]], "metrics": {"accuracy": 0.5}, "won": True}
        turns = (
            replace(first, reply_top_logprobs=top, **shown),
            turn(**shown, info=info, reply_ids=(3,)),
        )
        made = ScoredEpisode(
            episode=episode("human-00000-g000-m00", turns=turns, group="human-00000-g000"),
            components={},
            rewards=(0.0, 1.0),
        )
        recorder.episode(made, split="demo", step=0)
    return made.episode.id


def evaluate(folder: Path) -> None:
    """Log evaluations like a five-step job; its last step has one during and one after training."""
    lines = []
    for step, way, reward, episodes in (
        (0, "sampled", 0.2, 12), (0, "greedy", 0.3, 12), (2, "sampled", 0.5, None),
        (5, "sampled", 0.9, None), (5, "sampled", 0.6, 12), (5, "greedy", 0.8, 12),
    ):  # fmt: skip
        counts = {} if episodes is None else {f"{way}/episodes": float(episodes)}
        line = {"stage": "evaluation", "step": step, f"{way}/reward": reward, **counts}
        lines.append(json.dumps(line) + "\n")
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write("".join(lines))
