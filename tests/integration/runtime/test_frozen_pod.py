"""A pod that was frozen, taken for lost, and wakes up: it writes nothing and says nothing."""

import signal

import pytest

from support.agent_process import Harness
from support.runs import check_the_log, outcome, rows
from support.scripts import NOTES, configuration, review
from treadle_api.contract import ExitCode
from treadle_api.records import LossClass

# Where the first attempt freezes: before a tool's effect, between effect and write, at a commit, at the end.
_POINTS = ["before_tool@5", "after_tool@6", "before_writes@11", "before_checkpoint@9", "before_settle@1"]


@pytest.mark.timeout(600)
@pytest.mark.req("R20", "R24")
@pytest.mark.parametrize("point", _POINTS)
async def test_a_pod_that_wakes_after_the_takeover_adds_no_row(harness: Harness, point: str) -> None:
    run = await harness.admit(configuration(review()), files=NOTES)
    frozen = await harness.attempt(run, failpoints=f"{point}=stop")
    await harness.stopped(frozen)
    assert await harness.drive(run) == 1
    before, ended = await rows(harness, run), await outcome(harness, run)
    # The agent first: it must stop by itself, fenced by the store alone.
    agent = frozen.agent()
    assert agent is not None
    frozen.kill("agent", signal.SIGCONT)
    await harness.agent_gone(agent)
    frozen.kill("keeper", signal.SIGCONT)
    assert await frozen.ended() == ExitCode.FENCED, frozen.log
    assert await rows(harness, run) == before
    assert await outcome(harness, run) == ended
    await check_the_log(harness, run)


@pytest.mark.timeout(600)
@pytest.mark.req("R20")
async def test_a_pod_that_wakes_beside_its_successor_disturbs_nothing(harness: Harness) -> None:
    run = await harness.admit(configuration(review(sleep=1.0)), files=NOTES)
    frozen = await harness.attempt(run, failpoints="before_writes@5=stop")
    await harness.stopped(frozen)
    second = await harness.attempt(run, loss=LossClass.DISRUPTION)
    await harness.log_has(run, "run.start", 2)
    frozen.kill("agent", signal.SIGCONT)
    frozen.kill("keeper", signal.SIGCONT)
    assert await frozen.ended() == ExitCode.FENCED, frozen.log
    assert await second.ended() == ExitCode.ANSWERED, second.log
    await check_the_log(harness, run)
    log = [event for event in await harness.log(run) if event.type == "run.start"]
    assert [event.payload["attempt"] for event in log] == [1, 2]
    tokens = [frame.token for frame in await harness.frames(run)]
    assert tokens
    assert tokens == sorted(tokens), "a frame of the older token behind one of the newer"
