"""Everything the operator is told from outside: environment variables, read once, checked, frozen."""

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from treadle_api.contract import ENV_NAMESPACE, ENV_POD_NAME, ENV_STORE_DSN, ENV_STREAM_URL
from treadle_operator.failpoints import Failpoints


class SettingsError(ValueError):
    """A variable is missing or unusable; the message names it and says what it should be."""


@dataclass(frozen=True, slots=True)
class Settings:
    store_dsn: str = field(repr=False)
    """TREADLE_STORE_DSN: Postgres URL of the operator's role."""
    stream_url: str | None = field(default=None, repr=False)
    """TREADLE_STREAM_URL: Redis URL of a user that may manage ACLs; unset: no live stream, no nudges."""
    namespace: str = "treadle-system"
    """TREADLE_NAMESPACE: where the operator itself runs; holds the leader Lease."""
    watch_namespaces: tuple[str, ...] = ()
    """TREADLE_WATCH_NAMESPACES, comma separated; empty: the whole cluster."""
    kubeconfig: str | None = None
    """TREADLE_KUBECONFIG: a file; unset: the pod's ServiceAccount."""
    kube_context: str | None = None
    """TREADLE_KUBE_CONTEXT: a context of that file."""
    identity: str = ""
    """TREADLE_POD_NAME or the host's name, with a random end: who holds the leader Lease."""
    leader_lease: str = "treadle-operator"
    """TREADLE_LEADER_LEASE: name of the leader Lease; empty: no election (a single operator, tests)."""
    http_host: str = "0.0.0.0"  # noqa: S104 - the kubelet's probes and Prometheus come from outside the pod
    """TREADLE_HTTP_HOST"""
    http_port: int = 8080
    """TREADLE_HTTP_PORT: /metrics, /readyz, /healthz."""
    passes: int = 32
    """TREADLE_PASSES: passes at the same time."""
    store_pool: int = 8
    """TREADLE_STORE_POOL: connections to Postgres at most (one more watches over assignments)."""
    default_image: str = ""
    """TREADLE_AGENT_IMAGE: image of Agents that name none."""
    stop_grace: float = 20.0
    """TREADLE_STOP_GRACE_SECONDS: how long running passes may take to end after SIGTERM."""
    log_level: str = "INFO"
    """TREADLE_LOG_LEVEL"""
    failpoints: Failpoints = field(default_factory=Failpoints, repr=False)
    """TREADLE_FAILPOINTS: for tests, see failpoints.py."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Raises SettingsError."""
        env = os.environ if environ is None else environ
        dsn = env.get(ENV_STORE_DSN, "")
        if not dsn:
            raise SettingsError(f"{ENV_STORE_DSN} is not set: give the Postgres URL of the operator's role")
        try:
            failpoints = Failpoints.parse(env.get("TREADLE_FAILPOINTS", ""))
        except ValueError as error:
            raise SettingsError(str(error)) from error
        name = env.get(ENV_POD_NAME) or socket.gethostname()
        return cls(
            store_dsn=dsn,
            stream_url=env.get(ENV_STREAM_URL) or None,
            namespace=env.get(ENV_NAMESPACE) or "treadle-system",
            watch_namespaces=_names(env.get("TREADLE_WATCH_NAMESPACES", "")),
            kubeconfig=env.get("TREADLE_KUBECONFIG") or None,
            kube_context=env.get("TREADLE_KUBE_CONTEXT") or None,
            identity=f"{name}_{uuid.uuid4()}",
            leader_lease=env.get("TREADLE_LEADER_LEASE", "treadle-operator"),
            http_host=env.get("TREADLE_HTTP_HOST") or "0.0.0.0",  # noqa: S104 - as above
            http_port=_number(env, "TREADLE_HTTP_PORT", 8080, 0, 65_535),
            passes=_number(env, "TREADLE_PASSES", 32, 1, 1000),
            store_pool=_number(env, "TREADLE_STORE_POOL", 8, 2, 100),
            default_image=env.get("TREADLE_AGENT_IMAGE", ""),
            stop_grace=_number(env, "TREADLE_STOP_GRACE_SECONDS", 20, 1, 600),
            log_level=_level(env.get("TREADLE_LOG_LEVEL", "INFO")),
            failpoints=failpoints,
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))


def _number(env: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = env.get(name, "")
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        raise SettingsError(f"{name}={text!r} is not a whole number") from None
    if not low <= value <= high:
        raise SettingsError(f"{name}={value} is not between {low} and {high}")
    return value


def _level(text: str) -> str:
    level = text.upper()
    if level not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
        raise SettingsError(f"TREADLE_LOG_LEVEL={text!r} is not one of DEBUG, INFO, WARNING, ERROR")
    return level
