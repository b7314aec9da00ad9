"""Run > Agent > built-in: what a Run really executes with, worked out once, at admission.

The shell reads the ConfigMap keys that `references` names and hands their contents to `prepare`; what comes
out is stored with the run, and later edits of Agent or ConfigMap change nothing. Nothing is guessed: what is
missing or does not fit is a `Problem` whose message says what to change.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from treadle_api.agent import AgentSpec
from treadle_api.contract import INPUT_BYTES_LIMIT
from treadle_api.meta import KeyRef
from treadle_api.reasons import Reason
from treadle_api.records import Json
from treadle_api.resolved import (
    ResolvedDelivery,
    ResolvedLease,
    ResolvedModel,
    ResolvedRetry,
    ResolvedRun,
    ResolvedTimeouts,
    ResolvedWorkspace,
)
from treadle_api.run import RunSpec
from treadle_operator.lifecycle.world import Prepared, PreparedFile, Problem

Contents = Mapping[tuple[str, str], str | bytes]
"""(ConfigMap, key) -> its text (data) or bytes (binaryData); what does not exist is not in it."""
_M = TypeVar("_M", ResolvedDelivery, ResolvedRetry, ResolvedTimeouts, ResolvedWorkspace)


class _Unresolved(Exception):
    """Carries the first problem out of the depth of the resolution."""

    def __init__(self, reason: str, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.problem = Problem(reason, message, final)


def references(run: RunSpec, agent: AgentSpec) -> tuple[KeyRef, ...]:
    """Every ConfigMap key that admission reads, each once."""
    named = [file.config_map_key_ref for file in run.files]
    if run.input.config_map_key_ref is not None:
        named.append(run.input.config_map_key_ref)
    return tuple(dict.fromkeys((*named, *agent_references(agent))))


def agent_references(agent: AgentSpec) -> tuple[KeyRef, ...]:
    """The ConfigMap keys that the Agent itself refers to."""
    named = [agent.model.script_config_map_key_ref]
    if agent.instructions is not None:
        named.append(agent.instructions.config_map_key_ref)
    return tuple(ref for ref in named if ref is not None)


def prepare(run: RunSpec, agent: AgentSpec, contents: Contents) -> Prepared | Problem:
    """What `admit_run` stores, or the first thing that stands against it."""
    try:
        settings = resolve(run, agent, contents)
        given = _input(run, contents)
        files = _files(run, settings.workspace, contents)
    except _Unresolved as unresolved:
        return unresolved.problem
    size = len(json.dumps(given, ensure_ascii=False).encode())
    if size > INPUT_BYTES_LIMIT:
        told = f"input is {size} bytes, the store takes {INPUT_BYTES_LIMIT}; make it smaller or use files"
        return Problem(Reason.INPUT_TOO_LARGE, told, final=True)
    return Prepared(spec_hash(run), settings.model_dump(mode="json"), given, files)


def check_agent(agent: AgentSpec, contents: Contents) -> Problem | None:
    """The first thing wrong with the Agent alone, as its Ready condition tells it."""
    missing = [r for r in agent_references(agent) if (r.name, r.key) not in contents]
    if missing:
        told = f"ConfigMap {missing[0].name} with key {missing[0].key} is missing; create it"
        return Problem(Reason.CONFIG_MAP_NOT_FOUND, told)
    try:
        _model(agent, contents)
        _check(ResolvedRun(workspace=_workspace(agent), lease=_lease(agent)))
    except _Unresolved as unresolved:
        return Problem(Reason.CONFIGURATION_INVALID, unresolved.problem.message)
    return None


def resolve(run: RunSpec, agent: AgentSpec, contents: Contents) -> ResolvedRun:
    """The run's settings with no field unset. Raises inside this module only (see `prepare`)."""
    defaults = agent.run_defaults
    config = [c for c in (run.config, defaults.config if defaults else None) if c is not None]
    limit = next((c.recursion_limit for c in config if c.recursion_limit is not None), None)
    tools = agent.tools.builtin if agent.tools is not None else None
    chosen: Json = {
        "graph": agent.graph,
        "recursion_limit": limit,
        "tools": None if tools is None else tuple(tool.value for tool in tools),
    }
    settings = ResolvedRun(
        **{key: value for key, value in chosen.items() if value is not None},
        instructions=_instructions(agent, contents),
        model=_model(agent, contents),
        workspace=_workspace(agent),
        lease=_lease(agent),
        retry=_first(ResolvedRetry, run.retry, defaults and defaults.retry),
        timeouts=_first(ResolvedTimeouts, run.timeouts, defaults and defaults.timeouts),
        delivery=_first(ResolvedDelivery, run.delivery, defaults and defaults.delivery),
        configurable={k: v for c in reversed(config) for k, v in (c.configurable or {}).items()},
    )
    _check(settings)
    return settings


