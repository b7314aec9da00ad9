"""The schema of the built-in agent; a graph of one's own may use it, or subclass it, or not."""

from typing import Annotated, Any, Required, TypedDict

from langchain.agents import AgentState
from langchain_core.messages import AnyMessage

from treadle_runtime.state.reducers import merge_messages, merge_presented, replace_unless_none, union


class Todo(TypedDict):
    """One line of the agent's plan. `status` is pending, in_progress or completed."""

    content: str
    status: str


class ThreadState(AgentState[Any]):
    """What a thread remembers from run to run."""

    messages: Required[Annotated[list[AnyMessage], merge_messages]]
    todos: Annotated[list[Todo] | None, replace_unless_none]
    artifacts: Annotated[list[str], union]
    """Every file ever presented in this thread, in the order of first presentation."""
    presented: Annotated[dict[str, Any], merge_presented]
    """The files that the newest run presented."""
    title: str
