"""What operator and agent pod agree on outside the store: environment, exit codes, event types, limits."""

from enum import IntEnum
from typing import Final


class ExitCode(IntEnum):
    """How the keeper ends. Nothing but the store's answer decides what a run's end was."""

    ANSWERED = 0
    """The store has the answer: settled or parked."""
    TRY_AGAIN = 75
    """Another attempt is wanted: infrastructure, drain, a lost connection."""
    CONFIGURATION = 78
    """It will not get better by itself: an unreadable graph reference, an incompatible checkpoint."""
    FENCED = 86
    """The fencing token is no longer ours: nothing was written, nothing may be."""


# Environment of the keeper's container.
ENV_POD_KEY: Final = "TREADLE_POD_KEY"
ENV_POD_NAME: Final = "TREADLE_POD_NAME"
ENV_POD_UID: Final = "TREADLE_POD_UID"
ENV_NAMESPACE: Final = "TREADLE_NAMESPACE"
ENV_STORE_DSN: Final = "TREADLE_STORE_DSN"
ENV_STREAM_URL: Final = "TREADLE_STREAM_URL"
ENV_MODEL_API_KEY: Final = "TREADLE_MODEL_API_KEY"
ENV_WORKSPACE: Final = "TREADLE_WORKSPACE"
ENV_DRAIN_SECONDS: Final = "TREADLE_DRAIN_SECONDS"
ENV_RETRIES_LEFT: Final = "TREADLE_RETRIES_LEFT"
"""How many more attempts retry.backoffLimit grants if this one fails by itself; 0: it is the last."""

WORKSPACE_PATH: Final = "/workspace"
TERMINATION_MESSAGE_PATH: Final = "/dev/termination-log"
"""Where the agent leaves one JSON line `{"reason": ..., "message": ...}` when it ends without an answer."""

RESERVED_EVENT_TYPES: Final = frozenset({"run.end", "run.delivery"})
"""Only `settle_run` and `settle_orphan` write these."""

INPUT_BYTES_LIMIT: Final = 1_048_576
"""Input of one run, as stored, in bytes (a ConfigMap's own limit)."""
FILES_LIMIT: Final = 64
"""Files that one Run may put into the workspace."""
EVENT_BYTES_LIMIT: Final = 262_144
"""Payload of one event, as JSON, in bytes."""
BLOB_BYTES_LIMIT: Final = 33_554_432
"""One workspace file, in bytes."""
MESSAGE_LIMIT: Final = 512
"""Characters of a condition's message."""
