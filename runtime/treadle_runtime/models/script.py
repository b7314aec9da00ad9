"""The script of the scripted model: which reply comes when, what it may fill in. Pure.

    count: history            # or: turn - count AI messages since the last human message
    replies:
      - text: I read the notes first.
        tool_calls:
          - {id: read-1, name: read_file, args: {path: notes/may.md}}
        usage: {input_tokens: 120, output_tokens: 14}
      - sleep_seconds: 2
        word_delay_seconds: 0.05
        text: "May came to {{ results.sum-1 }}."
      - fail: {status: 429, message: slow down}
      - hang: true

`{{ results.<tool call id> }}` stands for what that tool call answered, `{{ input }}` for the newest human
message. Nothing else is evaluated.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

REPLIES_LIMIT: Final = 1000
_PLACEHOLDER: Final = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")


class ScriptError(ValueError):
    """The script cannot be used; the message says where and why."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptedCall(_Strict):
    name: str
    args: dict[str, Any] = Field(default_factory=dict)
    id: str = Field(min_length=1, max_length=128)


class ScriptedUsage(_Strict):
    input_tokens: int = Field(0, ge=0)
    output_tokens: int = Field(0, ge=0)


class ScriptedFailure(_Strict):
    """`status` is an HTTP status as a provider would give it; 408 stands for no answer in time."""

    status: int = Field(500, ge=400, le=599)
    message: str = "the script says so"


class Reply(_Strict):
    text: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    usage: ScriptedUsage | None = None
    sleep_seconds: float = Field(0, ge=0, le=3600)
    word_delay_seconds: float = Field(0, ge=0, le=10)
    fail: ScriptedFailure | None = None
    hang: bool = False


class Script(_Strict):
    count: Literal["history", "turn"] = "history"
    replies: tuple[Reply, ...] = Field(min_length=1, max_length=REPLIES_LIMIT)

    def reply(self, spoken: int) -> Reply:
        """The reply after `spoken` AI messages. Raises ScriptError behind the last one."""
        if spoken >= len(self.replies):
            raise ScriptError(
                f"the script has {len(self.replies)} replies and reply {spoken + 1} is asked for; "
                "add replies, or set count: turn so that each run of the thread starts at the first"
            )
        return self.replies[spoken]


def parse(text: str) -> Script:
    """Read a script from YAML or JSON. Raises ScriptError."""
    try:
        return Script.model_validate(_loaded(text))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in item['loc']) or 'script'}: {item['msg']}"
            for item in error.errors()
        )
        raise ScriptError(f"the script is not valid: {problems}") from error


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # Imported only here: a script in JSON does without it, and it would be part of every agent's start.
        import yaml
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScriptError(f"the script is neither YAML nor JSON: {error}") from error


def fill(value: Any, *, results: Mapping[str, str], question: str) -> Any:
    """`value` with every placeholder in its strings replaced. Raises ScriptError for an unknown one."""
    match value:
        case str():
            return _PLACEHOLDER.sub(lambda found: _answer(found.group(1), results, question), value)
        case Mapping():
            return {name: fill(item, results=results, question=question) for name, item in value.items()}
        case Sequence():
            return [fill(item, results=results, question=question) for item in value]
        case _:
            return value


def _answer(name: str, results: Mapping[str, str], question: str) -> str:
    if name == "input":
        return question
    prefix, _, call = name.partition(".")
    if prefix == "results" and call in results:
        return results[call]
    known = ", ".join(f"results.{known}" for known in results) or "no tool has answered yet"
    raise ScriptError(f"{{{{ {name} }}}} is not known; there is input, and {known}")
