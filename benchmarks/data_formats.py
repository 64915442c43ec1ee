"""Play a row of each data format of other trainers, comparing scores and prompts with theirs.

Run: python benchmarks/data_formats.py [--repositories FOLDER]

Each row is a separate file, read by `QA-v0` with the printed settings. A right and a wrong reply to
it are scored by a reward function with the trainer's signature: a short function from
`data_format_rewards.py` or, with `--repositories`, the trainer's own, from a folder with checkouts
(EasyR1, R1-V, verl, OpenRLHF). Their packages must be importable, and LMM-R1's verifier must run:
`python -m openrlhf.models.remote_rm.math_verifier --prompt-template chatml`.

The prompt is compared, token by token, with the trainer's messages encoded by Qwen2.5-VL's
processor and chat template. TRL itself builds its messages; `data_format_prompts.py` builds the
others.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import yaml

from agentrl.config import EnvConfig, RewardConfig
from agentrl.errors import RewardError
from agentrl.policies import tiny_model
from agentrl.policies.chat.chat_encoder import ChatEncoder
from agentrl.policies.scripted_policy import ScriptedPolicy
from agentrl.rollout.environments.env_runner import EnvRunner
from agentrl.rollout.environments.resolved_env import resolve_env
from agentrl.rollout.rewards.scoring import RewardFunctions
from agentrl.rollout.run_episode import EpisodeLimits, EpisodeRequest, run_episode
from agentrl.training.evaluation.suite import tasks_of
from agentrl.types import Episode

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import data_format_prompts as prompts  # noqa: E402

THINK = "{{ content | trim }} First think inside <think> </think>, then write \\boxed{}."
ROUND = """
Choose the number that the light asks for.

* **GREEN**: the largest
* **RED**: the smallest

Write one digit and nothing else.

---

{{ content }}
"""
"""Like EasyR1's `android_gui.jinja`: rules above the question."""
COUNT = "{{ problem }}  Think in <think> </think>, then give the number in <answer> </answer>."
SYSTEM = "Think in <think> </think>, then answer in <answer> </answer> with \\boxed{}.\n"
TAGGED, BOXED = "<think>so</think><answer>3</answer>", "<think>so</think>\\boxed{3}"
OWN = "data_format_rewards.py:"
_ROLES = ("system", "user", "assistant")


