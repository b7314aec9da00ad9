"""The wrapper takes out what the host cannot grant, and nothing else."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from support.localcluster.oci_runtime import lower, option, without_capability

PRIVILEGED: dict[str, Any] = {
    "args": ["sleep"],
    "capabilities": {
        kind: ["CAP_CHOWN", "CAP_SYS_RESOURCE", "CAP_SYS_ADMIN"] for kind in ("bounding", "effective")
    },
    "oomScoreAdj": -999,
}
LOWERED: dict[str, Any] = {
    "args": ["sleep"],
    "capabilities": {kind: ["CAP_CHOWN", "CAP_SYS_ADMIN"] for kind in ("bounding", "effective")},
    "oomScoreAdj": 0,
}


def test_the_capability_and_the_negative_score_are_taken_out() -> None:
    assert without_capability(PRIVILEGED) == LOWERED


def test_a_process_that_asks_for_nothing_special_stays_as_it_is() -> None:
    plain = {"args": ["sh"], "capabilities": {"bounding": ["CAP_CHOWN"]}, "oomScoreAdj": 300}
    assert without_capability(plain) == plain


def test_a_limit_above_ours_is_lowered_to_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (100, 1000))
    limits = [
        {"type": "RLIMIT_NOFILE", "soft": 4096, "hard": 8192},
        {"type": "RLIMIT_NPROC", "soft": 5, "hard": 9},
    ]
    assert without_capability({"rlimits": limits})["rlimits"] == [
        {"type": "RLIMIT_NOFILE", "soft": 1000, "hard": 1000},
        {"type": "RLIMIT_NPROC", "soft": 5, "hard": 9},
    ]


def test_create_rewrites_the_bundle(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"ociVersion": "1.0.2", "process": PRIVILEGED}))
    lower(["--root", "/run/runc", "create", "--bundle", str(tmp_path), "id"])
    assert json.loads((tmp_path / "config.json").read_text()) == {"ociVersion": "1.0.2", "process": LOWERED}


def test_exec_rewrites_the_process_file(tmp_path: Path) -> None:
    file = tmp_path / "process"
    file.write_text(json.dumps(PRIVILEGED))
    lower(["exec", f"--process={file}", "id"])
    assert json.loads(file.read_text()) == LOWERED


def test_other_calls_touch_no_file() -> None:
    lower(["kill", "id", "9"])
    lower(["delete", "--force", "id"])


@pytest.mark.parametrize(
    ("words", "value"),
    [(["-b", "/x"], "/x"), (["--bundle=/x=y"], "/x=y"), (["--bundle"], ""), (["create", "id"], "")],
)
def test_an_option_is_read_in_both_spellings(words: list[str], value: str) -> None:
    assert option(words, "--bundle", "-b") == value
