"""Packages whose `__init__` waits: they stay what they are, only later."""

import ast
import subprocess
import sys
import textwrap
import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from treadle_runtime.gathering import PACKAGES, Gathering

_LISTS = {"__all__", "__version__"}


def _only_gathers(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in _LISTS:
            return not any(isinstance(node, ast.Call) for node in ast.walk(value))
    return False


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_a_package_may_wait_because_its_init_does_nothing_but_import_and_list_names(name: str) -> None:
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text()).body
    assert [ast.unparse(statement)[:80] for statement in body if not _only_gathers(statement)] == []


def _in_an_agent(told: str, **environment: str) -> str:
    """What `told` prints in a process that has imported LangGraph as the agent does."""
    code = "import treadle_runtime.session as session\nsession._import_langgraph()\n" + textwrap.dedent(told)
    environment |= {"PYTHONPATH": ":".join(sys.path), "LANGGRAPH_STRICT_MSGPACK": "true"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_agent_starts_without_what_langgraph_never_needs() -> None:
    told = """
        import sys, treadle_runtime.graphs.lead
        waits = ("langsmith.types.run", "langgraph_sdk.client", "langchain.agents.middleware.pii", "yaml")
        print([name for name in waits if name in sys.modules])
    """
    assert _in_an_agent(told) == "[]"


def test_every_name_of_a_package_that_waited_is_there_for_a_graph_that_asks() -> None:
    told = """
        import importlib
        for name in sorted(session.gathering.PACKAGES):
            package = importlib.import_module(name)
            listed = [each for each in dir(package) if not each.startswith("__")]
            assert set(getattr(package, "__all__", listed)) <= set(listed), name
            assert all(getattr(package, each) is not None for each in listed), name
        from langchain.agents.middleware import *
        from langchain.agents.middleware import SummarizationMiddleware
        from langgraph_sdk import get_client
        from langsmith.types import Run
        import langsmith.types.trace
        print(SummarizationMiddleware.__name__, get_client.__name__, Run.__name__, PIIMiddleware.__name__)
    """
    assert _in_an_agent(told) == "SummarizationMiddleware get_client Run PIIMiddleware"


def test_tracing_that_a_user_turns_on_reaches_langsmith() -> None:
    told = """
        import http.server, os, threading
        told = threading.Event()

        class Api(http.server.BaseHTTPRequestHandler):
            def do_GET(self): self.answer(b"{}")
            def do_POST(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if "/runs" in self.path: told.set()
                self.answer(b"{}")
            do_PATCH = do_POST
            def answer(self, body):
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            def log_message(self, *_): pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.environ["LANGSMITH_ENDPOINT"] = f"http://127.0.0.1:{server.server_port}"
        from langchain_core.runnables import RunnableLambda
        RunnableLambda(lambda given: given + 1).invoke(1)
        print(told.wait(30), flush=True)
        os._exit(0)
    """
    assert _in_an_agent(told, LANGSMITH_TRACING="true", LANGSMITH_API_KEY="given-by-a-user") == "True"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of two modules that tells how often its `__init__` ran; it waits."""
    name = f"waits_{tmp_path.name.replace('-', '_')}"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text(
        f"with open({str(tmp_path / 'ran')!r}, 'a') as ran:\n    ran.write('x')\n"
        "from .one import ONE\nfrom .two import TWO\n"
    )
    (folder / "one.py").write_text("ONE = 1\n")
    (folder / "two.py").write_text(f"from {name} import one\nTWO = one.ONE + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [Gathering([name]), *sys.meta_path])
    for module in (name, f"{name}.one", f"{name}.two"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    return name


def test_a_submodule_comes_alone_and_the_first_name_runs_the_init_once(package: str, tmp_path: Path) -> None:
    assert import_module(f"{package}.one").ONE == 1
    assert not (tmp_path / "ran").exists()
    waiting = sys.modules[package]
    assert waiting.TWO == 2
    assert waiting.ONE == 1
    assert (tmp_path / "ran").read_text() == "x"
    assert "TWO" in dir(waiting)


def test_a_name_that_no_init_has_is_an_attribute_error(package: str) -> None:
    waiting = import_module(package)
    with pytest.raises(AttributeError, match="no attribute 'three'"):
        _ = waiting.three
    with pytest.raises(AttributeError, match="no attribute 'four'"):
        _ = waiting.four


def test_threads_that_look_at_the_same_time_both_find_what_they_look_for(package: str) -> None:
    waiting = import_module(package)
    together, found = threading.Barrier(8), list[int]()

    def look() -> None:
        together.wait(10)
        found.append(waiting.TWO)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found == [2] * 8


def test_a_package_that_is_not_named_is_none_of_its_business() -> None:
    assert Gathering(PACKAGES).find_spec("json", None) is None
