"""A question and its answer, as a Gymnasium environment of one step."""

import copy
from collections.abc import Mapping, Sequence, Sized
from typing import Any

import gymnasium

from agentrl.data.observation_spaces import AnyText, Pictures
from agentrl.data.tasks import Task
from agentrl.envs.qa.grades import grader
from agentrl.envs.qa.sources import open_source


class QA(gymnasium.Env[dict[str, Any], str]):
    """One question an episode; the action is the answer.

    The observation holds the `text`, in which `<image>` stands once for each picture, and the
    `images`. The reward is 1 for a right answer, else 0.

    Args:
        data: `counting`, `geometry` or `arithmetic`, drawn here; a file (.jsonl, .csv, .parquet); a
            folder or an id of the Hugging Face hub; or `{split: any of these}`.
        split: one of the data's own splits; or, with `hold_out`, `train` or `eval`. Of geometry and
            arithmetic `train` or `eval`; None draws from all questions.
        hold_out: the share of questions that belong to `eval`, told by what they ask; 0 for none.
            None is 0 of a data set, and 0.2 of what is drawn in splits.
        level: of what is drawn here, `easy` or `hard`; None for `easy`.
        pixels: of the sides of counting's and geometry's pictures; None for their own size.
        keys: the columns that hold `problem`, `answer`, `images`, `options` or `messages`, where
            they are called otherwise.
        template: Jinja2 for the words of a question, with the row's columns and `problem`; or a
            file that ends in .jinja.
        image_root: the folder that holds the pictures; None for the data file's own.
        on_bad: `refuse` a data set if a row is bad, or `skip` such rows.
        shuffle: names the order of a data set's rows; None keeps them as they stand.
        grade: `exact`, `numeric`, `choice`, or `none` where a reward function alone knows.
        tolerance: of `numeric`, as a share of the true number.

    Raises:
        ConfigError: the data is not there, or bad, or a setting means nothing to it.
    """

    def __init__(
        self,
        data: str | Mapping[str, str] = "counting",
        *,
        split: str | None = None,
        hold_out: float | None = None,
        level: str | None = None,
        pixels: int | None = None,
        keys: Mapping[str, str] | None = None,
        template: str | None = None,
        image_root: str | None = None,
        on_bad: str = "refuse",
        shuffle: int | None = 0,
        grade: str = "exact",
        tolerance: float = 0.0,
    ) -> None:
        self._grade = grader(grade, tolerance)
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
            shuffle=shuffle,
            grade=grade,
        )
        self.observation_space = gymnasium.spaces.Dict({"text": AnyText(), "images": Pictures()})
        self.action_space = AnyText()
        self._task: Task | None = None

    @classmethod
    def check_kwargs(cls, **kwargs: Any) -> int | None:
        """See whether the data is there and good, before anything is played.

        Returns:
            How many questions there are; None where they are drawn without an end.

        Raises:
            ConfigError: as the constructor.
        """
        source = cls(**kwargs)._source
        return len(source) if isinstance(source, Sized) else None

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Ask the question of this seed; without one, a question drawn by chance."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(1 << 31))
        self._task = self._source.task(drawn if seed is None else seed)
        # Those of the task may be siblings' as well; an observation is its reader's own.
        images = tuple(image.copy() for image in self._task.images)
        shown = {"text": self._task.problem, "images": images}
        return shown, _info(self._task)

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Answer; the episode is over."""
        assert self._task is not None, "reset first"
        task = self._task
        right = self._grade(str(action), task)
        info = _info(task)
        if right is not None:
            info |= {"right": right, "metrics": {"accuracy": float(right)}}
        # The question is answered: there is nothing more to see.
        return {"text": "", "images": ()}, float(right or 0), True, False, info


def _info(task: Task) -> dict[str, Any]:
    """The truth, for rewards and players."""
    info: dict[str, Any] = {
        "task": task.name,
        "problem": task.problem,
        "ground_truth": task.answer,
        "accepted": list(task.accepted),
        "state_key": task.name,
    }
    lists: dict[str, Sequence[str]] = {"options": task.options, "guesses": task.guesses}
    info |= {name: list(values) for name, values in lists.items() if values}
    if task.thought:
        info["thought"] = task.thought
    if task.slip is not None:
        info["slip"] = list(task.slip)
    if task.facts:
        info["facts"] = copy.deepcopy(dict(task.facts))
    return info
