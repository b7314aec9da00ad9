"""What each command does."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from . import download, tables
from .access import context_namespace, open_access
from .arguments import Options
from .errors import CliError
from .gateway import Gateway, open_gateway
from .kubectl import Kubectl, KubectlError
from .narration import Narrator

RUNS: Final = "runs.treadle.dev"
LABEL_RUN: Final = "treadle.dev/run"
LABEL_ATTEMPT: Final = "treadle.dev/attempt"
PAGE: Final = 100


async def execute(options: Options) -> int:
    """The exit code. Raises CliError."""
    kubectl = Kubectl(options)
    if options.command == "logs":
        return await _logs(kubectl, options)
    async with _gateway(kubectl, options) as gateway:
        match options.command:
            case "stream":
                return await _stream(gateway, options)
            case "receipt":
                return await _receipt(gateway, options)
            case "events":
                return await _events(gateway, options)
            case _:
                return await _artifact(gateway, options)


@asynccontextmanager
async def _gateway(kubectl: Kubectl, options: Options) -> AsyncIterator[Gateway]:
    async with open_access(kubectl, options) as access, open_gateway(access, options.run) as gateway:
        yield gateway


async def _stream(gateway: Gateway, options: Options) -> int:
    """0 for a success, 1 for every other end."""
    narrator, outcome = Narrator(), ""
    async with aclosing(gateway.follow(options.after)) as frames:
        async for frame in frames:
            if frame.event == "end":
                outcome = str(frame.data.get("outcome"))
            if options.output == "json":
                _print(_json({"event": frame.event, "id": frame.id, "data": frame.data}) + "\n")
            else:
                _print(narrator.tell(frame.event, frame.data))
    return 0 if outcome == "success" else 1


async def _receipt(gateway: Gateway, options: Options) -> int:
    answer = await gateway.receipt()
    _print(_json(answer, indent=2) + "\n" if options.output == "json" else tables.receipt(answer))
    return 0


async def _events(gateway: Gateway, options: Options) -> int:
    """Page by page, so that a long log begins to show at once."""
    after: int | None = _seq(options.after)
    shown = 0
    while after is not None and shown < options.limit:
        want = min(PAGE, options.limit - shown)
        page = await gateway.events(after=after, limit=want, types=options.types)
        if options.output == "json":
            _print("".join(_json(event) + "\n" for event in page["events"]))
        else:
            _print(tables.events(page["events"], heading=shown == 0))
        shown += len(page["events"])
        after = page["next"]
    if after is not None:
        _note(f"more events follow: --after {after}")
    return 0


async def _artifact(gateway: Gateway, options: Options) -> int:
    entry = download.listed(await gateway.receipt(), options.path)
    async with aclosing(gateway.artifact(options.path)) as pieces:
        if options.output == "-":
            await download.print_out(pieces, entry["sha256"])
            return 0
        where = download.target(options.path, options.output)
        size = await download.save(pieces, entry["sha256"], where)
    _note(f"{where}: {size} bytes, sha256 {entry['sha256']} as in the receipt")
    return 0


async def _logs(kubectl: Kubectl, options: Options) -> int:
    namespace = options.namespace or await context_namespace(kubectl)
    run = await _run_object(kubectl, namespace, options.run)
    pods = (await kubectl.get("pods", "-n", namespace, "-l", f"{LABEL_RUN}={run['metadata']['uid']}"))[
        "items"
    ]
    attempts = {
        int(pod["metadata"]["labels"].get(LABEL_ATTEMPT, "0")): pod["metadata"]["name"] for pod in pods
    }
    wanted = options.attempt or max(attempts, default=0)
    if wanted not in attempts:
        there = ", ".join(map(str, sorted(attempts)))
        phase = run.get("status", {}).get("phase", "unknown")
        what = f"attempt {wanted} has no pod (there are: {there})" if there else f"no pod (phase {phase})"
        raise CliError(
            f"run {options.run}: {what}",
            f"what happened is in the log of events: kubectl treadle events {options.run} -n {namespace}",
        )
    flags = [*(["-f"] if options.follow else []), *([f"--tail={options.tail}"] if options.tail else [])]
    return await kubectl.pass_through("logs", "-n", namespace, attempts[wanted], *flags)


async def _run_object(kubectl: Kubectl, namespace: str, run: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = await kubectl.get(RUNS, run, "-n", namespace)
    except KubectlError as error:
        raise CliError(str(error), f"kubectl get runs -n {namespace} shows which there are") from error
    return found


def _seq(after: str | None) -> int:
    if after is None:
        return 0
    if not after.isascii() or not after.isdigit():
        raise CliError(f"--after {after!r} is not a seq", "take one from the first column of events")
    return int(after)


def _json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _print(text: str) -> None:
    if text:
        sys.stdout.write(text)
        sys.stdout.flush()


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def run(options: Options) -> int:
    """`execute` on a loop of its own."""
    return asyncio.run(execute(options))
