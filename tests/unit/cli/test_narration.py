"""A stream as a person reads it."""

from typing import Any

from treadle_cli.narration import Narrator, plain


def told(*frames: tuple[str, dict[str, Any]]) -> str:
    narrator = Narrator()
    return "".join(narrator.tell(event, data) for event, data in frames)


def delta(text: str, identity: str = "m1", role: str = "AIMessageChunk") -> tuple[str, dict[str, Any]]:
    return "messages", {"id": identity, "role": role, "content": text}


def message(text: Any, identity: str = "m1", role: str = "ai") -> tuple[str, dict[str, Any]]:
    return "message", {"id": identity, "role": role, "content": text}


METADATA = ("metadata", {"run": "review", "attempt": 1})


def test_text_comes_as_it_is_spoken_and_the_committed_message_is_not_told_again() -> None:
    assert told(delta("Sales "), delta("rose."), message("Sales rose."), message("Next.", "m2")) == (
        "Sales rose.\nNext.\n"
    )


def test_a_message_that_was_not_seen_live_is_told_whole() -> None:
    assert told(METADATA, message("Sales rose.")) == "run review, attempt 1\nSales rose.\n"


def test_the_text_of_content_blocks_is_joined() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert told(message(blocks)) == "ab\n"


def test_a_late_delta_of_a_committed_message_is_left_out() -> None:
    assert told(message("whole"), delta("le")) == "whole\n"


def test_tool_calls_take_one_line_each_and_break_a_line_that_is_being_spoken() -> None:
    intent = ("tool.intent", {"tool": "write_file", "args": {"path": "a.md", "text": "x" * 100 + "\n\n"}})
    failed = ("tool.error", {"tool": "write_file", "text": "disk\nfull"})
    assert told(delta("So"), intent, ("tool.result", {}), failed) == (
        f"So\n• write_file(path=a.md, text={'x' * 59}…)\n  write_file failed: disk full\n"
    )


def test_each_attempt_announces_itself() -> None:
    again = ("metadata", {"run": "review", "attempt": 2})
    assert told(METADATA, METADATA, delta("Sal"), again, delta("Sales", "m2")) == (
        "run review, attempt 1\nSal\n-- attempt 2 continues from the last checkpoint --\nSales"
    )
    assert (
        told(("metadata", {"run": "review", "attempt": 0})) == "run review, waiting for its first attempt\n"
    )


def test_progress_delivery_gaps_and_the_end_are_told_in_a_line() -> None:
    todos = [{"status": "completed"}, {"status": "in_progress", "content": "read June"}]
    end: tuple[str, dict[str, Any]] = (
        "end",
        {"outcome": "error", "reason": "AgentError", "message": "no such model"},
    )
    frames: list[tuple[str, dict[str, Any]]] = [
        ("todo", {"todos": todos}),
        ("artifact", {"paths": ["a", "b"]}),
        ("gap", {}),
        ("reset", {}),
        end,
    ]
    assert told(*frames).splitlines() == [
        "[1/2 done] read June",
        "presented a, b",
        "[some live output was missed; nothing durable is lost]",
        "[the log was replaced: from its beginning]",
        "error (AgentError: no such model)",
    ]


def test_questions_are_quoted_and_what_only_programs_need_is_left_out() -> None:
    assert (
        told(message("one\ntwo", "h", "human"), message("42", "t", "tool"), ("updates", {}))
        == "> one\n> two\n"
    )


def test_an_agent_cannot_repaint_the_screen() -> None:
    assert plain("\x1b[2J\x1b[31mred\x1b[0m\x1b]0;title\x07 \x9b1m a\r\tb\n") == "red 1m a\tb\n"
    assert told(delta("\x1b[1A\x1b[2Kgone")) == "gone"


def test_frames_of_odd_shape_do_no_harm() -> None:
    odd: list[Any] = [None, 1, "x", [], {}, [1], [{"text": 1}], {"a": None}]
    names = ("messages", "message", "metadata", "tool.intent", "tool.error", "todo", "artifact", "gap", "end")
    for event in names:
        for value in odd:
            keys = ("content", "attempt", "args", "todos", "paths", "text", "outcome", "reason", "tool", "id")
            told((event, dict.fromkeys(keys, value)))
