"""Builders of manifests of our kinds; what a test does not name has a good value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

KEY_REF = {"name": "notes", "key": "march.md"}


class _Absent:
    """Marks a field that a case takes away."""


ABSENT = _Absent()


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Object:
    """`base` with `changes` laid over it, objects merged, ABSENT fields removed."""
    result = dict(base)
    for key, value in changes.items():
        if isinstance(value, _Absent):
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def _object(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": "treadle.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def run(name: str = "sales-review", **spec: Any) -> Object:
    base = {"threadRef": {"name": "sales"}, "input": {"text": "Review the notes."}}
    return _object("Run", name, merged(base, spec))


def run_input(**source: Any) -> Object:
    return run(input={"text": ABSENT, **source})


def thread(name: str = "sales", **spec: Any) -> Object:
    return _object("Thread", name, merged({"agentRef": {"name": "reviewer"}}, spec))


def agent(name: str = "reviewer", **spec: Any) -> Object:
    return _object("Agent", name, merged({"model": {"provider": "openai", "name": "gpt-5"}}, spec))


def agent_env(*env: Object) -> Object:
    return agent(podTemplate={"env": list(env)})


@dataclass(frozen=True)
class Case:
    """One object and the answer it gets when it is created.

    `deny` is what the refusal must say, so that it names what to change; `…` stands for anything, as the
    value itself. None: the object is good.
    """

    sentence: str
    object: Object
    deny: str | None = None
    model_sees: bool = True
    """False: the server alone refuses it (strict field names, which the models ignore on purpose)."""

    def __str__(self) -> str:
        return self.sentence
