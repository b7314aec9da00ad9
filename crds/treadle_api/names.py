"""Names that two programs must spell alike: group, labels, child objects, Redis keys.

Nothing here is configuration. A child's name is a pure function of its parent, so that every create is
idempotent and a restarted operator finds what its predecessor made.
"""

import hashlib
from typing import Final

GROUP: Final = "treadle.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

FINALIZER: Final = f"{GROUP}/settle"
FIELD_MANAGER: Final = "treadle-operator"
COMPONENT: Final = "treadle-operator"

LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "treadle"
LABEL_RUN: Final = f"{GROUP}/run"
"""On Pods and Leases: the uid of the Run (names may be longer than a label value allows)."""
LABEL_RUN_NAME: Final = f"{GROUP}/run-name"
LABEL_AGENT: Final = f"{GROUP}/agent"
LABEL_ATTEMPT: Final = f"{GROUP}/attempt"
ANNOTATION_POD: Final = f"{GROUP}/pod"
"""On a Lease: the name of the one pod that may take it (03-ownership, step 3)."""

AGENT_SERVICE_ACCOUNT: Final = "treadle-agent"
STORE_SECRET: Final = "treadle-store"  # noqa: S105 - an object's name
"""Secret of an agent namespace: key `dsn`, a Postgres URL of the agent role."""
STREAM_SECRET: Final = "treadle-stream"  # noqa: S105 - an object's name
"""Secret of an agent namespace: key `url`, a Redis URL without credentials."""

_NAME_LIMIT = 63
_DIGEST_LENGTH = 8


def bounded(name: str, limit: int = _NAME_LIMIT) -> str:
    """`name`, or its beginning and a digest of the whole where it is longer than `limit` characters."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: limit - _DIGEST_LENGTH - 1].rstrip('-.')}-{digest}"


def pod_name(run_name: str, attempt: int) -> str:
    """The pod of one attempt: `<run>-a<n>`; attempts count from 1."""
    return bounded(f"{run_name}-a{attempt}")


def lease_name(run_uid: str) -> str:
    """The Kubernetes Lease of a run: one for all its attempts."""
    return f"run-{run_uid}"


def stream_key(namespace: str, thread_id: str, log: str) -> str:
    """The Redis stream of one thread; `log` changes with the store's incarnation (06-stream)."""
    return f"treadle:{namespace}:{thread_id}:{log}:live"


def token_key(namespace: str, thread_id: str) -> str:
    """The Redis key that holds the thread's current fencing token, written by the operator alone."""
    return f"treadle:{namespace}:{thread_id}:token"


def nudge_channel(namespace: str) -> str:
    """The lossy Redis channel by which a holder or the gateway wakes the operator."""
    return f"treadle:{namespace}:nudge"


def stream_user(thread_id: str, token: int) -> str:
    """The Redis ACL user of one fencing token."""
    return f"treadle-{thread_id}-{token}"


def stream_password(fence_key: bytes) -> str:
    """The password of `stream_user`, derived so that it travels nowhere: both sides know the fence key."""
    return hashlib.sha256(b"treadle stream password\0" + fence_key).hexdigest()
