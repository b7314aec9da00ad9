"""Rules about the repository itself that no linter knows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

ROOT_FOLDERS = {"operator", "crds", "charts", "runtime", "tests", "examples", ".ci"}

LINE_LIMIT = 300
LONGER_WITH_REASON: dict[str, str] = {
    "crds/treadle_api/reasons.py": "one closed list; in two files nobody would see that it is closed",
}
"""Files that may pass the limit, each with its why."""

SOURCE = {".py", ".go", ".sh", ".sql"}

FOREIGN = re.compile(
    "|".join(
        (
            r"(?<![\w.])/(?:work|root)/",
            r"pypi\.org|files\.pythonhosted|proxy\.golang|sum\.golang|registry\.npmjs|deb\.debian\.org",
        )
    )
)


def tracked() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def test_the_top_level_is_the_users_frame() -> None:
    folders = {path.relative_to(ROOT).parts[0] for path in tracked() if len(path.relative_to(ROOT).parts) > 1}
    assert folders <= ROOT_FOLDERS


def test_the_standard_librarys_operator_is_not_shadowed() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "operator.py").exists()
    shown = subprocess.run(
        [sys.executable, "-S", "-c", "import operator; print(operator.add(1, 2))"],
        cwd=ROOT,
        env={"PYTHONPATH": "."},
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.strip() == "3"


def test_tests_live_in_the_tests_folder_only() -> None:
    strays = [
        path.relative_to(ROOT)
        for path in tracked()
        if path.suffix == ".py"
        and (path.name.startswith("test_") or path.name == "conftest.py")
        and path.relative_to(ROOT).parts[0] != "tests"
    ]
    assert strays == []


def test_no_file_is_longer_than_the_limit_without_a_reason() -> None:
    long = {}
    for path in tracked():
        if path.suffix in SOURCE and path.name != "schema.sql":
            lines = path.read_text(encoding="utf-8").count("\n")
            if lines > LINE_LIMIT:
                long[path.relative_to(ROOT).as_posix()] = lines
    assert {name: lines for name, lines in long.items() if name not in LONGER_WITH_REASON} == {}
    assert set(LONGER_WITH_REASON) <= set(long), "an entry whose file is short again"


def test_no_package_host_and_no_path_of_a_machine_is_committed() -> None:
    here = Path(__file__)
    hits = []
    for path in tracked():
        if path == here or path.suffix in {".png", ".sum"}:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if FOREIGN.search(line):
                hits.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert hits == []


@pytest.mark.parametrize("image", ["operator", "runtime"])
def test_an_image_installs_the_versions_that_the_tests_ran_with(image: str) -> None:
    def pins(path: Path) -> dict[str, str]:
        found = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        return {name.lower(): version for name, version in found}

    whole = pins(ROOT / "requirements.lock")
    part = pins(ROOT / image / "requirements.lock")
    assert part, "an empty lock"
    assert {name: version for name, version in part.items() if whole.get(name) != version} == {}


def test_every_requirement_mark_names_a_row_of_the_table() -> None:
    from support.requirements import rows

    known = set(rows())
    used = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for arguments in re.findall(r"mark\.req\(([^)]*)\)", path.read_text(encoding="utf-8")):
            used |= set(re.findall(r"R\d+", arguments))
    assert used - known == set()
