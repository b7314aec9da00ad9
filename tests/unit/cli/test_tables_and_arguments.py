"""Tables, the command line, and where a download goes."""

from pathlib import Path

import pytest

from treadle_cli import download, tables
from treadle_cli.arguments import parse
from treadle_cli.errors import CliError

RECEIPT = {
    "run": "review",
    "namespace": "team",
    "created_at": "2026-01-01T00:00:00+00:00",
    "digest": "d" * 64,
    "payload": {
        "outcome": "success",
        "reason": "Delivered",
        "usage": {"input_tokens": 5},
        "artifacts": [{"path": "a.md", "bytes": 7, "sha256": "f" * 64, "media_type": "text/markdown"}],
    },
}


def test_a_receipt_is_a_column_of_facts_and_a_table_of_artifacts() -> None:
    lines = tables.receipt(RECEIPT).splitlines()
    assert "Outcome:      success" in lines
    assert "Tokens:       5 in, 0 out" in lines
    assert lines[-2].split() == ["PATH", "BYTES", "SHA256", "TYPE"]
    assert lines[-1].split() == ["a.md", "7", "f" * 64, "text/markdown"]


def test_a_receipt_without_artifacts_says_so() -> None:
    assert tables.receipt({**RECEIPT, "payload": {}}).endswith("Artifacts:   none\n")


def test_columns_are_aligned_and_a_cell_keeps_to_its_line() -> None:
    assert tables.aligned([("a", "b\nc"), ("long", "\x1b[31mx")]) == "a      b c\nlong   x\n"
    assert tables.aligned([]) == ""


@pytest.mark.parametrize(
    "line",
    [
        "-n team --context c stream review",
        "stream review --context c -n team",
        "-n team stream review --context c",
    ],
)
def test_common_options_may_stand_on_either_side_of_the_command(line: str) -> None:
    options = parse(line.split())
    assert (options.command, options.run, options.namespace, options.context) == (
        "stream",
        "review",
        "team",
        "c",
    )
    assert (options.output, options.service_account) == (None, "treadle-reader")


def test_the_output_of_an_artifact_is_a_file_and_of_the_rest_a_format() -> None:
    assert parse(["artifact", "review", "a.md", "-o", "x"]).output == "x"
    assert parse(["events", "review", "-o", "json", "--type", "a", "--type", "b"]).types == ("a", "b")


@pytest.mark.parametrize(
    "line", ["", "stream", "fly review", "events review --limit 0", "receipt review -o yaml"]
)
def test_a_line_that_makes_no_sense_is_refused(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(line.split())
    assert ended.value.code == 2
    assert "usage: kubectl treadle" in capsys.readouterr().err


def test_a_file_that_is_not_listed_is_answered_with_those_that_are() -> None:
    assert download.listed(RECEIPT, "a.md")["bytes"] == 7
    with pytest.raises(CliError) as refused:
        download.listed(RECEIPT, "b.md")
    assert "a.md" in refused.value.hint


def test_a_download_takes_the_files_own_name_and_overwrites_nothing_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert download.target("../../etc/passwd", None) == Path("passwd")
    (tmp_path / "a.md").write_text("mine")
    with pytest.raises(CliError, match="exists here"):
        download.target("out/a.md", None)
    assert download.target("out/a.md", "a.md") == Path("a.md")
    with pytest.raises(CliError, match="no file name"):
        download.target("..", None)
