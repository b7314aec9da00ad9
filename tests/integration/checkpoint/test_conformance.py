"""LangGraph's own contract for savers, whole."""

from collections.abc import AsyncGenerator

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.report import ProgressCallbacks

from support.claims import Claimer
from support.savers import ManyThreadsSaver
from treadle_store.pool import Pool

# The suite stores these to see that metadata comes back; a run's saver would leave them out.
SUITE_KEYS = ("custom_key", "score")


async def test_the_saver_passes_every_capability_of_langgraphs_conformance_suite(
    claimer: Claimer, agent_pool: Pool
) -> None:
    @checkpointer_test(name="TreadleSaver")
    async def factory() -> AsyncGenerator[BaseCheckpointSaver[str], None]:
        yield ManyThreadsSaver(claimer, agent_pool, metadata_keys=SUITE_KEYS)

    report = await validate(factory, progress=ProgressCallbacks.verbose())
    report.print_report()

    failures = {name: result.failures for name, result in report.results.items() if result.passed is not True}
    assert failures == {}
    assert set(report.results) == {capability.value for capability in Capability}
    assert sum(result.tests_passed for result in report.results.values()) == 81
