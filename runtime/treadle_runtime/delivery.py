"""What a run delivered, as pure functions: manifest differences, coverage, the receipt's payload."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final

from treadle_api.records import ManifestEntry
from treadle_api.resolved import ResolvedDelivery

SUMMARY_BYTES_LIMIT: Final = 1024
PATHS_LIMIT: Final = 1000
"""Paths per list of a receipt."""


class Coverage(StrEnum):
    """Whether `delivery.requirement` is met, in a condition's words; without a requirement it always is."""

    MET = "True"
    FAILED = "False"
    UNKNOWN = "Unknown"
    """The run ended before it could be said."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Differences of two manifests, as sorted paths."""

    added: tuple[str, ...]
    modified: tuple[str, ...]
    deleted: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.modified or self.deleted)


@dataclass(frozen=True, slots=True)
class Delivered:
    """What stands in the receipt about files. `missing` are patterns or presented paths without a file."""

    produced: tuple[str, ...]
    presented: tuple[ManifestEntry, ...]
    matched: tuple[str, ...]
    missing: tuple[str, ...]
    coverage: Coverage


def differences(before: Iterable[ManifestEntry], after: Iterable[ManifestEntry]) -> Changes:
    """What changed from `before` to `after`: bytes or permission bits, by path."""
    old = {entry.path: entry for entry in before}
    new = {entry.path: entry for entry in after}
    return Changes(
        added=tuple(sorted(new.keys() - old.keys())),
        modified=tuple(
            sorted(
                path
                for path in new.keys() & old.keys()
                if (new[path].sha256, new[path].mode) != (old[path].sha256, old[path].mode)
            )
        ),
        deleted=tuple(sorted(old.keys() - new.keys())),
    )


def assess(
    declared: ResolvedDelivery,
    *,
    baseline: Sequence[ManifestEntry],
    manifest: Sequence[ManifestEntry],
    presented: Sequence[str],
) -> Delivered:
    """Judge the workspace at the end of a run.

    `matched` are the produced or presented files that fit a declared pattern. AtLeastOne: one file was
    presented, or matched where patterns are declared. All: every declared pattern has a match (at least
    one file presented where none is declared). A presented file that is no longer there is always missing.
    """
    changes = differences(baseline, manifest)
    produced = tuple(sorted((*changes.added, *changes.modified)))
    entries = {entry.path: entry for entry in manifest}
    shown = tuple(entries[path] for path in dict.fromkeys(presented) if path in entries)
    candidates = sorted({*produced, *(entry.path for entry in shown)})
    matched = tuple(path for path in candidates if any(_fits(path, glob) for glob in declared.artifacts))
    gone = tuple(path for path in dict.fromkeys(presented) if path not in entries)
    unmatched = tuple(
        glob for glob in declared.artifacts if not any(_fits(path, glob) for path in candidates)
    )
    coverage, missing = _coverage(declared, shown=len(shown), matched=matched, unmatched=unmatched, gone=gone)
    return Delivered(produced, shown, matched, missing, coverage)


def _coverage(
    declared: ResolvedDelivery,
    *,
    shown: int,
    matched: tuple[str, ...],
    unmatched: tuple[str, ...],
    gone: tuple[str, ...],
) -> tuple[Coverage, tuple[str, ...]]:
    match declared.requirement:
        case "None":
            return Coverage.MET, gone
        case "AtLeastOne":
            enough = bool(matched) if declared.artifacts else shown > 0
            missing = () if enough else declared.artifacts
        case "All":
            enough = not unmatched if declared.artifacts else shown > 0
            missing = unmatched
        case other:
            raise ValueError(f"delivery.requirement {other!r} is not None, AtLeastOne or All")
    met = enough and not gone
    return (Coverage.MET if met else Coverage.FAILED), (*missing, *gone)


def _fits(path: str, glob: str) -> bool:
    """Match as a shell does within one folder, `**` across folders; a bare pattern fits the file's name."""
    if "/" not in glob:
        return fnmatchcase(path.rsplit("/", 1)[-1], glob)
    return _fits_parts(path.split("/"), glob.split("/"))


def _fits_parts(parts: list[str], globs: list[str]) -> bool:
    if not globs:
        return not parts
    if globs[0] == "**":
        return any(_fits_parts(parts[skip:], globs[1:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], globs[0]) and _fits_parts(parts[1:], globs[1:])


def artifact(entry: ManifestEntry) -> dict[str, Any]:
    """One presented file as it stands in the receipt."""
    return {
        "path": entry.path,
        "sha256": entry.sha256,
        "bytes": entry.size,
        "media_type": entry.media_type,
    }


def summarize(text: str) -> str:
    """The last answer, cut to 1 KiB of UTF-8 at a character's boundary."""
    data = text.encode()
    if len(data) <= SUMMARY_BYTES_LIMIT:
        return text
    return data[: SUMMARY_BYTES_LIMIT - 3].decode(errors="ignore") + "…"


def paths(values: Sequence[str]) -> list[str]:
    """A receipt's list of paths, at most 1000 of them."""
    return list(values[:PATHS_LIMIT])
