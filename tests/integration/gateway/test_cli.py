"""`kubectl treadle` as a process, against a real gateway; kubectl itself is played by a script."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.claims import NAMESPACE
from support.eventually import eventually
from support.gateway import READER_TOKEN, GatewayUnderTest
from support.live_runs import LiveRuns
from treadle_api.records import RunStatus

ROOT = Path(__file__).parents[3]
KUBECTL = """#!{python}
import json, os, pathlib, sys, time
folder, words = pathlib.Path({folder!r}), sys.argv[1:]
with (folder / "calls").open("a") as calls:
    calls.write(" ".join(words) + "\\n")
if words[:2] == ["create", "token"]:
    tokens = folder / "tokens"
    known = tokens.read_text().splitlines()
    if not known:
        sys.exit("error: serviceaccounts \\"treadle-reader\\" not found")
    print(known[0])
    tokens.write_text("\\n".join(known[1:] or known))
elif words[0] == "config":
    print("{namespace}" if "namespace" in words[-1] else "", end="")
elif words[:2] == ["get", "services"]:
    print((folder / "services.json").read_text())
elif words[:2] == ["get", "runs.treadle.dev"]:
    if words[2] == "gone":
        sys.exit('Error from server (NotFound): runs.treadle.dev "gone" not found')
    print(json.dumps({{"metadata": {{"uid": "u"}}, "status": {{"phase": "Failed"}}}}))
elif words[:2] == ["get", "pods"]:
    print((folder / "pods.json").read_text())
elif words[0] == "logs":
    print("log of", words[3], *words[4:])
elif words[0] == "port-forward":
    (folder / "forward").write_text(str(os.getpid()))
    print("Forwarding from 127.0.0.1:{port} -> 8080", flush=True)
    time.sleep(60)
else:
    sys.exit("unexpected: " + " ".join(words))
