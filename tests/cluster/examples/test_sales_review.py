"""02-sales-review: the figures are those of the notes; the same manifest applied again changes nothing."""

import re
from collections import defaultdict
from decimal import Decimal
from itertools import pairwise

import pytest

from support.e2e import Played, Stage, example
from support.plugin import Plugin
from support.runs import rows

FOLDER = "02-sales-review"
RUN = "sales-review"
REPORT = "sales-review.md"
Figures = dict[str, tuple[Decimal, ...]]


def table(text: str) -> tuple[list[str], list[list[str]]]:
    """Heading and rows of the first Markdown table in `text`."""
    lines = [
        [cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if "|" in line
    ]
    return lines[0], lines[2:]


def notes() -> list[dict[str, str]]:
    """The rows of every month's table, as the ConfigMap has them."""
    (pages,) = [each["data"] for each in example(FOLDER) if each["metadata"]["name"] == "sales-notes"]
    found = []
    for page in pages.values():
        heading, lines = table(page)
        found += [dict(zip(heading, line, strict=True)) for line in lines]
    return found


def sums(group: str, value: str, only: tuple[str, str] | None = None) -> dict[str, int]:
    added: dict[str, int] = defaultdict(int)
    for row in notes():
        if only is None or row[only[0]] == only[1]:
            added[row[group]] += int(row[value])
    return added


def changes(amounts: dict[str, int]) -> Figures:
    """Amount, change against the group before and that in percent to one decimal; the first has no change."""
    ordered = sorted(amounts)
    found: Figures = {ordered[0]: (Decimal(amounts[ordered[0]]),)}
    for before, now in pairwise(ordered):
        step = Decimal(amounts[now] - amounts[before])
        found[now] = (Decimal(amounts[now]), step, round(step * 100 / amounts[before], 1))
    return found


def told(section: str) -> Figures:
    """The numbers of a section's table; a dash or an empty cell is none."""
    number = re.compile(r"[+-]?\d+(\.\d+)?")
    _, lines = table(section)
    return {name: tuple(Decimal(cell) for cell in cells if number.fullmatch(cell)) for name, *cells in lines}


async def played(plugin: Plugin, stage: Stage) -> Played:
    await plugin.succeeds("apply", "-n", plugin.namespace, "-f", f"examples/{FOLDER}")
    await stage.succeeds(RUN)
    return await stage.stored(RUN)


async def test_the_report_has_the_figures_of_the_notes(plugin: Plugin, stage: Stage) -> None:
    await played(plugin, stage)
    code, _, err = await plugin("artifact", RUN, REPORT, "-o", "fetched.md")
    assert code == 0, err
    report = (plugin.folder / "fetched.md").read_text()
    _, revenue, orders, regions, explained = report.split("\n## ")
    assert told(revenue) == changes(sums("month", "revenue EUR"))
    assert told(orders) == changes(sums("month", "orders"))
    by_region = sums("region", "revenue EUR")
    by_region["total"] = sum(by_region.values())
    assert {name: cells[0] for name, cells in told(regions).items()} == by_region
    assert told(explained) == changes(sums("month", "revenue EUR", ("region", "West")))
    assert "{{" not in report


@pytest.mark.req("R53", "R86")
async def test_the_same_manifest_applied_again_runs_nothing(plugin: Plugin, stage: Stage) -> None:
    run = await played(plugin, stage)
    before, stored = await stage.run(RUN), await rows(stage, run)
    await plugin.succeeds("apply", "-n", plugin.namespace, "-f", f"examples/{FOLDER}")
    # Also when the object does change: a label that a tool of GitOps adds.
    await plugin.succeeds("label", "-n", plugin.namespace, "run", RUN, "team=sales")
    told = await plugin.succeeds("apply", "-n", plugin.namespace, "-f", f"examples/{FOLDER}")
    assert f"run.treadle.dev/{RUN} unchanged" in told
    # A turn that was made later is through: whatever was to be done for the first one has been.
    await plugin.succeeds("apply", "-n", plugin.namespace, "-f", "examples/01-hello")
    await stage.succeeds("hello")
    after = await stage.run(RUN)
    assert after["status"] == before["status"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert await rows(stage, run) == stored
    assert len(await stage.pods(RUN)) == 1
