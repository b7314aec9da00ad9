"""What a graph factory is given."""

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.tools import BaseTool

from treadle_api.records import RunUID
from treadle_api.resolved import ResolvedRun
from treadle_runtime.workspace.files import Directory


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Everything about one run that a graph may be built from. Holds no credential."""

    run_id: RunUID
    config: ResolvedRun
    model: BaseChatModel
    tools: Sequence[BaseTool]
    """The built-in tools that the Agent names, bound to this run's workspace."""
    workspace: Directory
