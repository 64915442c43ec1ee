"""Question answering as a Gymnasium environment with one step per episode."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any

import gymnasium

from agentrl.data import grading
from agentrl.data.gymnasium_spaces import AnyText, ImageTuple
from agentrl.data.question import Question
from agentrl.data.question_dataset import Dataset
from agentrl.data.reward_inputs import IMAGE_COLUMN, ROW
from agentrl.env_registry import FirstObservation
from agentrl.envs.qa.question_sources import open_source
from agentrl.errors import ConfigError


class QA(gymnasium.Env[dict[str, Any], str]):
    """One question per episode; the action is the answer.

    The observation holds the `text`, with one `<image>` per picture, and the `images`. The reward
    is 1 for a right answer, else 0.

    Args:
        data: `counting`, `geometry` or `arithmetic` for generated questions; a file (.jsonl, .csv,
            .parquet); a folder; a Hugging Face Hub id, with or without `@SPLIT`; or
            `{split: any of these}`.
        split: one of the data's splits; or, with `hold_out`, `train` or `eval`. For geometry and
            arithmetic `train` or `eval`; None draws from all questions.
        hold_out: the share of questions that belong to `eval`, determined by their content; 0 for
            none. None means 0 for data sets and 0.2 for generated questions with splits.
        level: difficulty of generated questions, `easy` or `hard`; None for `easy`.
        pixels: width and height of generated pictures; None for the default size.
        keys: the columns that hold the `problem`, `answer`, `images`, `options`, `messages` or
            `system` message, if they have other names; None if all have these names.
        template: Jinja2 template of the question, with the row's columns, `problem` (also named
            `content` and `prompt`) and `images`; or a file that ends in .jinja. Generated
            questions have only `problem`.
        image_root: the folder with the pictures; None for the data file's own folder.
        on_bad: `refuse` a data set with a bad row, or `skip` bad rows.
        on_long: `refuse` a data set with a prompt that leaves no room for a reply within
            `rollout.max_context`, or `skip` such rows; checked before a job starts.
        skip_rows: indices of rows to leave out, counted from 0.
        name: the configuration (subset) of a Hub data set.
        revision: branch, tag or commit of a Hub data set.
        streaming: whether to fetch a Hub data set's rows one by one; needs `max_rows`.
        max_rows: number of rows to read; None reads all.
        shuffle: seed for shuffling a data set's rows; None keeps their order.
        grade: `exact`, `numeric`, `choice`, or `none` if only a reward function can grade; rows
            then need no answer. With `choice`, questions without options are graded as `numeric` or
            `exact`.
        tolerance: for `numeric`, the maximum error relative to the true number.

    Raises:
        ConfigError: the data is missing or bad, or a setting does not apply to it.
    """

    def __init__(
        self,
        data: str | Mapping[str, str] = "counting",
        *,
        split: str | None = None,
        hold_out: float | None = None,
        level: str | None = None,
        pixels: int | None = None,
        keys: Mapping[str, str | None] | None = None,
        template: str | None = None,
        image_root: str | None = None,
        on_bad: str = "refuse",
        on_long: str = "refuse",
        skip_rows: Sequence[int] = (),
        name: str | None = None,
        revision: str | None = None,
        streaming: bool = False,
        max_rows: int | None = None,
        shuffle: int | None = 0,
        grade: str = "exact",
        tolerance: float = 0.0,
    ) -> None:
        self._grade = grader(grade, tolerance)
        if on_long not in ("refuse", "skip"):
            raise ConfigError(f"on_long={on_long!r}: must be refuse or skip")
        self._source = open_source(
            data,
            split=split,
            hold_out=hold_out,
            level=level,
            pixels=pixels,
            keys=keys,
            template=template,
            image_root=image_root,
            on_bad=on_bad,
            skip_rows=list(skip_rows),
            name=name,
            revision=revision,
            streaming=streaming,
            max_rows=max_rows,
            shuffle=shuffle,
            grade=grade,
        )
        self.observation_space = gymnasium.spaces.Dict({"text": AnyText(), "images": ImageTuple()})
        self.action_space = AnyText()
        self._question: Question | None = None

    @classmethod
    def check_kwargs(cls, **kwargs: Any) -> int | None:
        """Read the data before any episode; return the number of questions, None if unlimited."""
        source = cls(**kwargs)._source
        return len(source) if isinstance(source, Sized) else None

    @classmethod
    def first_observations(cls, **kwargs: Any) -> Iterator[FirstObservation]:
        """Yield each episode's start, to find overlong prompts; nothing for generated questions."""
        source = cls(**kwargs)._source
        if not isinstance(source, Dataset):
            return
        for index, question in source.questions():
            shown = {"text": question.problem, "images": question.images}
            yield FirstObservation(
                row=index, name=question.name, observation=shown, info=_reset_info(question)
            )

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ask the question of this seed, by default of a random seed."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(1 << 31))
        self._question = self._source.question(drawn if seed is None else seed)
        # Other episodes may share the question's images; the caller owns its observation.
        images = tuple(image.copy() for image in self._question.images)
        shown = {"text": self._question.problem, "images": images}
        return shown, _reset_info(self._question)

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Grade the answer, which ends the episode."""
        assert self._question is not None, "reset first"
        question = self._question
        right = self._grade(str(action), question)
        info = _info(question)
        if right is not None:
            info |= {"right": right, "metrics": {"accuracy": float(right)}}
        # The episode is over: there is nothing left to show.
        return {"text": "", "images": ()}, float(right or 0), True, False, info


def _reset_info(question: Question) -> dict[str, Any]:
    """Return the info, the earlier messages, and the row's columns for reward functions."""
    row = {ROW: dict(question.row), IMAGE_COLUMN: question.image_column} if question.row else {}
    system = {} if question.system is None else {"system": question.system}
    earlier = [{"role": message.role, "content": message.text} for message in question.preceding]
    preceding = {"preceding": earlier} if earlier else {}
    return _info(question) | row | system | preceding


def _info(question: Question) -> dict[str, Any]:
    """Return the true answer and the facts, for rewards and players."""
    info: dict[str, Any] = {
        "task": question.name,
        "problem": question.problem,
        "state_key": question.name,
    }
    if question.accepted:
        truth = question.answer if question.ground_truth is None else dict(question.ground_truth)
        info |= {"ground_truth": truth, "accepted": list(question.accepted)}
    lists: dict[str, Sequence[str]] = {"options": question.options, "guesses": question.guesses}
    info |= {name: list(values) for name, values in lists.items() if values}
    if question.thought:
        info["thought"] = question.thought
    if question.slip is not None:
        info["slip"] = list(question.slip)
    if question.facts:
        info["facts"] = copy.deepcopy(dict(question.facts))
    return info


GRADES = ("exact", "numeric", "choice", "none")


def grader(grade: str, tolerance: float) -> Callable[[str, Question], bool | None]:
    """Return the named grading function, which returns None for answers that cannot be graded.

    Raises:
        ConfigError: unknown rule or invalid tolerance.
    """
    if grade not in GRADES:
        raise ConfigError(f"grade={grade!r}: must be one of {', '.join(GRADES)}")
    if not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise ConfigError(f"tolerance={tolerance!r}: must lie in [0, 1)")

    def is_right(answer: str, question: Question) -> bool | None:
        if grade == "none":
            return None
        if grade == "numeric":
            return grading.matches_number(answer, question.accepted, tolerance)
        if grade == "choice":
            return grading.matches_choice(answer, question.accepted, question.options, tolerance)
        return grading.matches_text(answer, question.accepted)

    return is_right
