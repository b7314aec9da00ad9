"""Changes of stored specs that the API server allows or refuses, as data."""

from dataclasses import dataclass
from typing import Any

from support.api_objects import ABSENT, KEY_REF, Object, agent, merged, run, run_input, thread


@dataclass(frozen=True)
class Change:
    """A stored object, what a writer makes of it, and the answer. `deny` as in `Case`."""

    sentence: str
    before: Object
    after: Object
    deny: str | None = None

    def __str__(self) -> str:
        return self.sentence


def _change(sentence: str, before: Object, deny: str | None, **spec: Any) -> Change:
    return Change(sentence, before, merged(before, {"spec": spec}), deny)


_FULL = run(
    threadTemplate={"agentRef": {"name": "reviewer"}},
    files=[{"path": "a", "configMapKeyRef": KEY_REF}],
    config={"recursionLimit": 5},
    retry={"backoffLimit": 1},
    timeouts={"activeSeconds": 60},
    delivery={"requirement": "AtLeastOne"},
    podTemplate={"resources": {"limits": {"cpu": 1}}},
)


def _immutable(field: str, *, comes_or_goes: bool = False) -> str:
    place = "spec" if comes_or_goes else f"spec.{field}"
    return f"{place}: Forbidden: {field} is immutable: create another Run"


SPEC_CHANGES: tuple[Change, ...] = (
    Change("a run's labels change", run(), merged(run(), {"metadata": {"labels": {"a": "b"}}})),
    Change("the same run again", _FULL, _FULL),
    _change("a run's thread changes", run(), _immutable("threadRef"), threadRef={"name": "other"}),
    _change("a run's input changes", run(), _immutable("input"), input={"text": "other"}),
    Change("a run's input changes its kind", run(), run_input(json="{}"), _immutable("input")),
    _change("a run's input goes", run(), "spec.input: Required value", input=ABSENT),
    *(
        _change(f"a run's {field} goes", _FULL, _immutable(field, comes_or_goes=True), **{field: ABSENT})
        for field in ("threadTemplate", "files", "config", "retry", "timeouts", "delivery", "podTemplate")
    ),
    *(
        Change(
            f"a run's {field} comes",
            run(),
            merged(run(), {"spec": {field: _FULL["spec"][field]}}),
            _immutable(field, comes_or_goes=True),
        )
        for field in ("threadTemplate", "files", "config", "retry", "timeouts", "delivery", "podTemplate")
    ),
    _change("a run's limit changes", _FULL, _immutable("config"), config={"recursionLimit": 6}),
    _change("a run's budget changes", _FULL, _immutable("retry"), retry={"backoffLimit": 2}),
    _change("a run's deadline is added", _FULL, _immutable("timeouts"), timeouts={"startSeconds": 5}),
    _change("a run's requirement changes", _FULL, _immutable("delivery"), delivery={"requirement": "None"}),
    _change(
        "a run's cpu is spelt otherwise",
        _FULL,
        _immutable("podTemplate"),
        podTemplate={"resources": {"limits": {"cpu": "1"}}},
    ),
    _change("a thread's queue changes", thread(), None, maxQueuedRuns=1),
    _change(
        "a thread's agent changes",
        thread(),
        "spec.agentRef: Forbidden: agentRef is immutable: create another Thread",
        agentRef={"name": "other"},
    ),
    _change(
        "a thread's id comes",
        thread(),
        "spec: Forbidden: threadID is immutable: create another Thread",
        threadID="x",
    ),
    _change(
        "a thread's id changes",
        thread(threadID="x"),
        "spec.threadID: Forbidden: threadID is immutable: create another Thread",
        threadID="y",
    ),
    _change(
        "a thread's id goes",
        thread(threadID="x"),
        "spec: Forbidden: threadID is immutable: create another Thread",
        threadID=ABSENT,
    ),
    _change("an agent's model changes", agent(), None, model={"name": "other"}),
)
