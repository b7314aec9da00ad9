"""Find a graph by `module:attribute` and compile it."""

import importlib
import inspect
from typing import Any

from langgraph.graph.state import CompiledStateGraph, StateGraph

from treadle_runtime.graphs.context import BuildContext

Graph = CompiledStateGraph[Any, Any, Any, Any]


class GraphNotLoaded(Exception):
    """The reference leads to nothing that can be run; the message lists what was found instead."""


def find(reference: str) -> Any:
    """Import the module and take the attribute. Raises GraphNotLoaded."""
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise GraphNotLoaded(f"graph {reference!r} is not module:attribute, for example my_agent.graph:graph")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        # Whatever the module raises while it is imported is the reason why there is no graph.
        raise GraphNotLoaded(
            f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        graphs = [
            name for name, value in vars(module).items() if isinstance(value, CompiledStateGraph | StateGraph)
        ]
        public = [
            name for name, value in vars(module).items() if callable(value) and not name.startswith("_")
        ]
        found = f"graphs: {', '.join(graphs) or 'none'}; functions: {', '.join(public[:20]) or 'none'}"
        raise GraphNotLoaded(f"module {module_name!r} has no {attribute!r}; it has {found}") from None


async def compile_graph(found: Any, reference: str, context: BuildContext) -> Graph:
    """A compiled graph as it is, a StateGraph compiled, or what a function of the context returns.

    Raises GraphNotLoaded for anything else. Errors of the function itself come through as they are.
    """
    made = found
    if callable(found) and not isinstance(found, CompiledStateGraph | StateGraph):
        made = found(context)
        if inspect.isawaitable(made):
            made = await made
    if isinstance(made, StateGraph):
        made = made.compile()
    if not isinstance(made, CompiledStateGraph):
        raise GraphNotLoaded(
            f"graph {reference!r} gives a {type(made).__name__}; it must be a compiled StateGraph, "
            "a StateGraph, or a function of one argument (the build context) that returns one"
        )
    return made
