"""The sales review of the examples as a Run that can be disturbed at a chosen step."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import yaml

from support.e2e import PATIENCE, Played, Stage, example, of_kind
from support.eventually import eventually

EXAMPLE = "02-sales-review"
CHECKPOINTS = 19
"""Of an undisturbed review: its input, its start, nine replies, eight times tools."""
_REPLY_SECONDS = 0.4
"""How long each reply of the model takes: enough to be hit in one, and no longer."""
_LEASE = {"durationSeconds": 8, "renewSeconds": 2}


def review(name: str) -> list[dict[str, Any]]:
    """The example's objects, with the Run and its Thread under that name, in an even pace."""
    objects = example(EXAMPLE)
    agent, run = of_kind(objects, "Agent"), of_kind(objects, "Run")
    agent["spec"]["lease"] = _LEASE
    run["metadata"]["name"] = run["spec"]["threadRef"]["name"] = name
    (scripts,) = [each["data"] for each in objects if "script.yaml" in each.get("data", {})]
    script = yaml.safe_load(scripts["script.yaml"])
    for reply in script["replies"]:
        reply["sleep_seconds"] = _REPLY_SECONDS
        reply.pop("word_delay_seconds", None)
    scripts["script.yaml"] = yaml.safe_dump(script)
    return objects


@dataclass(frozen=True, slots=True)
class Moment:
    """Some time after a number of checkpoints, well before the end."""

    checkpoints: int
    seconds: float

    @classmethod
    def choose(cls, rng: random.Random, *, after: int = 1, before: int = CHECKPOINTS - 5) -> "Moment":
        return cls(rng.randint(after, before), rng.uniform(0, _REPLY_SECONDS))


async def disturb(
    stage: Stage, run: Played, moment: Moment, deed: Callable[[], Awaitable[None]], *, attempt: int = 1
) -> None:
    """Does it once that many checkpoints are stored, some by `attempt`, and the seconds are over."""
    query = """
        SELECT count(*) >= $2 AND max(token) >= (
               SELECT token FROM treadle.run_attempts WHERE run_id = $3 AND attempt = $4)
          FROM treadle.checkpoints WHERE thread_id = $1"""

    async def reached() -> bool:
        args = (run.thread_id, moment.checkpoints, run.run_id, attempt)
        return bool(await stage.operator.fetchval(query, *args))

    what = f"{run.name} has {moment.checkpoints} checkpoints, and some of attempt {attempt}"
    await eventually(reached, what, within=PATIENCE, every=0.02)
    # Hides no race: it chooses the instant between two steps.
    await asyncio.sleep(moment.seconds)
    await deed()
