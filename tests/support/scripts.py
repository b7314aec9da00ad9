"""Scripts of the scripted model that tests share, and the run configuration around them."""

import json
from typing import Any

from treadle_api.records import Json
from treadle_api.resolved import ResolvedRun

_HEADING = "| month | region | amount |\n|---|---|---:|\n"
NOTES = {
    "notes/2026-01.md": f"{_HEADING}| 2026-01 | north | 1000 |\n| 2026-01 | south | 500 |\n".encode(),
    "notes/2026-02.md": f"{_HEADING}| 2026-02 | north | 1180 |\n| 2026-02 | south | 470 |\n".encode(),
}


def call(identity: str, tool: str, **args: Any) -> Json:
    return {"id": identity, "name": tool, "args": args}


def review(*, sleep: float = 0) -> list[Json]:
    """A small sales review: reads, plans, computes, edits what it wrote, presents."""
    return [
        {"text": "I plan first.", "tool_calls": [call("plan", "write_todos", todos=[{"content": "review"}])]},
        {
            "text": "I read the notes.",
            "tool_calls": [
                call("read-1", "read_file", path="notes/2026-01.md"),
                call("read-2", "read_file", path="notes/2026-02.md"),
            ],
            "sleep_seconds": sleep,
        },
        {
            "tool_calls": [
                call("sum", "sum_table", files="notes/*.md", group_by="month", value="amount", change=True)
            ]
        },
        {
            "text": "I write.",
            "tool_calls": [
                call("write", "write_file", path="review.md", content="# Review\n\n{{ results.sum }}\n\nx\n"),
                call("log", "write_file", path="log.txt", content="a y"),
            ],
        },
        # Not idempotent on purpose: done twice, the files would differ from those of an undisturbed run.
        {
            "tool_calls": [
                call("edit-1", "edit_file", path="review.md", old="x\n", new="x\nxx\n", every=True),
                call("edit-2", "edit_file", path="log.txt", old="a", new="aa", every=True),
                call("edit-4", "edit_file", path="log.txt", old="y", new="yy", every=True),
            ]
        },
        {"tool_calls": [call("edit-3", "edit_file", path="log.txt", old="a", new="ab", every=True)]},
        {"tool_calls": [call("present", "present_files", paths=["review.md"])]},
        {"text": "The review is done."},
    ]


def configuration(replies: list[Json], *, count: str = "history", **fields: Any) -> Json:
    """A ResolvedRun, as JSON, whose model says `replies`."""
    tools = (*ResolvedRun().tools, "calculate", "sum_table")
    base = ResolvedRun(tools=tools).model_dump(mode="json")
    base["model"]["script"] = json.dumps({"count": count, "replies": replies})
    base["lease"] = {"duration_seconds": 6, "renew_seconds": 1}
    for name, value in fields.items():
        base[name] = {**base[name], **value} if isinstance(value, dict) else value
    return base
