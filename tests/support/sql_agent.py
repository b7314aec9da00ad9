"""What an agent pod does to the store, spoken by a test: take, claim, work, settle. No pod, no LangGraph."""

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from treadle_api.contract import ENV_POD_KEY
from treadle_api.records import Assignment, Claim, Event, RunStatus, Settled
from treadle_store.agent import begin_finalizing, claim_run, heartbeat, settle_run, take_assignment
from treadle_store.events import append_events
from treadle_store.pool import Executor
from treadle_store.streams import Publisher


@dataclass
class SqlAgent:
    """The agent of one pod object, with the credential of the agent's role."""

    db: Executor
    pod: dict[str, Any]
    assignment: Assignment | None = None
    nonce: str = "n1"

    @property
    def key(self) -> str:
        environment = self.pod["spec"]["containers"][0]["env"]
        return next(str(item["value"]) for item in environment if item["name"] == ENV_POD_KEY)

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])

    @property
    def holder(self) -> str:
        return f"{self.uid}/{self.nonce}"

    async def take(self) -> Assignment | None:
        self.assignment = await take_assignment(self.db, self.key, self.uid)
        return self.assignment

    async def claim(self) -> Claim:
        assignment = self.assignment or await self.take()
        assert assignment is not None, "this pod has no assignment"
        return await claim_run(self.db, assignment.capability, self.uid, self.nonce)

    async def work(self, *types: str) -> None:
        assert self.assignment is not None
        events = [Event(uuid4(), type_, {}) for type_ in types]
        await append_events(self.db, self.assignment.capability, events)

    async def beat(self) -> str | None:
        assert self.assignment is not None
        return await heartbeat(self.db, self.assignment.capability)

    async def nudge(self, redis_url: str, what: str) -> None:
        """As the attempt's own Redis user; of `redis_url` only the address counts."""
        assert self.assignment is not None
        address = redis_url.rsplit("@", 1)[-1]
        async with Publisher(f"redis://{address}", self.assignment) as publisher:
            await publisher.nudge(what)

    async def settle(
        self,
        outcome: RunStatus = RunStatus.SUCCESS,
        *,
        reason: str = "NothingToDeliver",
        message: str = "done",
    ) -> Settled:
        assert self.assignment is not None
        capability = self.assignment.capability
        await begin_finalizing(self.db, capability)
        return await settle_run(
            self.db,
            capability,
            outcome=outcome,
            end={"outcome": outcome.value, "reason": reason},
            receipt=receipt(reason, message),
            end_event_id=uuid4(),
            delivery_event_id=uuid4(),
        )


def receipt(reason: str, message: str) -> dict[str, Any]:
    """The payload of a run that presented nothing and needed nothing."""
    return {
        "checkpoint": None,
        "message_id": None,
        "summary": message,
        "reason": reason,
        "message": message,
        "produced": [],
        "presented": [],
        "matched": [],
        "coverage": "True",
        "requirement": "None",
        "artifacts": [],
        "journal_complete": True,
        "usage": {"input_tokens": 1, "output_tokens": 1, "model_calls": 1, "tool_calls": 0},
        "model": "scripted",
    }