def spec_hash(run: RunSpec) -> str:
    """sha256 of what the Run asks for, without values that equal the built-in ones and without empty parts:
    a newer CRD, or a default written out, is the same Run."""
    said = run.model_dump(mode="json", by_alias=True, exclude_none=True)
    built_in = {
        "retry": ResolvedRetry().model_dump(),
        "timeouts": ResolvedTimeouts().model_dump(),
        "delivery": {"requirement": "None"},
        "config": {"recursion_limit": ResolvedRun().recursion_limit},
    }
    for part, values in built_in.items():
        for name, value in values.items():
            first, *rest = name.split("_")
            key = first + "".join(word.capitalize() for word in rest)
            if said.get(part, {}).get(key) == value:
                del said[part][key]
    bare = {key: value for key, value in said.items() if value not in ({}, [], None)}
    return hashlib.sha256(json.dumps(bare, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _first(kind: type[_M], *layers: Any) -> _M:
    """Field by field, the first layer that says something."""
    said: Json = {}
    for layer in reversed([layer for layer in layers if layer is not None]):
        said |= layer.model_dump(mode="json", exclude_none=True)
    return kind.model_validate(said)


def _workspace(agent: AgentSpec) -> ResolvedWorkspace:
    """A file's limit that nobody gave is never above the limit of all files together."""
    limits = _first(ResolvedWorkspace, agent.workspace)
    if limits.max_file_bytes <= limits.max_bytes:
        return limits
    return limits.model_copy(update={"max_file_bytes": limits.max_bytes})


def _lease(agent: AgentSpec) -> ResolvedLease:
    said = agent.lease
    duration = (said and said.duration_seconds) or ResolvedLease().duration_seconds
    renew = (said and said.renew_seconds) or max(1, duration // 4)
    return ResolvedLease(duration_seconds=duration, renew_seconds=renew)


def _model(agent: AgentSpec, contents: Contents) -> ResolvedModel:
    said = agent.model
    parameters: Json = {}
    for name, text in (said.parameters or {}).items():
        try:
            parameters[name] = json.loads(text)
        except ValueError as error:
            told = f"Agent: model.parameters.{name} is not JSON ({error}); write a string as '\"text\"'"
            raise _Unresolved(Reason.AGENT_PENDING, told) from error
    script = said.script_config_map_key_ref
    return ResolvedModel(
        provider=said.provider,
        name=said.name or said.provider,
        base_url=said.base_url,
        parameters=parameters,
        script=_text(script, contents, Reason.AGENT_PENDING, "Agent: model") if script else None,
    )


def _instructions(agent: AgentSpec, contents: Contents) -> str:
    said = agent.instructions
    if said is None:
        return ""
    if said.config_map_key_ref is None:
        return said.inline or ""
    return _text(said.config_map_key_ref, contents, Reason.AGENT_PENDING, "Agent: instructions")


def _check(settings: ResolvedRun) -> None:
    """What holds within each object may fail once they are put together."""
    faults = {
        "retry.backoffSeconds must not be greater than retry.backoffCapSeconds": (
            settings.retry.backoff_seconds > settings.retry.backoff_cap_seconds
        ),
        "lease.renewSeconds must be at most a third of lease.durationSeconds": (
            3 * settings.lease.renew_seconds > settings.lease.duration_seconds
        ),
        "delivery.requirement All needs at least one pattern in delivery.artifacts": (
            settings.delivery.requirement == "All" and not settings.delivery.artifacts
        ),
    }
    for fault, holds in faults.items():
        if holds:
            told = f"Run, Agent and built-in values together: {fault}; change one of them"
            raise _Unresolved(Reason.CONFIGURATION_INVALID, told, final=True)


def _input(run: RunSpec, contents: Contents) -> Json:
    """The graph's input. Words become messages; JSON is handed on as it is."""
    said = run.input
    if said.messages is not None:
        return {"messages": [{"role": m.role.value, "content": m.content} for m in said.messages]}
    if said.json_text is not None:
        return _object(said.json_text, "input.json")
    if said.config_map_key_ref is None:
        return {"messages": [{"role": "user", "content": said.text or ""}]}
    ref = said.config_map_key_ref
    text = _text(ref, contents, Reason.INPUT_PENDING, "input")
    if ref.key.endswith(".json"):
        return _object(text, f"ConfigMap {ref.name}, key {ref.key}")
    return {"messages": [{"role": "user", "content": text}]}


def _object(text: str, where: str) -> Json:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _Unresolved(Reason.INPUT_UNAVAILABLE, f"{where} is not JSON: {error}", final=True) from error
    if not isinstance(value, dict):
        raise _Unresolved(Reason.INPUT_UNAVAILABLE, f"{where} must be a JSON object", final=True)
    return value


def _files(run: RunSpec, limits: ResolvedWorkspace, contents: Contents) -> tuple[PreparedFile, ...]:
    files: list[PreparedFile] = []
    for file in run.files:
        found = _find(file.config_map_key_ref, contents, Reason.INPUT_PENDING, f"files {file.path}")
        data = found.encode() if isinstance(found, str) else found
        if len(data) > limits.max_file_bytes:
            told = f"files {file.path}: {len(data)} bytes; workspace.maxFileBytes is {limits.max_file_bytes}"
            raise _Unresolved(Reason.WORKSPACE_LIMIT_EXCEEDED, told, final=True)
        files.append(PreparedFile(file.path, data))
    total = sum(len(file.data) for file in files)
    if total > limits.max_bytes or len(files) > limits.max_files:
        told = (
            f"{len(files)} files with {total} bytes; the Agent's workspace takes {limits.max_files} files"
            f" and {limits.max_bytes} bytes"
        )
        raise _Unresolved(Reason.WORKSPACE_LIMIT_EXCEEDED, told, final=True)
    return tuple(files)


def _text(ref: KeyRef, contents: Contents, missing: str, where: str) -> str:
    found = _find(ref, contents, missing, where)
    if isinstance(found, str):
        return found
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        told = f"{where}: ConfigMap {ref.name}, key {ref.key} is not UTF-8 text"
        final = missing == Reason.INPUT_PENDING
        raise _Unresolved(Reason.INPUT_UNAVAILABLE if final else missing, told, final=final) from error


def _find(ref: KeyRef, contents: Contents, missing: str, where: str) -> str | bytes:
    try:
        return contents[ref.name, ref.key]
    except KeyError:
        told = f"{where}: ConfigMap {ref.name} with key {ref.key} does not exist; create it"
        raise _Unresolved(missing, told) from None
