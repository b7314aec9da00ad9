"""The agent's environment, read once, checked at the door."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from treadle_api.contract import (
    ENV_MODEL_API_KEY,
    ENV_NAMESPACE,
    ENV_POD_KEY,
    ENV_POD_UID,
    ENV_RETRIES_LEFT,
    ENV_STORE_DSN,
    ENV_STREAM_URL,
    ENV_WORKSPACE,
    WORKSPACE_PATH,
)
from treadle_runtime.failpoints import ENV_FAILPOINTS, Failpoints

ENV_ASSIGNMENT_SECONDS: Final = "TREADLE_ASSIGNMENT_SECONDS"
"""How long the agent waits for its assignment, and then for its Lease, before it gives up (exit 75)."""


class SettingsError(ValueError):
    """The environment does not make an agent; the message names the variables."""


@dataclass(frozen=True, slots=True)
class Settings:
    pod_key: str = field(repr=False)
    pod_uid: str
    namespace: str
    store_dsn: str = field(repr=False)
    stream_url: str | None = field(repr=False)
    model_api_key: str | None = field(repr=False)
    workspace: Path
    assignment_seconds: float
    retries_left: int
    failpoints: Failpoints = field(repr=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> "Settings":
        """Raises SettingsError, naming every variable that is missing."""
        needed = (ENV_POD_KEY, ENV_POD_UID, ENV_NAMESPACE, ENV_STORE_DSN)
        if missing := [name for name in needed if not environ.get(name)]:
            raise SettingsError(f"not set: {', '.join(missing)} (the operator's pod template sets them)")
        try:
            seconds = float(environ.get(ENV_ASSIGNMENT_SECONDS, "60"))
            retries_left = int(environ.get(ENV_RETRIES_LEFT, "0"))
            failpoints = Failpoints.parse(environ.get(ENV_FAILPOINTS, ""))
        except ValueError as error:
            raise SettingsError(str(error)) from error
        return cls(
            pod_key=environ[ENV_POD_KEY],
            pod_uid=environ[ENV_POD_UID],
            namespace=environ[ENV_NAMESPACE],
            store_dsn=environ[ENV_STORE_DSN],
            stream_url=environ.get(ENV_STREAM_URL) or None,
            model_api_key=environ.get(ENV_MODEL_API_KEY) or None,
            workspace=Path(environ.get(ENV_WORKSPACE) or WORKSPACE_PATH),
            assignment_seconds=seconds,
            retries_left=retries_left,
            failpoints=failpoints,
        )
