"""Every tier: requirement marks are recorded, so that `make requirements` can say what is proven."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

# LangGraph reads it once, at its first import; the runtime refuses to start without it.
os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")

_PROOF = pytest.StashKey[dict[str, set[str]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_PROOF] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark in item.iter_markers("req"):
            item.user_properties.extend(("req", requirement) for requirement in mark.args)


class _Recorder:
    def __init__(self, outcomes: dict[str, set[str]]) -> None:
        self._outcomes = outcomes

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            for name, value in report.user_properties:
                if name == "req":
                    self._outcomes.setdefault(str(value), set()).add(report.outcome)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Recorder(session.config.stash[_PROOF]), "treadle-proof")


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    yield
    folder = os.environ.get("TREADLE_PROOF")
    if folder and not hasattr(session.config, "workerinput"):
        outcomes = {key: sorted(value) for key, value in session.config.stash[_PROOF].items()}
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{uuid4().hex}.json").write_text(json.dumps(outcomes), encoding="utf-8")
