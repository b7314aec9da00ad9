"""The gateway as a process, outside any cluster."""

import asyncio
import os
import sys
from pathlib import Path

import httpx

from support.eventually import eventually
from treadle_store.devstore import free_port

ROOT = Path(__file__).parents[3]
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
current-context: none
users: [{name: none, user: {token: none}}]
"""


async def test_a_gateway_starts_without_its_store_and_says_that_it_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(KUBECONFIG, encoding="utf-8")
    port = free_port()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("crds", "runtime")),
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "TREADLE_STORE_DSN": f"postgresql://nobody@127.0.0.1:{free_port()}/none",
        "TREADLE_GATEWAY_HOST": "127.0.0.1",
        "TREADLE_GATEWAY_PORT": str(port),
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "treadle_gateway", env=environment)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=5) as client:

            async def alive() -> bool:
                assert process.returncode is None, "the gateway ended"
                try:
                    return (await client.get("/healthz")).status_code == 200
                except httpx.TransportError:
                    return False

            await eventually(alive, "the gateway answers", within=30)
            ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["title"]) == (503, "StoreUnavailable")
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 20)
