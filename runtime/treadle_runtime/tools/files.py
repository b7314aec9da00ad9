"""Tools on the workspace's files."""

import asyncio
from collections.abc import Callable, Coroutine
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, ParamSpec, TypeVar

from langchain_core.tools import BaseTool, StructuredTool, ToolException
from pydantic import Field

from treadle_runtime.workspace.files import Directory, WorkspaceError
from treadle_runtime.workspace.inflight import InFlight, InFlightTimeout

_P = ParamSpec("_P")
_R = TypeVar("_R")

LIST_LIMIT: Final = 500
READ_CHARACTERS: Final = 65_536
READ_LINES: Final = 2000

_PathArgument = Annotated[str, Field(description="Path relative to the workspace, for example notes/may.md")]


class FileTools:
    """Bound to one workspace; each method is one tool, its docstring what the model reads."""

    def __init__(self, directory: Directory, in_flight: InFlight) -> None:
        self._directory = directory
        self._in_flight = in_flight
        # One change at a time: a snapshot of the workspace then never sees half of a tool's effect.
        self._changing = asyncio.Lock()

    def tools(self) -> list[BaseTool]:
        return [
            as_tool(function)
            for function in (self.list_files, self.read_file, self.write_file, self.edit_file)
        ]

    async def list_files(
        self,
        pattern: Annotated[str, Field(description="Shell pattern over the whole path; * lists all")] = "*",
    ) -> str:
        """List the files of the workspace with their sizes in bytes."""
        found = await _told(self._directory.scan)
        lines = [f"{file.path}\t{file.size}" for file in found if fnmatchcase(file.path, pattern)]
        if not lines:
            return f"no file matches {pattern!r}; the workspace holds {len(found)} files"
        rest = len(lines) - LIST_LIMIT
        return "\n".join(lines[:LIST_LIMIT] + ([f"... and {rest} more: use a narrower pattern"] * (rest > 0)))

    async def read_file(
        self,
        path: _PathArgument,
        first_line: Annotated[int, Field(ge=1, description="Line to start at, counted from 1")] = 1,
        lines: Annotated[int, Field(ge=1, le=READ_LINES, description="How many lines at most")] = READ_LINES,
    ) -> str:
        """Read a text file of the workspace, or a part of it."""
        text = await self._text(path)
        every = text.splitlines(keepends=True)
        part = "".join(every[first_line - 1 : first_line - 1 + lines])
        last = min(first_line - 1 + lines, len(every))
        if len(part) > READ_CHARACTERS:
            return f"{part[:READ_CHARACTERS]}\n[cut after {READ_CHARACTERS} characters: ask for fewer lines]"
        if first_line > len(every) and every:
            raise ToolException(f"{path} has {len(every)} lines; line {first_line} is behind its end")
        if last < len(every):
            return f"{part}[lines {first_line}-{last} of {len(every)}]"
        return part

    async def write_file(
        self,
        path: _PathArgument,
        content: Annotated[str, Field(description="The file's whole new text")],
    ) -> str:
        """Create a text file in the workspace, or replace all of it."""
        await self._claim(path)
        async with self._changing:
            data = content.encode()
            await _told(self._directory.write, path, data)
            return f"wrote {len(data)} bytes to {self._directory.relative(path)}"

    async def edit_file(
        self,
        path: _PathArgument,
        old: Annotated[str, Field(min_length=1, description="Text to replace, exactly as it stands")],
        new: Annotated[str, Field(description="Text to put in its place")],
        every: Annotated[bool, Field(description="Replace every occurrence, not exactly one")] = False,
    ) -> str:
        """Replace text in a file of the workspace."""
        await self._claim(path)
        async with self._changing:
            text = await self._text(path)
            count = text.count(old)
            if count == 0:
                raise ToolException(f"{path} does not contain the text to replace; read the file first")
            if count > 1 and not every:
                raise ToolException(
                    f"{path} contains the text {count} times: give more of its surroundings, or set every"
                )
            await _told(self._directory.write, path, text.replace(old, new).encode())
            return f"replaced {count} occurrence{'s' * (count > 1)} in {self._directory.relative(path)}"

    async def _claim(self, path: str) -> None:
        try:
            await self._in_flight.begin(self._directory.relative(path))
        except (InFlightTimeout, WorkspaceError) as error:
            raise ToolException(str(error)) from error

    async def _text(self, path: str) -> str:
        data = await _told(self._directory.read, path)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ToolException(f"{path} is no UTF-8 text ({len(data)} bytes)") from error


def as_tool(function: Callable[..., Coroutine[Any, Any, Any]]) -> BaseTool:
    """A coroutine method as a tool whose errors are answers to the model, not ends of the run."""
    tool = StructuredTool.from_function(coroutine=function)
    tool.handle_tool_error = True
    tool.handle_validation_error = _invalid
    return tool


def _invalid(error: object) -> str:
    details = getattr(error, "errors", None)
    if details is None:
        return f"invalid arguments: {error}"
    problems = "; ".join(f"{'.'.join(str(at) for at in item['loc'])}: {item['msg']}" for item in details())
    return f"invalid arguments: {problems}"


async def _told(function: Callable[_P, _R], /, *arguments: _P.args, **named: _P.kwargs) -> _R:
    """Run a blocking workspace call in a thread; its refusal becomes the tool's answer."""
    try:
        return await asyncio.to_thread(function, *arguments, **named)
    except WorkspaceError as error:
        raise ToolException(str(error)) from error
