"""Packages that only gather: their `__init__` is read when somebody asks for what it gathers.

LangGraph needs one small module out of each of a few packages, but importing a submodule runs the package's
`__init__` first, and those import everything they have: nearly a quarter of the instructions that an agent's
imports take. So these `__init__`s wait. Nothing is replaced or left out: the first look at any name of the
package runs its `__init__` as it is, and submodules are found as always.

That is safe only where an `__init__` does nothing but import and list names, in whatever order: a test reads
the source of each package named here.
"""

import sys
import threading
from collections.abc import Collection, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

PACKAGES: Final = frozenset(
    {
        "langchain.agents.middleware",  # `create_agent` needs two of its modules
        "langgraph_sdk",  # `langgraph.runtime` needs a type; the rest is an HTTP and a WebSocket client
        "langsmith.types",  # `langsmith.run_trees` needs a list of strings; the rest is 300 API models
    }
)


class Gathering(MetaPathFinder):
    """Finds the packages of `names` as always, and lets their `__init__` wait."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None and spec.submodule_search_locations is not None:
            spec.loader = _Waiting(spec.loader)
        return spec


class _Waiting(Loader):
    """Loads a package without running its `__init__`, which `loader` runs at the first look at a name."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        loader, running = self._loader, set[int]()

        def run() -> None:
            """Without a lock: a second thread repeats the imports, which changes nothing, where a lock
            could wait for an import that waits for it."""
            running.add(threading.get_ident())
            try:
                loader.exec_module(module)
            finally:
                running.discard(threading.get_ident())
            for name in ("__getattr__", "__dir__"):
                vars(module).pop(name, None)

        def look(name: str) -> Any:
            if threading.get_ident() not in running:
                run()
                if name in vars(module):
                    return vars(module)[name]
            raise AttributeError(
                f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module
            )

        def listed() -> list[str]:
            run()
            return dir(module)

        if module.__spec__ is not None:
            module.__spec__.loader = loader
        module.__loader__ = loader
        vars(module).update(__getattr__=look, __dir__=listed)


def install(names: Collection[str] = PACKAGES) -> None:
    """Let the `__init__` of `names` wait in this process; what is imported already stays as it is."""
    sys.meta_path.insert(0, Gathering(names))
