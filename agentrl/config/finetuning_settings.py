"""Settings for training on fixed data sets: supervised fine-tuning, DPO and reward models."""

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
    """A `*.jsonl`, `*.json`, `*.csv` or `*.parquet` file, a folder, or `owner/name` on the Hub;
    `DATA@SPLIT` selects a split."""
    split: str | None = None
    """Split of the data set; not needed if there is only one."""
    name: str | None = None
    """Configuration (subset) of a data set on the Hub."""
    revision: str | None = None
    """Branch, tag or commit of a data set on the Hub."""
    max_rows: PositiveInt | None = None
    """Maximum number of rows to read; None reads all."""
    image_root: str | None = None
    """Folder that contains the images; None uses the data set's own folder."""
    keys: dict[str, str] = field(default_factory=dict)
    """Column names, where they differ from the defaults: `{prompt: question,
    completion: reply}`. Possible keys: `messages`, `system`, `tools`, `images`, `prompt`,
    `context`, `history`, `completion`, `thinking`, `text`, `labels`, `chosen`, `rejected`,
    `margin`."""

    def validate(self, section: str) -> None:
        """Raise `ConfigError` at the first invalid value."""
        if not self.data:
            raise ConfigError(
                f"{section}.data is not set; set it to a file, a folder or a data set id on the "
                "Hugging Face Hub"
            )
        if self.image_root is not None:
            path_of(self.image_root, f"{section}.image_root")


@dataclass(slots=True, kw_only=True)
class FinetuningConfig:
    """Duration and evaluation of training on a data set; `optim` has the learning rate."""

    train: DataConfig = field(default_factory=DataConfig)
    """Training examples."""
    eval: DataConfig | None = None
    """Examples for the evaluation loss; None uses those set aside by `hold_out`."""
    hold_out: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Fraction of `train` that is set aside for the evaluation loss."""
    epochs: PositiveFloat = 1.0
    """Passes over the examples."""
    steps: StepCount | None = None
    """Number of optimizer steps, instead of `epochs`."""
    batch: BatchSize = 32
    """Examples per optimizer step."""
    max_tokens: TokenCount = 8192
    """Maximum length of a conversation."""
    on_long: Literal["refuse", "skip"] = "refuse"
    """What to do with longer conversations: stop with an error, or skip them."""
    on_bad: Literal["refuse", "skip"] = "refuse"
    """What to do with rows or images that cannot be read: stop with an error, or skip them."""
    eval_every: NonNegativeInt = 0
    """Steps between evaluations; 0 evaluates only before and after training."""
    patience: PositiveInt | None = None
    """Stop after this many evaluations without a lower loss, and keep the best model; None never
    stops early."""

    def validate_section(self, section: str) -> None:
        """Raise `ConfigError` at the first invalid value of the settings shared by all sections."""
        self.train.validate(f"{section}.train")
        if self.eval is not None:
            self.eval.validate(f"{section}.eval")
            if self.hold_out:
                raise ConfigError(
                    f"{section}.hold_out={self.hold_out}: {section}.eval already provides the "
                    "examples for the evaluation loss; remove one of the two settings"
                )
        is_evaluated = self.eval_every and (self.hold_out or self.eval)
        if self.patience is not None and not is_evaluated:
            raise ConfigError(
                f"{section}.patience={self.patience}: requires evaluations during training; set "
                f"{section}.eval_every, and {section}.hold_out or {section}.eval"
            )


@dataclass(slots=True, kw_only=True)
class SFTConfig(FinetuningConfig):
    """Supervised fine-tuning on conversations (`agentrl sft`); `optim` has the learning rate."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        self.validate_section("sft")


@dataclass(slots=True, kw_only=True)
class DPOConfig(FinetuningConfig):
    """Training on pairs of answers (`agentrl dpo`); also has all settings of `sft`."""

    loss: Literal["dpo", "ipo", "simpo"] = "dpo"
    """DPO (arXiv:2305.18290), IPO (arXiv:2310.12036), or SimPO (arXiv:2405.14734), which needs no
    reference model."""
    beta: PositiveFloat = 0.1
    """Scale of the implicit reward: higher values stay closer to the reference. Called tau in IPO;
    the SimPO paper uses 2 to 10."""
    margin: NonNegativeFloat = 0.0
    """Margin by which the implicit reward of the better answer should exceed that of the other:
    gamma in SimPO; no effect on IPO."""
    label_smoothing: Annotated[float, Ge(0), Lt(0.5)] = 0.0
    """Assumed fraction of pairs whose answers are swapped (conservative DPO); no effect on
    IPO."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        self.validate_section("dpo")
        for name in ("margin", "label_smoothing") if self.loss == "ipo" else ():
            if value := getattr(self, name):
                raise ConfigError(f"dpo.{name}={value}: has no effect with dpo.loss=ipo")


@dataclass(slots=True, kw_only=True)
class RewardModelConfig(FinetuningConfig):
    """Training of a reward model (`agentrl train-reward-model`); also has all settings of `sft`."""

    per_turn: bool = False
    """Train a process reward model, which scores every reply, on rows with `labels`, instead of a
    model that scores whole answers, on pairs."""
    center: NonNegativeFloat = 0.0
    """Coefficient of the squared sum of a pair's rewards, which keeps rewards around 0
    (arXiv:2312.09244)."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        self.validate_section("reward_model")
        if self.per_turn and self.center:
            raise ConfigError(
                f"reward_model.center={self.center}: has no effect with reward_model.per_turn"
            )
