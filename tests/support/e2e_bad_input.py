"""What people get wrong, as objects for a real cluster: what the Run must say, and what mends it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from treadle_api.names import API_VERSION
from treadle_api.reasons import Reason

Object = dict[str, Any]
NOWHERE = "postgresql://nobody:nothing@127.0.0.1:1/none?connect_timeout=2"
"""Where no store answers: the pod's own loopback."""


def config_map(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def secret(name: str, **data: str) -> Object:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def script(name: str, *replies: Object) -> Object:
    return config_map(name, script=json.dumps({"count": "turn", "replies": replies}))


HELLO = script("hello-script", {"text": "hello"})


def agent(name: str, script: str = "hello-script", *, model: Object | None = None, **spec: Any) -> Object:
    """`model` is added to the scripted one; one that names a provider stands in its place."""
    model = model or {}
    if "provider" not in model:
        key = {"name": script, "key": "script"}
        model = {"provider": "scripted", "scriptConfigMapKeyRef": key, **model}
    return _object("Agent", name, model=model, **spec)


def thread(name: str, agent: str) -> Object:
    return _object("Thread", name, agentRef={"name": agent})


def run(name: str, agent: str | None, **spec: Any) -> Object:
    """A Run on a Thread of its own; without `agent` the Thread must be there."""
    said: Object = {"threadRef": {"name": name}, "input": {"text": "hello"}, "retry": {"backoffSeconds": 1}}
    if agent is not None:
        said["threadTemplate"] = {"agentRef": {"name": agent}}
    return _object("Run", name, **{**said, **spec})


def _object(kind: str, name: str, **spec: Any) -> Object:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True)
class Waits:
    """A Run that waits, says for what, and goes on once `cure` is there. Both get the store's real DSN."""

    name: str
    phase: str
    reason: Reason
    says: str
    objects: tuple[Object, ...]
    cure: Callable[[str], tuple[Object, ...]]


@dataclass(frozen=True)
class Fails:
    """A Run that ends with that reason; `receipt`: it had been admitted, so it has one."""

    name: str
    reason: Reason
    says: str
    objects: tuple[Object, ...]
    receipt: bool = True


def _ref(name: str, key: str) -> Object:
    return {"configMapKeyRef": {"name": name, "key": key}}


WAITING = (
    Waits(
        "no-agent",
        "Pending",
        Reason.AGENT_PENDING,
        "Agent late does not exist; create it",
        (run("no-agent", "late"),),
        lambda _: (agent("late"),),
    ),
    Waits(
        "no-thread",
        "Pending",
        Reason.THREAD_PENDING,
        "Thread no-thread does not exist; create it, or set threadTemplate",
        (agent("ready"), run("no-thread", None)),
        lambda _: (thread("no-thread", "ready"),),
    ),
    Waits(
        "no-input",
        "Pending",
        Reason.INPUT_PENDING,
        "ConfigMap late-words with key ask.txt does not exist; create it",
        (agent("ready"), run("no-input", "ready", input=_ref("late-words", "ask.txt"))),
        lambda _: (config_map("late-words", **{"ask.txt": "hello"}),),
    ),
    Waits(
        "no-file",
        "Pending",
        Reason.INPUT_PENDING,
        "ConfigMap late-notes with key may.md does not exist; create it",
        (
            agent("ready"),
            run("no-file", "ready", files=[{"path": "may.md", **_ref("late-notes", "may.md")}]),
        ),
        lambda _: (config_map("late-notes", **{"may.md": "May: 12"}),),
    ),
    Waits(
        "no-script",
        "Pending",
        Reason.AGENT_PENDING,
        "ConfigMap late-script with key script does not exist; create it",
        (agent("speechless", "late-script"), run("no-script", "speechless")),
        lambda _: (script("late-script", {"text": "hello"}),),
    ),
    Waits(
        "no-key",
        "Starting",
        Reason.CONTAINER_CONFIG_ERROR,
        'secret "late-key" not found; create what is missing',
        (
            agent("keyless", model={"apiKeySecretKeyRef": {"name": "late-key", "key": "key"}}),
            run("no-key", "keyless"),
        ),
        lambda _: (secret("late-key", key="not-a-real-key"),),
    ),
    Waits(
        "no-store",
        "Recovering",
        Reason.RETRY_BACKOFF,
        "bring Postgres back, or correct the dsn in the store's Secret",
        (
            secret("lost-store", dsn=NOWHERE),
            agent("lost", storeSecretRef={"name": "lost-store"}),
            run("no-store", "lost", retry={"backoffSeconds": 8, "backoffCapSeconds": 8}),
        ),
        lambda dsn: (secret("lost-store", dsn=dsn),),
    ),
)

ENDING = (
    Fails(
        "graph",
        Reason.GRAPH_NOT_LOADED,
        "module 'no_such_module' cannot be imported",
        (agent("graphless", graph="no_such_module:graph"), run("graph", "graphless")),
    ),
    Fails(
        "bad-script",
        Reason.CONFIGURATION_INVALID,
        "the script is not valid: replies",
        (script("empty-script"), agent("mute", "empty-script"), run("bad-script", "mute")),
    ),
    Fails(
        "image",
        Reason.IMAGE_PULL_FAILED,
        "check the Agent's image and imagePullSecrets",
        (
            agent("imageless", image="localhost/treadle-nowhere:1", imagePullGraceSeconds=5),
            run("image", "imageless"),
        ),
    ),
    Fails(
        "large-input",
        Reason.INPUT_TOO_LARGE,
        "make it smaller or use files",
        # Quotation marks are doubled in JSON: what a ConfigMap still holds, the store does not.
        (
            config_map("words", much='"' * 600_000),
            agent("ready"),
            run("large-input", "ready", input=_ref("words", "much")),
        ),
        receipt=False,
    ),
    Fails(
        "large-file",
        Reason.WORKSPACE_LIMIT_EXCEEDED,
        "workspace.maxFileBytes is 1024",
        (
            config_map("pages", much="x" * 2048),
            agent("narrow", workspace={"maxBytes": 1024}),
            run("large-file", "narrow", files=[{"path": "notes.md", **_ref("pages", "much")}]),
        ),
        receipt=False,
    ),
    Fails(
        "other-agent",
        Reason.THREAD_MISMATCH,
        "belongs to Agent ready, but threadTemplate names late",
        (agent("ready"), thread("other-agent", "ready"), run("other-agent", "late")),
        receipt=False,
    ),
    Fails(
        "not-delivered",
        Reason.COVERAGE_FAILED,
        "missing report.md",
        (
            agent("ready"),
            run("not-delivered", "ready", delivery={"requirement": "All", "artifacts": ["report.md"]}),
        ),
    ),
    *(
        Fails(
            f"model-{status}",
            reason,
            says,
            (
                script(f"script-{status}", {"fail": {"status": status, "message": "no"}}),
                agent(f"model-{status}", f"script-{status}"),
                run(f"model-{status}", f"model-{status}", retry={"backoffLimit": 0}),
            ),
        )
        for status, reason, says in (
            (401, Reason.MODEL_REJECTED, "check the model's API key"),
            (429, Reason.MODEL_UNAVAILABLE, "try later or raise the quota"),
            (500, Reason.MODEL_UNAVAILABLE, "the model's provider failed (HTTP 500)"),
            (408, Reason.MODEL_UNAVAILABLE, "the model did not answer in time"),
        )
    ),
)
