"""Settings of training on fixed data sets: supervised, on preferences, of reward models."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Lt

from agentrl.config.bounds import (
    BatchSize,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    StepCount,
    TokenCount,
)
from agentrl.errors import ConfigError
from agentrl.files import path_of


@dataclass(slots=True, kw_only=True)
class DataConfig:
    """A data set: a file, a folder, or an id on the Hugging Face Hub."""

    data: str = ""
    """`*.jsonl`, `*.json`, `*.csv`, `*.parquet`, a folder, or `owner/name`; `DATA@SPLIT` names the
    split."""
    split: str | None = None
    """Split of the data set; not needed if there is only one."""
    name: str | None = None
    """Configuration (subset) of a data set of the Hub."""
    revision: str | None = None
    """Branch, tag or commit of a data set of the Hub."""
    max_rows: PositiveInt | None = None
    """Read only the first rows."""
    image_root: str | None = None
    """Folder that contains the images; None for the data's own."""
    keys: dict[str, str] = field(default_factory=dict)
    """Names of columns by content, where they differ from the usual ones: `{prompt: question,
    completion: reply}`. Contents: `messages`, `system`, `tools`, `images`, `prompt`, `context`,
    `history`, `completion`, `thinking`, `text`, `labels`, `chosen`, `rejected`, `margin`."""

    def validate(self, section: str) -> None:
        """Raise `ConfigError` at the first invalid value."""
        if not self.data:
            raise ConfigError(f"{section}.data: name a file, a folder or an id on the Hub")
        if self.image_root is not None:
            path_of(self.image_root, f"{section}.image_root")


@dataclass(slots=True, kw_only=True)
class FinetuningConfig:
    """How long to train on a data set, and how to evaluate; `optim` has the learning rate."""

    train: DataConfig = field(default_factory=DataConfig)
    """Examples to learn from."""
    eval: DataConfig | None = None
    """Examples for the evaluation loss; None uses those that `hold_out` keeps back."""
    hold_out: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Fraction of `train` that is kept back for the evaluation loss."""
    epochs: PositiveFloat = 1.0
    """Passes over the examples."""
    steps: StepCount | None = None
    """Optimizer steps, in place of `epochs`."""
    batch: BatchSize = 32
    """Examples per optimizer step."""
    max_tokens: TokenCount = 8192
    """Longest conversation."""
    on_long: Literal["refuse", "skip"] = "refuse"
    """Handling of longer conversations: stop with an error, or leave them out."""
    on_bad: Literal["refuse", "skip"] = "refuse"
    """Handling of rows or images that cannot be read: stop with an error, or leave them out."""
    eval_every: NonNegativeInt = 0
    """Steps between evaluations; 0 evaluates before and after training only."""
    patience: PositiveInt | None = None
    """Stop after this many evaluations without a lower loss, and keep the best model; None never
    stops early."""

    def validate_section(self, section: str) -> None:
        """Raise `ConfigError` at the first invalid value of those that all sections have."""
        self.train.validate(f"{section}.train")
        if self.eval is not None:
            self.eval.validate(f"{section}.eval")
            if self.hold_out:
                raise ConfigError(
                    f"{section}.hold_out={self.hold_out}: {section}.eval names the examples for "
                    "the evaluation loss; leave out one of the two"
                )
        is_evaluated = self.eval_every and (self.hold_out or self.eval)
        if self.patience is not None and not is_evaluated:
            raise ConfigError(
                f"{section}.patience={self.patience}: needs evaluations: set {section}.eval_every, "
                f"and {section}.hold_out or {section}.eval"
            )


@dataclass(slots=True, kw_only=True)
class SFTConfig(FinetuningConfig):
    """Supervised fine-tuning on conversations (`agentrl sft`); `optim` has its learning rate."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        self.validate_section("sft")


@dataclass(slots=True, kw_only=True)
class DPOConfig(FinetuningConfig):
    """Training on pairs of answers (`agentrl dpo`); has all settings of `sft`, too."""

    loss: Literal["dpo", "ipo", "simpo"] = "dpo"
    """DPO (arXiv:2305.18290), IPO (arXiv:2310.12036), or SimPO (arXiv:2405.14734), which needs no
    reference model."""
    beta: PositiveFloat = 0.1
    """Scale of the implicit reward: higher values stay closer to the reference. IPO's tau; SimPO's
    paper uses 2 to 10."""
    margin: NonNegativeFloat = 0.0
    """By how much the implicit reward of the better answer should exceed the other's: gamma of
    SimPO; has no effect on IPO."""
    label_smoothing: Annotated[float, Ge(0), Lt(0.5)] = 0.0
    """Assumed fraction of pairs whose answers are swapped (conservative DPO); has no effect on
    IPO."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        self.validate_section("dpo")
        for name in ("margin", "label_smoothing") if self.loss == "ipo" else ():
            if value := getattr(self, name):
                raise ConfigError(f"dpo.{name}={value}: has no effect with dpo.loss=ipo")


@dataclass(slots=True, kw_only=True)
class RewardModelConfig(FinetuningConfig):
    """Training a reward model (`agentrl train-reward-model`); has all settings of `sft`, too."""

    per_turn: bool = False
    """Learn a reward of every reply from rows with `labels` (a process reward model), in place of
    one of whole answers from pairs."""
    center: NonNegativeFloat = 0.0
    """Coefficient of the squared sum of a pair's rewards, which keeps them around 0
    (arXiv:2312.09244)."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        self.validate_section("reward_model")
        if self.per_turn and self.center:
            raise ConfigError(
                f"reward_model.center={self.center}: has no effect with reward_model.per_turn"
            )
