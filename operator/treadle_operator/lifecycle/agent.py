"""`decide_agent`: whether a Run of this Agent could start now. An Agent starts nothing and needs no clean-up.

First match wins: a fault of the spec or of what it refers to · a missing Secret · a store whose schema is not
the one this program knows · a store that was failed over · one that does not answer · Ready.
"""

import re

from treadle_api.reasons import Reason
from treadle_operator.lifecycle.actions import AgentDecision, Decision, Status
from treadle_operator.lifecycle.conditions import FALSE, TRUE, UNKNOWN, set_condition
from treadle_operator.lifecycle.world import AgentWorld

AGAIN = 30.0
"""Seconds between two looks at an Agent that is not Ready; Secrets and ConfigMaps are not watched."""
_GRAPH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def decide_agent(world: AgentWorld) -> AgentDecision:
    """Total, deterministic, stable. Never an action: only what is shown."""
    ready, reason, message = _judge(world)
    status: Status = {"observedGeneration": world.generation, "conditions": []}
    previous = world.status.get("conditions", ())
    if ready != TRUE:
        status["conditions"].append(
            set_condition(
                previous, "Reconciling", TRUE, reason, message, now=world.now, generation=world.generation
            )
        )
    status["conditions"].append(
        set_condition(previous, "Ready", ready, reason, message, now=world.now, generation=world.generation)
    )
    return Decision(status=status, requeue_after=None if ready == TRUE else AGAIN)


def _judge(world: AgentWorld) -> tuple[str, str, str]:
    if not _GRAPH.fullmatch(world.graph):
        told = f"graph {world.graph!r} is no reference; write module:attribute, as my_agents.sales:graph"
        return FALSE, Reason.CONFIGURATION_INVALID, told
    if world.problem is not None:
        return FALSE, world.problem.reason, world.problem.message
    if world.missing_secrets:
        told = f"Secret {', '.join(world.missing_secrets)} is missing; create it"
        return FALSE, Reason.SECRET_NOT_FOUND, told
    if world.schema_problem:
        return FALSE, Reason.SCHEMA_MISMATCH, world.schema_problem
    if world.store_failed_over:
        return FALSE, Reason.STORE_FAILED_OVER, Reason.STORE_FAILED_OVER.advice
    if world.store_down_for is not None:
        return UNKNOWN, Reason.STORE_UNAVAILABLE, "The store does not answer; it is tried again"
    return TRUE, Reason.READY, "A Run could start now"