"""


@dataclass
class Cli:
    folder: Path

    @asynccontextmanager
    async def started(self, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
        path = os.pathsep.join(str(ROOT / name) for name in ("crds", "operator", "runtime"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "treadle_cli", *words),
            cwd=self.folder,
            env={**os.environ, "PATH": f"{self.folder}:/usr/bin:/bin", "PYTHONPATH": path, "PYTHONUTF8": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def __call__(self, *words: str) -> tuple[int, str, str]:
        async with self.started(*words) as process, asyncio.timeout(60):
            out, err = await process.communicate()
            return process.returncode or 0, out.decode(), err.decode()

    def calls(self) -> str:
        return (self.folder / "calls").read_text()

    def told(self, name: str, value: object) -> None:
        (self.folder / name).write_text(value if isinstance(value, str) else json.dumps(value))


@pytest.fixture
def cli(tmp_path: Path, polling_gateway: GatewayUnderTest) -> Cli:
    script = tmp_path / "kubectl"
    port = polling_gateway.url.rsplit(":", 1)[1]
    script.write_text(
        KUBECTL.format(python=sys.executable, folder=str(tmp_path), namespace=NAMESPACE, port=port)
    )
    script.chmod(0o755)
    cli = Cli(tmp_path)
    cli.told("tokens", READER_TOKEN)
    cli.told("services.json", {"items": [{"metadata": {"namespace": "system", "name": "a-gateway"}}]})
    return cli


async def test_a_stream_is_told_to_its_end_through_a_port_forward(wireless: LiveRuns, cli: Cli) -> None:
    run = await wireless.start()
    await run.say("x", type="tool.intent")
    await run.settle()
    code, out, err = await cli("stream", run.name)
    assert (code, err) == (0, "")
    assert out == f"run {run.name}, attempt 1\n• None()\nsuccess (Delivered: done)\n"
    assert "port-forward -n system svc/a-gateway :8080" in cli.calls()
    assert f"create token treadle-reader -n {NAMESPACE} --audience treadle-gateway" in cli.calls()
    with pytest.raises(ProcessLookupError):
        os.kill(int((cli.folder / "forward").read_text()), 0)


async def test_the_exit_code_tells_a_failed_run(wireless: LiveRuns, cli: Cli) -> None:
    run = await wireless.start()
    await run.settle(RunStatus.ERROR)
    code, out, _ = await cli("stream", run.name, "-o", "json")
    frames = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [frame["event"] for frame in frames] == ["metadata", "run.end", "run.delivery", "end"]
    assert all(frame["id"] for frame in frames)


@pytest.mark.req("R42")
async def test_a_broken_port_forward_is_made_again_and_nothing_is_told_twice(
    wireless: LiveRuns, cli: Cli, polling_gateway: GatewayUnderTest
) -> None:
    run = await wireless.start()
    await run.say("before")
    async with cli.started("stream", run.name, "-o", "json") as process, asyncio.timeout(60):
        assert process.stdout is not None
        seen: list[dict[str, object]] = []
        while not seen or seen[-1]["event"] != "message":
            seen.append(json.loads(await process.stdout.readline()))
        os.kill(int((cli.folder / "forward").read_text()), 15)
        polling_gateway.services.streams.limit = 0
        for connection in list(polling_gateway.server.server_state.connections):
            connection.transport.abort()

        async def refused() -> bool:
            return cli.calls().count("port-forward") > 1

        await eventually(refused, "the port-forward is made again", within=20)
        polling_gateway.services.streams.limit = 20
        await run.say("after")
        await run.settle()
        rest = (await process.stdout.read()).decode().splitlines()
        assert await process.wait() == 0
    texts = [json.loads(line)["data"].get("text") for line in rest if json.loads(line)["event"] == "message"]
    assert texts == ["after"]


async def test_a_token_that_ran_out_is_replaced(wireless: LiveRuns, cli: Cli) -> None:
    run = await wireless.start()
    cli.told("tokens", f"expired\n{READER_TOKEN}")
    code, out, _ = await cli("events", run.name)
    assert (code, out.split()) == (0, ["SEQ", "TIME", "TYPE", "SUMMARY"])


async def test_events_and_receipt_are_tables_or_json(wireless: LiveRuns, cli: Cli) -> None:
    run = await wireless.start()
    for number in range(150):
        await run.say(f"word {number}")
    await run.settle()
    code, out, err = await cli("events", run.name, "--limit", "120")
    assert (code, len(out.splitlines())) == (0, 121)
    assert "--after 120" in err
    _, out, _ = await cli("events", run.name, "--after", "149", "-o", "json")
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [150, 151, 152]
    _, out, _ = await cli("receipt", run.name)
    assert "Outcome:      success" in out
    _, out, _ = await cli("receipt", run.name, "-o", "json")
    assert json.loads(out)["payload"]["outcome"] == "success"


async def test_an_artifact_is_fetched_and_checked(wireless: LiveRuns, cli: Cli) -> None:
    run = await wireless.start()
    data = os.urandom(300_000)
    await run.present("out/sales review.bin", data, "application/octet-stream")
    await run.settle()
    code, _, err = await cli("artifact", run.name, "out/sales review.bin")
    assert (code, (cli.folder / "sales review.bin").read_bytes() == data) == (0, True)
    assert "as in the receipt" in err
    code, _, err = await cli("artifact", run.name, "out/sales review.bin")
    assert (code, "exists here" in err) == (1, True)
    code, _, _ = await cli("artifact", run.name, "out/sales review.bin", "-o", "other")
    assert (code, (cli.folder / "other").read_bytes() == data) == (0, True)
    code, _, err = await cli("artifact", run.name, "none")
    assert (code, "out/sales review.bin" in err) == (1, True)


async def test_logs_are_those_of_the_newest_attempts_pod(wireless: LiveRuns, cli: Cli) -> None:
    pods = [{"metadata": {"name": f"r-a{n}", "labels": {"treadle.dev/attempt": str(n)}}} for n in (2, 10, 9)]
    cli.told("pods.json", {"items": pods})
    assert (await cli("logs", "r", "-f", "--tail", "5"))[:2] == (0, "log of r-a10 -f --tail=5\n")
    assert (await cli("logs", "r", "--attempt", "2"))[1] == "log of r-a2\n"
    code, _, err = await cli("logs", "r", "--attempt", "3")
    assert (code, "attempt 3 has no pod (there are: 2, 9, 10)" in err) == (1, True)
    cli.told("pods.json", {"items": []})
    code, _, err = await cli("logs", "r")
    assert (code, "kubectl treadle events r" in err) == (1, True)
    code, _, err = await cli("logs", "gone")
    assert (code, f"kubectl get runs -n {NAMESPACE}" in err) == (1, True)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("tokens", "", "agentNamespaces"),
        ("tokens", "unknown", "does not accept this token"),
        ("services.json", {"items": []}, "no gateway in this cluster"),
        ("services.json", {"items": [{"metadata": {"namespace": n, "name": n}} for n in "ab"]}, "in a, b"),
    ],
)
async def test_what_stands_in_the_way_is_told_with_the_next_step(
    wireless: LiveRuns, cli: Cli, name: str, value: object, said: str
) -> None:
    run = await wireless.start()
    cli.told(name, value)
    code, out, err = await cli("receipt", run.name)
    assert (code, out) == (1, "")
    assert said in err
    assert "Traceback" not in err


async def test_an_unknown_run_is_told_as_the_gateway_tells_it(wireless: LiveRuns, cli: Cli) -> None:
    code, _, err = await cli("stream", "no-such-run")
    assert (code, f"kubectl get run no-such-run -n {NAMESPACE}" in err) == (1, True)


async def test_a_gateway_that_is_away_is_told(wireless: LiveRuns, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    options = ("--gateway-url", "http://127.0.0.1:9", "--token-file", str(tmp_path / "token"))
    code, _, err = await cli("receipt", "r", *options)
    assert (code, "is a gateway pod ready?" in err) == (1, True)
