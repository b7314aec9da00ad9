"""The built-in tools by name, bound to one run's workspace."""

from collections.abc import Sequence

from langchain_core.tools import BaseTool

from treadle_api.records import RunUID
from treadle_runtime.tools.figures import FigureTools
from treadle_runtime.tools.files import FileTools
from treadle_runtime.tools.plan import PlanTools
from treadle_runtime.workspace.files import Directory
from treadle_runtime.workspace.inflight import InFlight


class UnknownTool(ValueError):
    """A name in `tools.builtin` that this image does not have."""


def built_in(
    names: Sequence[str], directory: Directory, in_flight: InFlight, run_id: RunUID
) -> list[BaseTool]:
    """The tools in the order of `names`. Raises UnknownTool."""
    known = {
        tool.name: tool
        for group in (FileTools(directory, in_flight), PlanTools(directory, run_id), FigureTools(directory))
        for tool in group.tools()
    }
    if unknown := [name for name in names if name not in known]:
        raise UnknownTool(f"no built-in tool {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return [known[name] for name in names]
