"""How figures are told: columns that line up, percentiles, and how busy the machine was."""

import math
import os
import sys
from collections.abc import Iterable, Sequence

Cell = str | float | None


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all are not above; no interpolation."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def heading(title: str, *told: str) -> None:
    """What comes now, under which load, and what is measured how."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"\n=== {title}   (load {load} on {os.cpu_count()} cores)")
    for line in told:
        print(f"    {line}")
    sys.stdout.flush()


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """The first column is text, the others are figures; None is a figure that does not exist."""
    shown = [list(columns), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(row[n]) for row in shown) for n in range(len(columns))]
    for row in shown:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        print("    " + "  ".join(cells).rstrip())
    sys.stdout.flush()


def note(text: str) -> None:
    print(f"    {text}")
    sys.stdout.flush()


def ratio(ours: float, peer: float) -> str:
    """`1.15x`: ours in units of the peer's."""
    return f"{ours / peer:.2f}x" if peer else "-"


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.1f}"
