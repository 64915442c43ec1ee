"""Export the model of a run's checkpoint, for `agentrl merge`."""

import tempfile
from pathlib import Path

from agentrl.config import record_image_sizes
from agentrl.errors import ConfigError
from agentrl.policies.models.model_source import resolve_model
from agentrl.runs.run_folder import MODEL_STEP, RunFolder
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.command_target import open_target


def export_checkpoint(
    run: Path, out: Path, name: str | None = None, dtype: str | None = None, adapter: bool = False
) -> int:
    """Export the model of a run's checkpoint as an ordinary Hugging Face folder.

    Args:
        run: the run's folder.
        out: the folder to write; it appears only once complete.
        name: `best`, `last` or a step; None takes the final model's checkpoint.
        dtype: dtype of the written weights; None takes the run's `model.dtype`.
        adapter: write only the adapters (`model.lora`), for PEFT and vLLM.

    Returns:
        The training step of the checkpoint.

    Raises:
        ConfigError: there is no such run or checkpoint, the checkpoint belongs to another model
            or is damaged, or it has no adapters.
    """
    RunFolder.existing(run)
    config = open_target(run).config
    if adapter and RunFolder(run).command == "agentrl train-reward-model":
        raise ConfigError(
            f"{run}: adapters alone would lack the reward model's head. Leave out --adapter"
        )
    if adapter and not config.model.lora.rank:
        raise ConfigError(
            f"{run}: this model has no adapters (model.lora.rank=0). Leave out --adapter"
        )
    # Use the final model's checkpoint: after an early stop, that is the best, not the last.
    if name is None:
        name = str((RunFolder(run).final_summary() or {}).get(MODEL_STEP, "last"))
    kept = checkpoint_store.by_name(run, name)
    start = run / "start"
    try:
        with tempfile.TemporaryDirectory(prefix="agentrl-") as scratch:
            # The run started from a folder or a Hub model.
            if not start.is_dir():
                start = resolve_model(config.model, config.seed, Path(scratch) / "start")
            checkpoint_store.check(kept, start, config.model.lora)
            out.parent.mkdir(parents=True, exist_ok=True)
            if adapter:
                checkpoint_store.export_adapters(kept, start, out, config.model)
            else:
                dtype = dtype or config.model.dtype
                checkpoint_store.export(kept, start, out, dtype, config.model.lora)
                record_image_sizes(out, config.model)
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {error}") from error
    return checkpoint_store.step_of(kept)
