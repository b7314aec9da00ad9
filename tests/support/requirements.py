"""Which rows of the requirement table a test has proven: `python -m support.requirements`.

`tests/conftest.py` writes one file per finished pytest session into the folder named by TREADLE_PROOF:
requirement id -> outcomes of the tests that carry it. A row is proven by at least one passing test and no
failing one.
"""

import csv
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

TABLE = Path(__file__).parent.parent / "requirements.tsv"


def rows(table: Path = TABLE) -> dict[str, str]:
    """Requirement id -> its behaviour in one line, in the table's order."""
    with table.open(newline="", encoding="utf-8") as file:
        return {
            row["id"]: row["behaviour"]
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        }


def collected(folder: Path) -> dict[str, set[str]]:
    """Requirement id -> the outcomes (`passed`, `failed`, `skipped`) of its tests, over all sessions."""
    outcomes: dict[str, set[str]] = {}
    for file in sorted(folder.glob("*.json")):
        session: Mapping[str, list[str]] = json.loads(file.read_text(encoding="utf-8"))
        for requirement, seen in session.items():
            outcomes.setdefault(requirement, set()).update(seen)
    return outcomes


def unproven(known: Iterable[str], outcomes: Mapping[str, set[str]]) -> list[str]:
    """The rows without a passing test, or with a failing one."""
    return [row for row in known if outcomes.get(row, set()) != {"passed"}]


def main() -> int:
    folder = os.environ.get("TREADLE_PROOF")
    if not folder:
        print("TREADLE_PROOF is not set: run this as `make requirements`, after `make test`", file=sys.stderr)
        return 2
    table = rows()
    missing = unproven(table, collected(Path(folder)))
    print(f"{len(table) - len(missing)} of {len(table)} rows have a passing test; without one:")
    for requirement in missing:
        print(f"  {requirement:4} {table[requirement][:120]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