@dataclass(slots=True, kw_only=True, frozen=True)
class Format:
    """A row of a trainer's data, and how that trainer's users score replies to it."""

    trainer: str
    name: str
    row: Mapping[str, Any]
    theirs: Callable[[Mapping[str, Any], Mapping[str, Any]], list[dict[str, Any]] | str]
    """Returns the messages or the text that the trainer builds from a row and the settings."""
    rewards: Sequence[str]
    """Functions of `data_format_rewards.py`, or `module:function`."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """`env.kwargs` other than `data`."""
    translator_kwargs: Mapping[str, Any] = field(default_factory=dict)
    chat: str = "auto"
    """`model.chat`."""
    own_rewards: Sequence[str] = ()
    """Reward functions in the trainer's repository, which replace `rewards`."""
    own_template: str = ""
    """Format prompt in the trainer's repository, which replaces `template`."""
    reward_kwargs: Mapping[str, Any] = field(default_factory=dict)
    own_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Additional keyword arguments for `own_rewards`."""
    replies: tuple[str, str] = (TAGGED, "4")
    file: str = "rows.jsonl"


def of_suite(name: str) -> dict[str, Any]:
    """Return the settings of a suite included in agentrl, for a row of its data."""
    task = tasks_of(name)[0]
    elsewhere = ("data", "name", "image_root")
    return {
        "kwargs": {k: v for k, v in task.kwargs.items() if k not in elsewhere},
        "translator_kwargs": task.translator_kwargs,
        "rewards": [one.function for one in task.rewards or () if one.weight],
    }


_EASYR1 = "EasyR1/examples/reward_function"
_FORMAT = "EasyR1/examples/format_prompt"
_R1V = "R1-V/src/r1-v/src/open_r1/grpo.py"
_CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1 + 2?"}]
_TURNS = [
    _CHAT[0],
    {"role": "user", "content": "<image>What?"},
    {"role": "assistant", "content": "A dog."},
    {"role": "user", "content": "How many?"},
]
_TURNS_WITHOUT_PLACES = [_CHAT[0], {"role": "user", "content": "What?"}, *_TURNS[2:]]
FORMATS = (
    Format(
        trainer="EasyR1", name="several images, math.jinja",
        row={"images": ["a.png", "b.png"], "problem": "<image><image>Find x. ", "answer": "3"},
        kwargs={"template": THINK, "grade": "none"}, theirs=prompts.easyr1,
        rewards=("easyr1_boxed",), own_rewards=(f"{_EASYR1}/math.py:compute_score",),
        own_template=f"{_FORMAT}/math.jinja",
        replies=(BOXED, "4"),
    ),
    Format(
        trainer="EasyR1", name="r1v.jinja, sequential reward",
        row={"images": ["a.png"], "problem": "<image>How many?", "answer": "3"},
        kwargs={"template": COUNT, "grade": "none"}, theirs=prompts.easyr1,
        rewards=("easyr1_tagged",), own_rewards=(f"{_EASYR1}/r1v.py:compute_score",),
        own_template=f"{_FORMAT}/r1v.jinja",
    ),
    Format(
        trainer="EasyR1", name="android_gui.jinja",
        row={"images": ["a.png"], "problem": "<image>\nRound 2, score 1", "answer": "2"},
        kwargs={"template": ROUND, "grade": "none"}, theirs=prompts.easyr1,
        rewards=("easyr1_digit",), own_rewards=(f"{_EASYR1}/android_gui.py:compute_score",),
        own_template=f"{_FORMAT}/android_gui.jinja",
        replies=("2", "1"),
    ),
    Format(
        trainer="EasyR1", name="text, dapo.jinja",
        row={"problem": "1 + 2?", "answer": "3"},
        kwargs={"template": "Solve it.\\n\\n{{ content | trim }}\\n\\nEnd with \"Answer:\".",
                "grade": "none"},
        theirs=prompts.easyr1, rewards=("easyr1_line",),
        own_rewards=(f"{_EASYR1}/dapo.py:compute_score",), own_template=f"{_FORMAT}/dapo.jinja",
        reward_kwargs={"max_response_length": 512, "overlong_buffer_length": 64,
                       "overlong_penalty_factor": 1.0},
        replies=("so\nAnswer: 3", "so\nAnswer: 4"),
    ),
    Format(
        trainer="R1-V", name="counting",
        row={"image": "a.png", "problem": "How many?", "solution": "<answer> 3 </answer>"},
        kwargs={"template": COUNT, "grade": "none"}, theirs=prompts.r1v,
        rewards=("trl_accuracy", "trl_format"),
        own_rewards=(f"{_R1V}:accuracy_reward", f"{_R1V}:format_reward"),
    ),
    Format(
        trainer="veRL", name="geometry3k",
        row={
            "data_source": "hiyouga/geometry3k",
            "prompt": [{"role": "user", "content": "<image>Find x. End with \\boxed{}."}],
            "images": [{"bytes": "a.png", "path": None}],
            "ability": "math", "reward_model": {"style": "rule", "ground_truth": "3"},
            "extra_info": {"split": "train", "index": 0, "answer": "3", "question": "Find x."},
        },
        kwargs={"grade": "none"}, theirs=prompts.verl, rewards=("verl",),
        own_rewards=("verl.utils.reward_score:default_compute_score",), replies=(BOXED, "4"),
        file="rows.parquet",
    ),
    Format(
        trainer="veRL", name="GSM8K",
        row={
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": "1 + 2? End with \"####\"."}],
            "ability": "math", "reward_model": {"style": "rule", "ground_truth": "3"},
            "extra_info": {"split": "train", "index": 0, "answer": "1 + 2 = 3\n#### 3"},
        },
        kwargs={"grade": "none"}, theirs=prompts.verl, rewards=("verl",),
        own_rewards=("verl.utils.reward_score:default_compute_score",),
        replies=("1 + 2 = 3\n#### 3", "#### 4"), file="rows.parquet",
    ),
    Format(
        trainer="veRL", name="several turns with images",
        row={
            "data_source": "hiyouga/geometry3k", "images": [{"bytes": "a.png", "path": None},
                                                            {"bytes": "b.png", "path": None}],
            "prompt": [*_TURNS[:-1], {"role": "user", "content": "And <image>?"}],
            "reward_model": {"style": "rule", "ground_truth": "3"},
        },
        kwargs={"grade": "none"}, theirs=prompts.verl, rewards=("verl",), replies=(BOXED, "4"),
        file="rows.parquet",
    ),
    Format(
        trainer="LMM-R1", name="question beside message",
        row={
            "question": "Which number?\n", "answer": "$\\boxed{3}$",
            "message": json.dumps([
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": [{"type": "text", "text": "Which number?\n"},
                                             {"type": "image", "image": "a.png"}]},
            ]),
        },
        kwargs={"grade": "none"}, theirs=prompts.lmm_r1, rewards=("openrlhf_math",),
        own_rewards=("agentrl.rewards.remote:OpenRLHF",),
        own_kwargs={"url": "http://127.0.0.1:5000/get_reward", "prompt_key": "message"},
        replies=("<think>so</think><answer>$\\boxed{3}$</answer>", "$\\boxed{4}$"),
    ),
    Format(
        trainer="OpenRLHF", name="images in parts",
        row={
            "prompt": [{"role": "user", "content": [{"type": "image"},
                                                    {"type": "text", "text": "Find x."}]}],
            "images": ["a.png"], "label": "3",
        },
        kwargs={"grade": "none"}, theirs=prompts.openrlhf, rewards=("openrlhf_boxed",),
        own_rewards=("OpenRLHF/examples/python/math_reward_func.py:reward_func",),
        replies=(BOXED, "4"),
    ),
    Format(
        trainer="OpenRLHF", name="input as text",
        row={"input": "1 + 2?", "label": "3"},
        kwargs={"grade": "none", "template": "{{ content }}"}, theirs=prompts.openrlhf,
        rewards=("openrlhf_boxed",),
        own_rewards=("OpenRLHF/examples/python/math_reward_func.py:reward_func",),
        replies=(BOXED, "4"),
    ),
    Format(
        trainer="TRL", name="images beside messages",
        row={"prompt": [{"role": "user", "content": "How many?"}], "images": ["a.png"],
             "solution": "$3$"},
        kwargs={"grade": "none"}, theirs=prompts.trl,
        rewards=("trl_boxed",), own_rewards=("trl.rewards:accuracy_reward",), replies=(BOXED, "4"),
    ),
    Format(
        trainer="TRL", name="own system message",
        row={"prompt": _CHAT, "solution": "$3$"},
        kwargs={"grade": "none"}, theirs=prompts.trl,
        rewards=("trl_boxed",), own_rewards=("trl.rewards:accuracy_reward",), replies=(BOXED, "4"),
    ),
    Format(
        trainer="TRL", name="several turns, images beside messages",
        row={"prompt": _TURNS_WITHOUT_PLACES, "images": ["a.png", "b.png"], "solution": "$3$"},
        kwargs={"grade": "none"}, theirs=prompts.trl,
        rewards=("trl_boxed",), own_rewards=("trl.rewards:accuracy_reward",), replies=(BOXED, "4"),
    ),
    Format(
        trainer="TRL", name="prompt alone",
        row={"prompt": _CHAT}, kwargs={"grade": "none"}, theirs=prompts.trl,
        rewards=("trl_form",), own_rewards=("trl.rewards:think_format_reward",),
        replies=("<think>so</think>3", "3"),
    ),
    Format(
        trainer="TRL", name="text, which the model continues",
        row={"prompt": "1 + 2 =", "solution": "$3$"},
        kwargs={"grade": "none"}, translator_kwargs={"instruct": False}, chat="plain",
        theirs=prompts.trl, rewards=("trl_text",), replies=(BOXED, "4"),
    ),
    Format(
        trainer="LLaMA-Factory", name="ShareGPT with system",
        row={"conversations": [{"from": "human", "value": "<image>How many?"},
                               {"from": "gpt", "value": "3"}],
             "system": "Be brief.", "images": ["a.png"]},
        theirs=prompts.llama_factory, rewards=("agentrl.rewards.matching:exact",),
    ),
    Format(
        trainer="LLaMA-Factory", name="ShareGPT, several turns",
        row={"conversations": [{"from": "human", "value": "<image>How many?"},
                               {"from": "gpt", "value": "2"}, {"from": "human", "value": "Sure?"},
                               {"from": "gpt", "value": "3"}],
             "system": "Be brief.", "images": ["a.png"]},
        theirs=prompts.llama_factory, rewards=("agentrl.rewards.matching:exact",),
    ),
    Format(
        trainer="LLaMA-Factory", name="Alpaca with history",
        row={"instruction": "Add the numbers.", "input": "1, 2", "output": "3",
             "history": [["Hi", "Hello"]], "system": "Be brief."},
        theirs=prompts.llama_factory, rewards=("agentrl.rewards.matching:exact",),
    ),
    Format(
        trainer="LLaMA-Factory", name="Alpaca with system",
        row={"instruction": "Add the numbers.", "input": "1, 2", "output": "3",
             "system": "Be brief."},
        theirs=prompts.llama_factory, rewards=("agentrl.rewards.matching:exact",),
    ),
    Format(
        trainer="MMMU", name="suite mmmu",
        row={"question": "<image 1> Which?", "options": "['2', \"the cat's\", '<image 2>']",
             "answer": "B", "image_1": "a.png", "image_2": "b.png", "image_3": None},
        theirs=prompts.mmmu, replies=("The answer is (B)", "C"), **of_suite("mmmu"),
    ),
    Format(
        trainer="MathVista", name="suite mathvista",
        row={"query": "Hint: End with the letter.\nQuestion: How many?\nChoices:\n(A) 3\n(B) 4",
             "decoded_image": "a.png", "choices": ["3", "4"], "answer": "3", "answer_type": "text",
             "precision": None},
        theirs=prompts.mathvista, replies=("The answer is A", "4"), **of_suite("mathvista"),
    ),
    Format(
        trainer="R1-V", name="suite geoqa",
        row={"image_path": "a.png", "question": "How large is angle A?", "ground_truth": "140°"},
        theirs=prompts.r1v_test, replies=("<answer> 140 degrees </answer>", "40"),
        **of_suite("geoqa"),
    ),
)  # fmt: skip


@dataclass(slots=True, kw_only=True, frozen=True)
class Result:
    """Result of a row."""

    rewards: Sequence[str]
    """Functions that scored the replies."""
    right: float | str
    """Score of the right reply, or the reason why it could not be scored."""
    wrong: float | str
    is_their_prompt: bool
    shown: str
    """Decoded prompt."""


class _Says:
    """A player that always gives the same reply."""

    def __init__(self, text: str) -> None:
        self._text = text

    def reply(self, info: Mapping[str, Any], rng: np.random.Generator) -> str:
        return self._text


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repositories", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = build_model(Path(folder, "model"))
        print("\n".join(table(played(model, Path(folder), arguments.repositories))))


def build_model(folder: Path) -> Path:
    """Build a tiny Qwen2.5-VL with the real chat template and no special tokens for roles."""
    tiny_model.build(folder, 0)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    # The tiny model has a special token `user`, which would also match that word in questions.
    added = [t for t in tokenizer["added_tokens"] if t["content"] not in _ROLES]
    (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "added_tokens": added}))
    shutil.copy(HERE / "chat_templates" / "qwen2_5_vl.jinja", folder / "chat_template.jinja")
    return folder


def played(
    model: Path, folder: Path, repositories: Path | None = None
) -> list[tuple[Format, Result]]:
    """Play all formats and return them with their results.

    Args:
        model: folder made by `build_model`.
        folder: folder for the row files.
        repositories: folder with checkouts of the trainers; None uses the short functions.
    """
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(model)
    encoders = {chat: ChatEncoder(model, chat=chat) for chat in {one.chat for one in FORMATS}}
    return [
        (one, _play(one, encoders[one.chat], processor, folder, repositories)) for one in FORMATS
    ]


def _play(
    one: Format, encoder: ChatEncoder, processor: Any, folder: Path, repositories: Path | None
) -> Result:
    kwargs, reward_kwargs = dict(one.kwargs), dict(one.reward_kwargs)
    names = [name if ":" in name else f"{HERE / OWN}{name}" for name in one.rewards]
    if repositories is not None and one.own_rewards:
        own = one.own_rewards
        names = [str(repositories / name) if "/" in name else name for name in own]
        reward_kwargs |= one.own_kwargs
    if repositories is not None and one.own_template:
        kwargs["template"] = str(repositories / one.own_template)
    kwargs["data"] = str(_write(one, folder))
    env = EnvConfig(id="QA-v0", kwargs=kwargs, translator_kwargs=dict(one.translator_kwargs))
    episodes = [asyncio.run(_episode(env, encoder, reply)) for reply in one.replies]
    right, wrong = _score(names, reward_kwargs, episodes)
    ours = episodes[0].turns[0].prompt_ids
    theirs = prompts.token_ids(processor, one.theirs(one.row, kwargs), folder)
    return Result(
        rewards=names,
        right=right,
        wrong=wrong,
        is_their_prompt=list(ours) == theirs,
        shown=encoder.text(ours),
    )


def _write(one: Format, folder: Path) -> Path:
    for shade, name in ((60, "a.png"), (180, "b.png")):
        PIL.Image.new("RGB", (84, 84), (shade, 90, 120)).save(folder / name)
    path = folder / one.file
    if path.suffix == ".jsonl":
        path.write_text(json.dumps(one.row) + "\n")
        return path
    import pyarrow
    from pyarrow import parquet

    images = [{**i, "bytes": (folder / i["bytes"]).read_bytes()} for i in one.row.get("images", ())]
    row = {**one.row, **({"images": images} if images else {})}
    parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    return path


async def _episode(env: EnvConfig, encoder: ChatEncoder, reply: str) -> Episode:
    request = EpisodeRequest(split="eval", step=0, group=0, member=0, seed=0)
    limits = EpisodeLimits(max_turns=1, deadline_s=30.0)
    with closing(EnvRunner(resolve_env(env), None)) as runner:
        return await run_episode(
            request, env.id, runner, ScriptedPolicy(_Says(reply), encoder), seed=0, limits=limits
        )


def _score(
    names: Sequence[str], kwargs: Mapping[str, Any], episodes: Sequence[Episode]
) -> list[float | str]:
    rewards = [
        RewardConfig(function=name, kwargs=dict(kwargs), weight=1 / len(names)) for name in names
    ]
    with RewardFunctions(rewards) as functions:
        scored = functions.score_all(episodes)
        return [
            str(one) if isinstance(one, RewardError) else round(one.reward, 4) for one in scored
        ]


def table(results: Sequence[tuple[Format, Result]]) -> list[str]:
    """Format the table in docs/data.md as lines."""
    lines = [
        "| from | row | settings | reward | right | wrong | prompt |",
        "|---|---|---|---|---|---|---|",
    ]
    for one, found in results:
        kwargs = {**one.kwargs, **one.translator_kwargs}
        shown = {k: "..." if k == "template" else _in_yaml(v) for k, v in kwargs.items()}
        settings = ", ".join(f"`{name}: {value}`" for name, value in shown.items())
        if one.chat != "auto":
            settings += f", `model.chat: {one.chat}`"
        reward = ", ".join(f"`{name.rpartition('/')[2]}`" for name in found.rewards)
        same = "theirs" if found.is_their_prompt else "another"
        lines.append(
            f"| {one.trainer} | {one.name}: {', '.join(f'`{c}`' for c in one.row)} | "
            f"{settings} | {reward} | {_shown(found.right)} | "
            f"{_shown(found.wrong)} | {same} |"
        )
    return lines


def _in_yaml(value: Any) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True)).removesuffix("...\n").strip()


def _shown(score: float | str) -> str:
    return score if isinstance(score, str) else f"{score:g}"


if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
