"""`kubectl treadle` as kubectl runs it, through a real port-forward, against the installed chart."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from support.cluster import Cluster
from support.plugin import Plugin, install

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "02-sales-review"
RUN = "sales-review"


@pytest.fixture
def plugin(cluster: Cluster, watched_namespace: str, tmp_path: Path) -> Plugin:
    install(tmp_path)
    return Plugin(cluster, watched_namespace, tmp_path)


@pytest.mark.req("R41")
@pytest.mark.req("R46")
async def test_a_run_is_watched_to_its_end_and_its_artifact_fetched(cluster: Cluster, plugin: Plugin) -> None:
    await cluster.kubectl("apply", "--filename", os.fspath(EXAMPLE), namespace=plugin.namespace)
    # The stream begins with the run's admission.
    await cluster.kubectl(
        *("wait", f"run/{RUN}", "--for=condition=Admitted", "--timeout=60s"),
        namespace=plugin.namespace,
        seconds=90,
    )
    code, told, err = await plugin("stream", RUN)
    assert code == 0, told + err
    lines = told.splitlines()
    assert lines[0].startswith(f"run {RUN}")
    assert any(line.startswith("• write_file(path=sales-review.md") for line in lines), told
    assert lines[-1].startswith("success (Delivered")

    code, out, err = await plugin("receipt", RUN, "-o", "json")
    assert code == 0, err
    (artifact,) = json.loads(out)["payload"]["artifacts"]
    code, _, err = await plugin("artifact", RUN, artifact["path"], "-o", "fetched")
    assert code == 0, err
    assert hashlib.sha256((plugin.folder / "fetched").read_bytes()).hexdigest() == artifact["sha256"]

    code, out, err = await plugin("events", RUN, "--type", "tool.intent", "-o", "json")
    assert code == 0, err
    assert {"read_file", "write_file"} <= {json.loads(line)["payload"]["tool"] for line in out.splitlines()}
    code, _, err = await plugin("logs", RUN)
    assert code == 0, err


async def test_a_namespace_without_a_reader_is_told_what_to_do(
    cluster: Cluster, plugin: Plugin, namespace: str
) -> None:
    code, _, err = await Plugin(cluster, namespace, plugin.folder)("receipt", RUN)
    assert code == 1
    assert "agentNamespaces" in err
