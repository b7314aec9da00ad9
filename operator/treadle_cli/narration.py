"""A run's stream as a person reads it. Pure: frames in, text out."""

import re
from collections.abc import Mapping
from typing import Any, Final

ARGUMENT_CHARACTERS: Final = 60
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)


def plain(text: object) -> str:
    """Text of an agent without what a terminal would obey: an agent must not repaint the screen."""
    return _CONTROL.sub("", str(text))


def one_line(text: object, limit: int) -> str:
    flat = " ".join(plain(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


class Narrator:
    """Turns each frame into what is to be printed now, line ends included."""

    def __init__(self) -> None:
        self._attempt: int | None = None
        self._speaking: str | None = None
        """Id of the message whose text is being printed as it comes."""
        self._spoken: set[str] = set()
        self._mid_line = False

    def tell(self, event: str, data: Mapping[str, Any]) -> str:
        """What frame `event` adds; "" for frames that only programs need."""
        match event:
            case "metadata":
                return self._metadata(data)
            case "messages":
                return self._delta(data)
            case "message":
                return self._message(data)
            case "tool.intent":
                return self._line(f"• {plain(data.get('tool'))}({_arguments(data.get('args'))})")
            case "tool.error":
                return self._line(
                    f"  {plain(data.get('tool'))} failed: {one_line(data.get('text', ''), 200)}"
                )
            case "todo":
                return self._line(_todo(data.get("todos")))
            case "artifact":
                paths = data.get("paths")
                return self._line(
                    "presented " + ", ".join(map(plain, paths if isinstance(paths, list) else []))
                )
            case "gap":
                return self._line("[some live output was missed; nothing durable is lost]")
            case "reset":
                self._spoken.clear()
                return self._line("[the log was replaced: from its beginning]")
            case "error":
                return self._line(f"[the stream cannot go on: {one_line(data.get('message', ''), 300)}]")
            case "end":
                return self._end(data)
            case _:
                return ""

    def _metadata(self, data: Mapping[str, Any]) -> str:
        attempt = data.get("attempt")
        if attempt == self._attempt:
            return ""
        again = bool(self._attempt)
        self._attempt = attempt if isinstance(attempt, int) else 0
        self._speaking = None
        if again:
            return self._line(f"-- attempt {attempt} continues from the last checkpoint --")
        waiting = "" if attempt else ", waiting for its first attempt"
        return self._line(f"run {plain(data.get('run'))}{f', attempt {attempt}' if attempt else waiting}")

    def _delta(self, data: Mapping[str, Any]) -> str:
        text, identity = _text(data.get("content")), str(data.get("id"))
        if data.get("role") not in {"ai", "AIMessageChunk"} or not text or identity in self._spoken:
            return ""
        opening = "" if self._speaking == identity else self._break()
        self._speaking = identity
        return opening + self._said(text)

    def _message(self, data: Mapping[str, Any]) -> str:
        identity, text = str(data.get("id")), _text(data.get("content"))
        live = self._speaking == identity
        known = identity in self._spoken
        self._spoken.add(identity)
        if live:
            self._speaking = None
            return self._break()
        if known or not text:
            return ""
        match data.get("role"):
            case "ai":
                return self._line(text)
            case "human":
                return self._line("\n".join(f"> {line}" for line in text.splitlines()))
            case _:
                return ""

    def _end(self, data: Mapping[str, Any]) -> str:
        outcome = plain(data.get("outcome"))
        told = ": ".join(one_line(data[key], 300) for key in ("reason", "message") if data.get(key))
        return self._line(f"{outcome}{f' ({told})' if told else ''}")

    def _line(self, text: str) -> str:
        self._speaking = None
        return self._break() + text + "\n"

    def _break(self) -> str:
        ending, self._mid_line = "\n" if self._mid_line else "", False
        return ending

    def _said(self, text: str) -> str:
        self._mid_line = not text.endswith("\n")
        return text


def _text(content: object) -> str:
    """The text of a message's content, which is a string or a list of blocks."""
    blocks = content if isinstance(content, list) else [content]
    parts = (block.get("text", "") if isinstance(block, dict) else block for block in blocks)
    return plain("".join(part for part in parts if isinstance(part, str)))


def _arguments(args: object) -> str:
    given = args if isinstance(args, dict) else {}
    return ", ".join(f"{plain(name)}={one_line(value, ARGUMENT_CHARACTERS)}" for name, value in given.items())


def _todo(todos: object) -> str:
    items = [item for item in todos if isinstance(item, dict)] if isinstance(todos, list) else []
    done = sum(item.get("status") == "completed" for item in items)
    now = next((item.get("content") for item in items if item.get("status") == "in_progress"), None)
    return f"[{done}/{len(items)} done]" + (f" {one_line(now, 100)}" if now else "")
