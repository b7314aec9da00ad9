"""Tools that change the thread's state: the plan and the presented files."""

import asyncio
from typing import Annotated, Final, Literal

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException
from langgraph.types import Command
from pydantic import BaseModel, Field

from treadle_api.records import RunUID
from treadle_runtime.tools.files import as_tool
from treadle_runtime.workspace.files import Directory, WorkspaceError

TODOS_LIMIT: Final = 100
PRESENTED_LIMIT: Final = 100


class TodoArgument(BaseModel):
    content: str = Field(min_length=1, max_length=1000, description="What is to be done")
    status: Literal["pending", "in_progress", "completed"] = "pending"


class PlanTools:
    def __init__(self, directory: Directory, run_id: RunUID) -> None:
        self._directory = directory
        self._run_id = run_id

    def tools(self) -> list[BaseTool]:
        return [as_tool(function) for function in (self.write_todos, self.present_files)]

    async def write_todos(
        self,
        todos: Annotated[
            list[TodoArgument], Field(max_length=TODOS_LIMIT, description="The whole plan, in order")
        ],
        tool_call_id: Annotated[str, InjectedToolCallId],
    ) -> Command[None]:
        """Replace the plan. An empty list clears it."""
        plan = [todo.model_dump() for todo in todos]
        done = sum(todo.status == "completed" for todo in todos)
        answer = ToolMessage(f"plan kept: {done} of {len(todos)} done", tool_call_id=tool_call_id)
        return Command(update={"todos": plan, "messages": [answer]})

    async def present_files(
        self,
        paths: Annotated[
            list[str], Field(min_length=1, max_length=PRESENTED_LIMIT, description="Files of the workspace")
        ],
        tool_call_id: Annotated[str, InjectedToolCallId],
    ) -> Command[None]:
        """Present finished files as this run's result. They must exist."""
        try:
            spelled = [self._directory.relative(path) for path in paths]
            existing = {file.path for file in await asyncio.to_thread(self._directory.scan)}
        except WorkspaceError as error:
            raise ToolException(str(error)) from error
        if missing := [path for path in spelled if path not in existing]:
            raise ToolException(f"not in the workspace: {', '.join(missing)}; write before you present")
        answer = ToolMessage(f"presented: {', '.join(spelled)}", tool_call_id=tool_call_id)
        return Command(
            update={
                "artifacts": spelled,
                "presented": {"run": self._run_id, "paths": spelled},
                "messages": [answer],
            }
        )
