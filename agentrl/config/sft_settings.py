"""Settings of supervised fine-tuning."""

from dataclasses import dataclass, field
from typing import Literal

from agentrl.config.bounds import check_not_negative, check_positive, path_of
from agentrl.errors import ConfigError


@dataclass(slots=True, kw_only=True)
class DataConfig:
    """A data set of conversations: a file, a folder, or an id on the Hugging Face Hub."""

    data: str = ""
    """`*.jsonl`, `*.json`, `*.csv`, `*.parquet`, a folder, or `owner/name`; `DATA@SPLIT` names the
    split."""
    split: str | None = None
    """Of a data set with several."""
    name: str | None = None
    """Configuration (subset) of a data set of the Hub."""
    revision: str | None = None
    """Branch, tag or commit of a data set of the Hub."""
    max_rows: int | None = None
    """Read only the first rows."""
    image_root: str | None = None
    """Folder that contains the images; None for the data's own."""

    def validate(self, section: str) -> None:
        """Raise `ConfigError` at the first invalid value."""
        if not self.data:
            raise ConfigError(f"{section}.data: name a file, a folder or an id on the Hub")
        if self.max_rows is not None and self.max_rows < 1:
            raise ConfigError(f"{section}.max_rows={self.max_rows}: must be at least 1")
        if self.image_root is not None:
            path_of(self.image_root, f"{section}.image_root")


@dataclass(slots=True, kw_only=True)
class SFTConfig:
    """Supervised fine-tuning on conversations (`agentrl sft`); `optim` has its learning rate."""

    train: DataConfig = field(default_factory=DataConfig)
    """Conversations to learn from."""
    eval: DataConfig | None = None
    """Conversations for the evaluation loss; None uses those that `hold_out` keeps back."""
    hold_out: float = 0.0
    """Fraction of `train` that is kept back for the evaluation loss."""
    epochs: float = 1.0
    """Passes over the conversations."""
    steps: int | None = None
    """Optimizer steps, in place of `epochs`."""
    batch: int = 32
    """Conversations per optimizer step."""
    max_tokens: int = 8192
    """Longest conversation."""
    on_long: Literal["refuse", "skip"] = "refuse"
    """What happens if conversations are longer."""
    on_bad: Literal["refuse", "skip"] = "refuse"
    """What happens if rows cannot be read, or their images."""
    eval_every: int = 0
    """Steps between evaluations; 0 evaluates before and after training only."""
    patience: int | None = None
    """Stop after this many evaluations without a lower loss, and keep the best model; None never
    stops early."""

    def validate(self) -> None:
        """Raise `ConfigError` at the first invalid value."""
        check_positive("sft", self, "epochs", "batch", "max_tokens")
        check_not_negative("sft", self, "hold_out", "eval_every")
        self.train.validate("sft.train")
        if self.hold_out >= 1:
            raise ConfigError(f"sft.hold_out={self.hold_out}: must be below 1")
        if self.steps is not None and self.steps < 1:
            raise ConfigError(f"sft.steps={self.steps}: must be at least 1")
        if self.eval is not None:
            self.eval.validate("sft.eval")
            if self.hold_out:
                raise ConfigError(
                    f"sft.hold_out={self.hold_out}: sft.eval names the conversations for the "
                    "evaluation loss; leave out one of the two"
                )
        if self.patience is None:
            return
        if self.patience < 1:
            raise ConfigError(f"sft.patience={self.patience}: must be at least 1")
        if not self.eval_every or not (self.hold_out or self.eval):
            raise ConfigError(
                f"sft.patience={self.patience}: needs evaluations: set sft.eval_every, and "
                "sft.hold_out or sft.eval"
            )
