"""An undisturbed run, from assignment to receipt, by real processes."""

import hashlib

import pytest

from support.agent_process import Harness
from support.scripts import NOTES, configuration, review
from treadle_api.names import lease_name


@pytest.mark.req("R24")
async def test_a_run_reads_computes_writes_presents_and_leaves_a_receipt(harness: Harness) -> None:
    run = await harness.admit(
        configuration(review(), delivery={"requirement": "All", "artifacts": ["*.md"]}), files=NOTES
    )
    pod = await harness.attempt(run)
    assert await pod.ended() == 0, pod.log
    receipt = await harness.settled(run)
    files = await harness.files(run)
    assert "| 2026-02 | 1650 | +150 | +10.0 |" in files["review.md"].decode()
    assert receipt.payload["outcome"] == "success"
    assert receipt.payload["reason"] == "Delivered"
    assert receipt.payload["artifacts"] == [
        {
            "path": "review.md",
            "sha256": hashlib.sha256(files["review.md"]).hexdigest(),
            "bytes": len(files["review.md"]),
            "media_type": "text/markdown",
        }
    ]
    assert receipt.payload["coverage"] == "True"
    assert receipt.payload["journal_complete"] is True
    assert harness.leases.holder(harness.namespace, lease_name(run.run_id)) == "", "the Lease is released"
