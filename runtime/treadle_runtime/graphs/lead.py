"""The built-in agent: a model, the workspace's tools, a plan, presented files."""

from typing import Any

from langchain.agents import create_agent
from langgraph.graph.state import CompiledStateGraph

from treadle_runtime.graphs.context import BuildContext
from treadle_runtime.state.thread import ThreadState


def graph(context: BuildContext) -> CompiledStateGraph[Any, Any, Any, Any]:
    """The lead agent of one run. `instructions` of the Agent become the system prompt."""
    return create_agent(
        context.model,
        tools=list(context.tools),
        system_prompt=context.config.instructions or None,
        state_schema=ThreadState,
        name="lead",
    )
