"""The Run: one execution. Its spec never changes; its end is a receipt."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from treadle_api.contract import FILES_LIMIT
from treadle_api.meta import AgentRef, Column, DnsLabel, KeyRef, Kind, ObjectMeta
from treadle_api.pod import RunPodTemplate
from treadle_api.rules import ApiModel, Atomic, Rule, Unique, immutable
from treadle_api.run_status import RunObjectStatus
from treadle_api.settings import Delivery, Retry, RunConfig, Timeouts

MESSAGES_LIMIT = 131_072
"""Characters of all messages together."""


class ThreadRef(ApiModel):
    """A Thread of the same namespace."""

    name: DnsLabel
    """Name of the Thread."""


class ThreadTemplate(ApiModel):
    """What the Thread is made from when it does not exist."""

    agent_ref: AgentRef
    """The Agent of the new Thread; an existing Thread must have the same one."""


class Role(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"


class InputMessage(ApiModel):
    """One message of the input."""

    role: Role
    """Who speaks: user, assistant or system."""
    content: str = Field(max_length=65_536)
    """What is said."""


_SOURCES = ("messages", "text", "json", "configMapKeyRef")


class RunInput(ApiModel):
    """What the graph is given. Copied at admission: later edits of a ConfigMap change nothing."""

    rules = (
        Rule(
            "[" + ", ".join(f"has(self.{s})" for s in _SOURCES) + "].filter(x, x).size() == 1",
            "set exactly one of messages, text, json and configMapKeyRef",
            holds=lambda i: (
                sum(x is not None for x in (i.messages, i.text, i.json_text, i.config_map_key_ref)) == 1
            ),
        ),
        Rule(
            f"self.map(m, m.content.size()).sum() <= {MESSAGES_LIMIT}",
            f"all messages together may have at most {MESSAGES_LIMIT} characters: put larger input into a"
            " ConfigMap and use configMapKeyRef",
            holds=lambda i: sum(len(m.content) for m in i.messages or ()) <= MESSAGES_LIMIT,
            field="messages",
            inside=True,
        ),
    )

    messages: Annotated[tuple[InputMessage, ...], Field(min_length=1, max_length=64), Atomic] | None = None
    """Messages that are added to the thread."""
    text: str | None = Field(default=None, min_length=1, max_length=65_536)
    """One message of the user."""
    json_text: str | None = Field(default=None, alias="json", min_length=2, max_length=65_536)
    """The graph's input as the text of a JSON object."""
    config_map_key_ref: KeyRef | None = None
    """A ConfigMap that holds the user's message, up to 1 MiB; a key that ends in .json: the graph's input."""


class RunFile(ApiModel):
    """A file that is put into the workspace before the first step."""

    rules = (
        Rule(
            "!self.path.split('/').exists(s, s == '' || s == '.' || s == '..')",
            "use a path relative to the workspace, without a leading or trailing '/', '.' or '..'",
            holds=lambda f: not any(part in ("", ".", "..") for part in f.path.split("/")),
            field="path",
        ),
    )

    path: str = Field(min_length=1, max_length=256)
    """Where it is put, relative to the workspace."""
    config_map_key_ref: KeyRef
    """The ConfigMap that holds its text (data) or bytes (binaryData)."""


def _nested(files: tuple[RunFile, ...]) -> bool:
    paths = [file.path for file in files]
    return any(other.startswith(path + "/") for path in paths for other in paths)


class RunSpec(ApiModel):
    """What to execute. Nothing of it can change: create another Run instead."""

    rules = (
        *immutable(
            ("threadRef", "input"),
            ("threadTemplate", "files", "config", "retry", "timeouts", "delivery", "podTemplate"),
            "create another Run",
        ),
        Rule(
            "self.all(f, !self.exists(g, g.path.startsWith(f.path + '/')))",
            "a path in files is both a file and a folder of another: rename one of them",
            holds=lambda spec: not _nested(spec.files),
            field="files",
            inside=True,
        ),
    )

    thread_ref: ThreadRef
    """The Thread whose turn this is."""
    thread_template: ThreadTemplate | None = None
    """Creates the Thread when it is missing; unset: a missing Thread is waited for and then refused."""
    input: RunInput
    """What the graph is given."""
    files: Annotated[tuple[RunFile, ...], Field(max_length=FILES_LIMIT), Unique("path")] = ()
    """Files that are put into the workspace before the first step, copied at admission."""
    config: RunConfig | None = None
    """LangGraph's configuration of the graph."""
    retry: Retry | None = None
    """What happens after an attempt was lost."""
    timeouts: Timeouts | None = None
    """Deadlines."""
    delivery: Delivery | None = None
    """What must have been delivered."""
    pod_template: RunPodTemplate | None = None
    """Where this Run's pods run; who they are stands on the Agent alone."""


class Run(ApiModel):
    """A Run is one execution of a Thread's agent. It ends by a receipt, never because a pod exited."""

    kind: ClassVar[Kind] = Kind(
        "Run",
        "runs",
        "trun",
        columns=(
            Column("Thread", "string", ".spec.threadRef.name"),
            Column("Phase", "string", ".status.phase"),
            Column("Reason", "string", '.status.conditions[?(@.type=="Succeeded")].reason'),
            Column("Attempt", "integer", ".status.attempt"),
            Column("Delivered", "string", '.status.conditions[?(@.type=="Delivered")].status'),
            Column("Duration", "string", ".status.duration"),
            Column("Age", "date", ".metadata.creationTimestamp"),
            Column("Token", "integer", ".status.ownership.fencingToken", wide=True),
            Column("Pod", "string", ".status.pod.name", wide=True),
            Column("Node", "string", ".status.pod.node", wide=True),
            Column("Step", "integer", ".status.checkpoint.step", wide=True),
            Column("Tokens", "integer", ".status.usage.outputTokens", wide=True),
            Column("Model", "string", ".status.model", wide=True),
        ),
        selectable=(".spec.threadRef.name", ".status.phase"),
    )
    rules = (
        Rule(
            "self.metadata.name.size() <= 52 && !self.metadata.name.contains('.')",
            "metadata.name: a Run's name may have at most 52 characters and no dots (pods are named"
            " <run>-a<attempt>): choose another name",
            holds=lambda r: len(r.metadata.name) <= 52 and "." not in r.metadata.name,
        ),
        Rule("!has(oldSelf.status) || has(self.status)", "status cannot be removed: keep it", field="status"),
    )

    metadata: ObjectMeta = ObjectMeta()
    """Name, namespace, labels and so on."""
    spec: RunSpec
    """What to execute."""
    status: RunObjectStatus = RunObjectStatus()
    """How far it is and how it ended; a projection of the store."""
