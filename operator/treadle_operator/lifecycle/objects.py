"""From the API's objects to the small views that the rules read."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from treadle_api import names
from treadle_api.agent import Agent
from treadle_api.resolved import ResolvedTimeouts
from treadle_api.run import Run
from treadle_api.thread import Thread
from treadle_operator.lifecycle.world import AgentFacts, RunObject, ThreadObject

IMAGE_PULL_GRACE_SECONDS = 300
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def run_object(run: Run, status: Mapping[str, Any]) -> RunObject:
    """`status` is the raw one: what is written must be compared with what really stands there."""
    meta, spec = run.metadata, run.spec
    start = spec.timeouts.start_seconds if spec.timeouts is not None else None
    return RunObject(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        created=meta.creation_timestamp or _LONG_AGO,
        thread=spec.thread_ref.name,
        template_agent=spec.thread_template.agent_ref.name if spec.thread_template is not None else None,
        start_seconds=start if start is not None else ResolvedTimeouts().start_seconds,
        finalizer=names.FINALIZER in meta.finalizers,
        deleting=meta.deletion_timestamp is not None,
        status=status,
    )


def thread_object(thread: Thread) -> ThreadObject:
    """An unset threadID is the object's uid."""
    meta, spec = thread.metadata, thread.spec
    return ThreadObject(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        agent=spec.agent_ref.name,
        thread_key=spec.thread_id or meta.uid,
        max_queued_runs=spec.max_queued_runs,
        deleting=meta.deletion_timestamp is not None,
    )


def agent_facts(agent: Agent) -> AgentFacts:
    grace = agent.spec.image_pull_grace_seconds
    return AgentFacts(
        name=agent.metadata.name,
        generation=agent.metadata.generation,
        image_pull_grace_seconds=IMAGE_PULL_GRACE_SECONDS if grace is None else grace,
    )
