"""A trained reward model as a reward function that runs in the process that scores episodes."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentrl import config as configuration
from agentrl.config import ModelConfig
from agentrl.data.chat_messages import ChatMessage, check_roles
from agentrl.data.tables import BadRow
from agentrl.errors import ConfigError
from agentrl.policies.chat.encode_messages import encode_messages
from agentrl.policies.models.model_loading import SCORE, load_reward_model
from agentrl.policies.models.stored_weights import open_files
from agentrl.policies.open_encoder import open_encoder
from agentrl.types import IMAGE, Prompt


class TrainedReward:
    """Batch function that scores conversations with a model from `agentrl train-reward-model`.

    Each scoring process loads the model when it scores its first episode. Serve large models from a
    single process (`agentrl serve-reward`).

    Args:
        path: a run of `agentrl train-reward-model`, or a model's folder.
        dtype: `float32` or `bfloat16`.
        device: device such as `cpu` or `cuda`; engines and the learner may need the GPU memory.
        image_size: overrides the run's `model.image_size`.
        max_pixels: overrides the run's `model.max_pixels`.

    Raises:
        ConfigError: `path` is neither a run nor a model, or the model is not a reward model.
    """

    max_batch_size = 8
    reads_images = True

    def __init__(
        self,
        path: str,
        dtype: str = "float32",
        device: str = "cpu",
        image_size: Sequence[int] | None = None,
        max_pixels: int | None = None,
    ) -> None:
        if dtype not in ("float32", "bfloat16"):
            raise ConfigError(f"rewards: dtype must be float32 or bfloat16, got {dtype!r}")
        run = Path(path).expanduser()
        self._folder, settings = _model_in(run), ModelConfig()
        if self._folder != run and (run / "config.yaml").is_file():
            settings = configuration.load(run / "config.yaml").model
        if image_size is not None:
            settings.image_size = [*image_size]
        settings.max_pixels = max_pixels or settings.max_pixels
        self._dtype, self._device = dtype, device
        self._encoder = open_encoder(settings, self._folder)
        self._model: Any = None
        self._lock = threading.Lock()

    def __call__(self, reward_inputs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return one row per episode; `{"error": why}` for a conversation that cannot be read."""
        rows: list[dict[str, Any]] = []
        prompts: list[Prompt] = []
        for inputs in reward_inputs:
            try:
                prompts.append(self._conversation(inputs))
                rows.append({})
            except (BadRow, ValueError) as error:
                rows.append({"error": str(error)})
        rewards = iter(self._rewards(prompts) if prompts else ())
        return [row or {"overall": next(rewards)} for row in rows]

    def _conversation(self, inputs: Mapping[str, Any]) -> Prompt:
        # OpenRLHF sends the rendered text.
        if "chat_messages" not in inputs:
            return Prompt(token_ids=self._encoder.rendered_ids(inputs["chat_text"]))
        if not all(isinstance(one["content"], str) for one in inputs["chat_messages"]):
            raise BadRow("a message's content is not text")
        messages = [
            ChatMessage(
                role=message["role"],
                text=message["content"],
                images=(None,) * message["content"].count(IMAGE)
                if message["role"] != "assistant"
                else (),
            )
            for message in inputs["chat_messages"]
        ]
        check_roles(messages)
        images = inputs.get("screens") or inputs.get("images") or []
        count = sum(len(message.images) for message in messages)
        if len(images) != count:
            raise BadRow(
                f"the conversation has {count} images, but {len(images)} were sent; set "
                "images=true in the kwargs of the reward that calls this server"
            )
        read = encode_messages(messages, images, self._encoder)
        return Prompt(token_ids=read.token_ids, images=read.images)

    def _rewards(self, prompts: Sequence[Prompt]) -> list[float]:
        import torch

        # Several threads may score at the same time with the same model.
        with self._lock:
            if self._model is None:
                self._model = load_reward_model(
                    self._folder, dtype=self._dtype, device=self._device
                )
        model, adapter = self._model, self._encoder.model_adapter
        lengths = torch.tensor([len(prompt.token_ids) for prompt in prompts])
        token_ids = torch.zeros(len(prompts), int(lengths.max()), dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            token_ids[row, : len(prompt.token_ids)] = torch.tensor(prompt.token_ids)
        mask = torch.arange(token_ids.shape[1]) < lengths[:, None]
        images = [image for prompt in prompts for image in prompt.images]
        inputs = adapter.forward_inputs(token_ids, mask, images)
        with torch.no_grad():
            placed = {name: value.to(self._device) for name, value in inputs.items()}
            hidden = model.base_model(**placed, use_cache=False)[0]
            last = hidden[torch.arange(len(prompts)), lengths.to(hidden.device) - 1]
            rewards: list[float] = model.score(last).squeeze(-1).float().tolist()
        return rewards


def _model_in(path: Path) -> Path:
    """Return the reward model's folder: `path` itself or, for a run, the run's model."""
    folder = path / "model" if (path / "model" / "config.json").is_file() else path
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"rewards: path={path} is neither a model's folder nor a run of agentrl "
            "train-reward-model that has exported its model"
        )
    if SCORE not in open_files(folder):
        raise ConfigError(f"rewards: path={path} is not a reward model, as it has no {SCORE}")
    return folder
