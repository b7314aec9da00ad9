"""What a run delivered, judged against what was declared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle_api.records import ManifestEntry
from treadle_api.resolved import ResolvedDelivery
from treadle_runtime import delivery
from treadle_runtime.delivery import Coverage


def entry(path: str, sha256: str = "a", mode: int = 0o644) -> ManifestEntry:
    return ManifestEntry(path, sha256, 1, mode, "text/plain")


def test_changes_are_told_by_path() -> None:
    before = [entry("same"), entry("gone"), entry("changed"), entry("mode")]
    after = [entry("same"), entry("changed", "b"), entry("new"), entry("mode", mode=0o755)]
    changes = delivery.differences(before, after)
    assert changes == delivery.Changes(("new",), ("changed", "mode"), ("gone",))
    assert not delivery.differences(before, before)


@pytest.mark.req("R53")
@pytest.mark.parametrize(
    ("requirement", "patterns", "presented", "coverage", "missing"),
    [
        ("None", (), [], Coverage.MET, ()),
        ("None", ("x.md",), [], Coverage.MET, ()),
        ("AtLeastOne", (), [], Coverage.FAILED, ()),
        ("AtLeastOne", (), ["new.md"], Coverage.MET, ()),
        ("AtLeastOne", ("*.md", "*.pdf"), [], Coverage.MET, ()),
        ("AtLeastOne", ("*.pdf",), ["new.md"], Coverage.FAILED, ("*.pdf",)),
        ("All", ("*.md", "out/**"), ["new.md"], Coverage.MET, ()),
        ("All", ("*.md", "*.pdf"), ["new.md"], Coverage.FAILED, ("*.pdf",)),
        ("All", (), ["new.md"], Coverage.MET, ()),
        ("All", (), [], Coverage.FAILED, ()),
        ("All", ("*.md",), ["new.md", "vanished.md"], Coverage.FAILED, ("vanished.md",)),
        ("All", ("old.md",), [], Coverage.FAILED, ("old.md",)),
        ("All", ("old.md",), ["old.md"], Coverage.MET, ()),
    ],
)
def test_coverage_follows_the_requirement(
    requirement: str,
    patterns: tuple[str, ...],
    presented: list[str],
    coverage: Coverage,
    missing: tuple[str, ...],
) -> None:
    delivered = delivery.assess(
        ResolvedDelivery(requirement=requirement, artifacts=patterns),
        baseline=[entry("old.md")],
        manifest=[entry("old.md"), entry("new.md"), entry("out/deep/x.csv")],
        presented=presented,
    )
    assert (delivered.coverage, delivered.missing) == (coverage, missing)
    assert delivered.produced == ("new.md", "out/deep/x.csv")


@pytest.mark.parametrize(
    ("path", "pattern", "fits"),
    [
        ("a.md", "*.md", True),
        ("deep/a.md", "*.md", True),
        ("deep/a.md", "deep/*.md", True),
        ("deep/er/a.md", "deep/*.md", False),
        ("deep/er/a.md", "deep/**/a.md", True),
        ("deep/a.md", "deep/**/a.md", True),
        ("other/a.md", "deep/**", False),
    ],
)
def test_a_pattern_fits_as_in_a_shell(path: str, pattern: str, fits: bool) -> None:
    delivered = delivery.assess(
        ResolvedDelivery(requirement="All", artifacts=(pattern,)),
        baseline=[],
        manifest=[entry(path)],
        presented=[],
    )
    assert bool(delivered.matched) is fits


def test_an_unknown_requirement_is_an_error() -> None:
    with pytest.raises(ValueError, match="AtLeastOne"):
        delivery.assess(ResolvedDelivery(requirement="Some"), baseline=[], manifest=[], presented=[])


@given(st.text())
def test_a_summary_is_valid_text_of_at_most_a_kilobyte(text: str) -> None:
    cut = delivery.summarize(text.encode(errors="ignore").decode())
    assert len(cut.encode()) <= delivery.SUMMARY_BYTES_LIMIT
