"""Resolves the model or scripted player that plays a target."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from agentrl import event_loop
from agentrl.config import Config, ModelConfig
from agentrl.errors import ConfigError
from agentrl.policies.models.model_source import is_on_hub, local_folder, resolve_model
from agentrl.policies.open_engine import engine_class, served_model_name
from agentrl.rollout.rollout_plan import RolloutPlan, plan_rollouts
from agentrl.runs.run_folder import RunFolder
from agentrl.training.checkpoints import checkpoint_store
from agentrl.training.command_target import Target
from agentrl.training.plan.job_plan import check_model_play, check_scripted_play

MODEL = "model"


@dataclass(slots=True, kw_only=True, frozen=True)
class ChosenPolicy:
    """The model of a run, configuration or server, or a scripted player."""

    target: Target
    name: str
    """`model`, or the name of a scripted player."""
    checkpoint: Path | None
    """Checkpoint of the target's run; None for the run's final model."""
    is_served: bool
    """True if a server runs the model."""

    @property
    def scripted(self) -> str | None:
        """Name of the scripted player; None for a model."""
        return None if self.name == MODEL else self.name

    @property
    def needs_model(self) -> bool:
        """True if the policy is a model on this machine."""
        return self.name == MODEL and not self.is_served

    @property
    def trained_steps(self) -> int:
        """Number of training steps of the model."""
        run = self.target.run
        if not self.needs_model or run is None:
            return 0
        if self.checkpoint is not None:
            return checkpoint_store.step_of(self.checkpoint)
        return RunFolder(run).load_state().step

    def plan(
        self, config: Config, check_model: Callable[[RolloutPlan], None] = check_model_play
    ) -> RolloutPlan:
        """Plan and check a job that this policy plays; asks a server for its model's name.

        Args:
            config: the target's configuration, with the command's overrides.
            check_model: function that checks and plans a job in which a model plays.

        Raises:
            ConfigError: the configuration names something that does not exist, the checkpoint
                belongs to another model or is damaged, or the server cannot be reached.
            EngineError: the server fails.
        """
        config = config.without_learner()
        if self.scripted is not None:
            plan = plan_rollouts(config)
            check_scripted_play(plan, [self.name])
            return plan
        if not self.is_served:
            config = replace(config, model=self._own_model(config.model))
        plan = plan_rollouts(config)
        check_model(plan)
        model = plan.settings.model
        # A Hub model is compared with its checkpoint once it has been downloaded.
        if self.checkpoint is not None and model.path != "tiny" and not is_on_hub(model):
            start = local_folder(model)
            checkpoint_store.check(self.checkpoint, start, model.lora)
        if not self.is_served:
            return plan
        rollout = plan.settings.rollout
        name = event_loop.run(served_model_name(rollout))
        rollout = replace(rollout, endpoint=replace(rollout.endpoint, model=name))
        return replace(plan, settings=replace(plan.settings, rollout=rollout))

    def _own_model(self, model: ModelConfig) -> ModelConfig:
        """Return the run's initial model if a checkpoint is chosen, else its final model."""
        run = self.target.run
        if run is None:
            return model
        own = run / ("model" if self.checkpoint is None else "start")
        if own.is_dir():
            return replace(model, path=str(own.absolute()))
        if self.checkpoint is None:
            raise ConfigError(
                f"{run} has no final model yet; resume the run, or choose a checkpoint "
                "(--checkpoint last)"
            )
        return model  # the run started from a folder or a Hub model

    def model_folder(self, plan: RolloutPlan, scratch: Path) -> Path | None:
        """Return the folder of the model; None if the policy is not a model on this machine.

        Args:
            plan: plan of this policy.
            scratch: an empty folder for a model that must be exported.

        Raises:
            ConfigError: the checkpoint belongs to another model, or is damaged.
        """
        if not self.needs_model:
            return None
        # Imported late: this loads torch, which takes seconds.
        from agentrl.training.checkpoints.model_export import export_model

        model = plan.settings.model
        start = resolve_model(model, plan.settings.seed, scratch / "start")
        if self.checkpoint is None:
            return start
        # Check again, because a Hub model could not be compared before it was downloaded.
        checkpoint_store.check(self.checkpoint, start, model.lora)
        export_model(self.checkpoint, start, scratch / "model", model.dtype, model.lora)
        return scratch / "model"


def choose_policy(target: Target, name: str = MODEL, checkpoint: str | None = None) -> ChosenPolicy:
    """Choose the policy that plays a target.

    Args:
        target: the target to play.
        name: `model`, or the name of a scripted player.
        checkpoint: checkpoint of the target's run: `best`, `last` or a step; None uses its final
            model.

    Raises:
        ConfigError: a checkpoint is given, but it does not exist, the target is not a run, or a
            server's model plays.
    """
    kept = None
    if checkpoint is not None:
        if target.run is None:
            raise ConfigError(
                f"checkpoint={checkpoint}: only runs have checkpoints; give a run's folder "
                "(runs/NAME)"
            )
        kept = checkpoint_store.by_name(target.run, checkpoint)
    rollout = target.config.rollout
    is_served = name == MODEL and not engine_class(rollout).capabilities.needs_model
    if is_served and checkpoint is not None:
        raise ConfigError(
            f"checkpoint={checkpoint} cannot be combined with rollout.engine={rollout.engine}, "
            "which plays with the server's model; remove one of the two settings"
        )
    return ChosenPolicy(target=target, name=name, checkpoint=kept, is_served=is_served)
