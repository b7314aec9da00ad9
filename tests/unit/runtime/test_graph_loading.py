"""A graph is found by module:attribute, or it is told what was found instead."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from langgraph.graph import START, MessagesState, StateGraph

from treadle_runtime.graphs.context import BuildContext
from treadle_runtime.graphs.loading import GraphNotLoaded, compile_graph, find

NO_CONTEXT = cast(BuildContext, None)


def builder() -> StateGraph[Any, Any, Any, Any]:
    made = StateGraph(MessagesState)
    made.add_node("n", lambda state: {})
    made.add_edge(START, "n")
    return made


async def later(context: BuildContext) -> Any:
    return builder().compile()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("a_users_module")
    made.compiled = builder().compile()  # type: ignore[attr-defined]
    made.builder = builder()  # type: ignore[attr-defined]
    made.function = lambda context: builder()  # type: ignore[attr-defined]
    made.later = later  # type: ignore[attr-defined]
    made.nothing = 7  # type: ignore[attr-defined]
    made.wrong = lambda context: 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "a_users_module", made)
    return made


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("name", ["compiled", "builder", "function", "later"])
async def test_a_graph_a_builder_and_a_function_are_taken(name: str) -> None:
    reference = f"a_users_module:{name}"
    graph = await compile_graph(find(reference), reference, NO_CONTEXT)
    assert "n" in graph.nodes


@pytest.mark.req("R77")
async def test_a_graph_function_is_given_the_build_context_and_nothing_else() -> None:
    given: list[tuple[Any, ...]] = []

    def function(*arguments: Any) -> StateGraph[Any, Any, Any, Any]:
        given.append(arguments)
        return builder()

    context = cast(BuildContext, object())
    await compile_graph(function, "a_users_module:function", context)
    assert given == [(context,)]


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("a_users_module", "not module:attribute"),
        (":graph", "not module:attribute"),
        ("no_such_module:graph", "cannot be imported: ModuleNotFoundError"),
        ("a_users_module:graph", "graphs: compiled, builder; functions: function, later"),
    ],
)
def test_a_reference_that_leads_nowhere_says_why(reference: str, says: str) -> None:
    with pytest.raises(GraphNotLoaded, match=says):
        find(reference)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize("name", ["nothing", "wrong"])
async def test_what_is_no_graph_is_refused(name: str) -> None:
    reference = f"a_users_module:{name}"
    with pytest.raises(GraphNotLoaded, match="gives a int; it must be a compiled StateGraph"):
        await compile_graph(find(reference), reference, NO_CONTEXT)


def test_a_module_that_breaks_while_it_is_imported_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(GraphNotLoaded, match="RuntimeError: no licence"):
        find("broken_module:graph")
