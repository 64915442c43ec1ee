"""Find the state schema that a job's environment uses for state estimates."""

from functools import lru_cache

from agentrl import user_code
from agentrl.actions.state_estimates import StateSchema
from agentrl.config import EnvConfig
from agentrl.env_registry import find_env, registered_envs
from agentrl.errors import ConfigError, boundary


def state_schema_of(settings: EnvConfig) -> StateSchema | None:
    """Return the schema of `env.state_estimation`; None if replies contain no estimates.

    Raises:
        ConfigError: the environment has no schema, or the configured class does not exist or cannot
            be made.
    """
    chosen = settings.state_estimation
    return None if chosen is False else _schema(settings.id, chosen)


@lru_cache
def _schema(env_id: str, chosen: str | bool) -> StateSchema:
    target = find_env(env_id).state_schema if isinstance(chosen, bool) else chosen
    if target is None:
        own = ", ".join(one.id for one in registered_envs() if one.state_schema is not None)
        raise ConfigError(
            f"env.state_estimation=true: {env_id} has no state schema. It is registered for {own}; "
            "for another environment, set env.state_estimation to module:Class or "
            "path/file.py:Class (docs/environments.md#state-estimation)"
        )
    made = user_code.load(target)
    with boundary(ConfigError, f"env.state_estimation: {target} cannot be constructed"):
        schema: StateSchema = made()
    if missing := [n for n in ("fields", "predicted", "visible", "expected")
                   if not hasattr(schema, n)]:  # fmt: skip
        raise ConfigError(f"env.state_estimation: {target} has no `{missing[0]}`")
    if unknown := set(schema.predicted) - schema.fields.keys():
        raise ConfigError(
            f"env.state_estimation: {target} predicts {sorted(unknown)}, which `fields` lacks"
        )
    return schema
