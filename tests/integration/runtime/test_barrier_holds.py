"""The barrier on a real log: what was accepted before a call is durable when the call begins."""

import pytest

from support.agent_process import Harness
from support.scripts import configuration
from treadle_api.contract import ExitCode


@pytest.mark.timeout(120)
@pytest.mark.req("R57")
@pytest.mark.parametrize(
    ("killed_at", "log"),
    [
        ("before_model@2=kill", ["run.start", "model.request", "model.response"]),
        ("before_tool=kill", ["run.start", *["model.request", "model.response"] * 2, "tool.intent"]),
    ],
    ids=["model call", "tool call"],
)
async def test_a_process_killed_where_a_call_begins_has_lost_nothing_that_was_accepted(
    harness: Harness, killed_at: str, log: list[str]
) -> None:
    run = await harness.admit(configuration([{"text": "hello"}], graph="support.user_graphs:talkative"))
    pod = await harness.attempt(run, failpoints=killed_at)
    assert await pod.ended() != ExitCode.ANSWERED, pod.log
    told = [event.type for event in await harness.log(run)]
    assert [kind for kind in told if kind.startswith(("run.start", "model.", "tool."))] == log
