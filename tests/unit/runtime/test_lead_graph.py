"""The built-in agent over a real directory, without any store."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from langchain_core.messages import ToolMessage

from treadle_api.records import RunUID
from treadle_api.resolved import ResolvedModel, ResolvedRun
from treadle_runtime.graphs import lead
from treadle_runtime.graphs.context import BuildContext
from treadle_runtime.models.build import build_model
from treadle_runtime.tools.catalog import UnknownTool, built_in
from treadle_runtime.workspace.files import Directory
from treadle_runtime.workspace.inflight import InFlight

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path, ResolvedRun().workspace)


async def play(directory: Directory, script: str, tools: tuple[str, ...]) -> dict[str, Any]:
    """The state after the lead agent has followed `script`."""
    config = ResolvedRun(model=ResolvedModel(script=script), tools=tools, instructions="Be brief.")
    run_id = RunUID("run-1")
    bound = built_in(tools, directory, InFlight(), run_id)
    context = BuildContext(run_id, config, build_model(config.model, None), bound, directory)
    state: dict[str, Any] = await lead.graph(context).ainvoke(
        {"messages": [{"role": "user", "content": "Please."}]}, {"recursion_limit": 100}
    )
    return state


def objects(path: Path) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(path.read_text()) if found]


async def test_the_sales_review_computes_its_figures_from_the_notes(directory: Directory) -> None:
    folder = EXAMPLES / "02-sales-review"
    loaded = [found for path in sorted(folder.glob("*.yaml")) for found in objects(path)]
    maps = {found["metadata"]["name"]: found["data"] for found in loaded if found["kind"] == "ConfigMap"}
    agent = next(found["spec"] for found in loaded if found["kind"] == "Agent")
    run = next(found["spec"] for found in loaded if found["kind"] == "Run")
    for file in run["files"]:
        where = file["configMapKeyRef"]
        directory.write(file["path"], maps[where["name"]][where["key"]].encode())
    where = agent["model"]["scriptConfigMapKeyRef"]
    state = await play(directory, maps[where["name"]][where["key"]], tuple(agent["tools"]["builtin"]))
    failed = [m for m in state["messages"] if isinstance(m, ToolMessage) and m.status == "error"]
    assert failed == []
    assert state["artifacts"] == ["sales-review.md"]
    assert state["presented"] == {"run": "run-1", "paths": ["sales-review.md"]}
    assert all(todo["status"] == "completed" for todo in state["todos"])
    review = directory.read("sales-review.md").decode()
    assert "change %" in review
    assert "{{" not in review


async def test_a_tools_refusal_is_an_answer_to_the_model(directory: Directory) -> None:
    script = """
replies:
  - tool_calls:
      - {id: outside, name: read_file, args: {path: ../secret}}
      - {id: missing, name: read_file, args: {path: nothing.md}}
      - {id: unfit, name: read_file, args: {path: a, lines: 0}}
      - {id: early, name: present_files, args: {paths: [nothing.md]}}
      - {id: unknown, name: fly, args: {}}
      - {id: bad, name: calculate, args: {expression: "__import__('os')"}}
  - text: Understood.
"""
    state = await play(directory, script, (*ResolvedRun().tools, "calculate"))
    answers = {m.tool_call_id: m for m in state["messages"] if isinstance(m, ToolMessage)}
    assert {message.status for message in answers.values()} == {"error"}
    assert "relative" in answers["outside"].text
    assert "does not exist" in answers["missing"].text
    assert "lines: Input should be greater than or equal to 1" in answers["unfit"].text
    assert "write before you present" in answers["early"].text
    assert "fly is not a valid tool" in answers["unknown"].text
    assert state["messages"][-1].text == "Understood."


async def test_files_are_read_in_parts_listed_and_edited(directory: Directory) -> None:
    directory.write("a.md", b"one\ntwo\nthree\n")
    directory.write("b.bin", b"\xff\xfe")
    script = """
replies:
  - tool_calls:
      - {id: part, name: read_file, args: {path: a.md, first_line: 2, lines: 1}}
      - {id: behind, name: read_file, args: {path: a.md, first_line: 9}}
      - {id: binary, name: read_file, args: {path: b.bin}}
      - {id: list, name: list_files, args: {pattern: "*.md"}}
      - {id: none, name: list_files, args: {pattern: "*.pdf"}}
  - tool_calls:
      - {id: absent, name: edit_file, args: {path: a.md, old: four, new: x}}
  - tool_calls:
      - {id: often, name: edit_file, args: {path: a.md, old: "t", new: x}}
  - tool_calls:
      - {id: edit, name: edit_file, args: {path: a.md, old: two, new: zwei}}
  - text: Done.
"""
    state = await play(directory, script, ResolvedRun().tools)
    said = {m.tool_call_id: m.text for m in state["messages"] if isinstance(m, ToolMessage)}
    assert said["part"] == "two\n[lines 2-2 of 3]"
    assert "has 3 lines" in said["behind"]
    assert "no UTF-8 text" in said["binary"]
    assert said["list"] == "a.md\t14"
    assert "holds 2 files" in said["none"]
    assert "does not contain" in said["absent"]
    assert "2 times" in said["often"]
    assert directory.read("a.md") == b"one\nzwei\nthree\n"


def test_an_unknown_tool_is_told_with_those_that_exist(directory: Directory) -> None:
    with pytest.raises(UnknownTool, match="no built-in tool fly; there are calculate, edit_file"):
        built_in(["read_file", "fly"], directory, InFlight(), RunUID("r"))
