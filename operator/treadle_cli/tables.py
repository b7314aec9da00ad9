"""Receipts and events as people read them. Pure."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .narration import one_line, plain

SUMMARY_CHARACTERS = 100


def aligned(rows: Iterable[Sequence[object]], *, gap: int = 3) -> str:
    """Columns as wide as their widest cell, the last one as it is."""
    cells = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [
        max((len(row[place]) for row in cells), default=0) for place in range(max(map(len, cells), default=0))
    ]
    lines = (
        (" " * gap)
        .join([*(cell.ljust(widths[place]) for place, cell in enumerate(row[:-1])), row[-1]])
        .rstrip()
        for row in cells
    )
    return "".join(f"{line}\n" for line in lines)


def receipt(answer: Mapping[str, Any]) -> str:
    """The receipt: first how it ended, then what it delivered."""
    payload = answer["payload"]
    usage = payload.get("usage") or {}
    facts = [
        ("Run:", answer["run"]),
        ("Namespace:", answer["namespace"]),
        ("Outcome:", payload.get("outcome", "")),
        ("Reason:", payload.get("reason") or ""),
        ("Message:", one_line(payload.get("message") or "", 300)),
        ("Attempt:", payload.get("attempt", "")),
        ("Checkpoint:", payload.get("checkpoint") or "none"),
        ("Model:", payload.get("model") or "none"),
        ("Tokens:", f"{usage.get('input_tokens', 0)} in, {usage.get('output_tokens', 0)} out"),
        ("Calls:", f"{usage.get('model_calls', 0)} of the model, {usage.get('tool_calls', 0)} of tools"),
        (
            "Delivery:",
            f"{payload.get('coverage', 'Unknown')} (required: {payload.get('requirement', 'None')})",
        ),
        ("Settled:", answer["created_at"]),
        ("Digest:", answer["digest"]),
    ]
    artifacts = payload.get("artifacts") or []
    if not artifacts:
        return aligned(facts) + "Artifacts:   none\n"
    rows = [("PATH", "BYTES", "SHA256", "TYPE")]
    rows += [
        (item["path"], item["bytes"], item["sha256"], item.get("media_type") or "") for item in artifacts
    ]
    summary = payload.get("summary") or ""
    said = f"Summary:     {one_line(summary, 300)}\n" if summary else ""
    return aligned(facts) + said + "\n" + aligned(rows)


def events(rows: Iterable[Mapping[str, Any]], *, heading: bool) -> str:
    """One line per event."""
    lines = [("SEQ", "TIME", "TYPE", "SUMMARY")] if heading else []
    for event in rows:
        time = str(event["created_at"])[:19].replace("T", " ")
        lines.append((event["seq"], time, event["type"], _summary(event["payload"])))
    return aligned(lines)


def _summary(payload: Mapping[str, Any]) -> str:
    content = payload.get("content")
    told = content if isinstance(content, str) and content else json.dumps(payload, ensure_ascii=False)
    return one_line(told, SUMMARY_CHARACTERS)
