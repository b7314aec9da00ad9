"""The gateway's HTTP interface, with reconnects."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import aiohttp

from .access import Access
from .errors import CliError

ANSWER_SECONDS: Final = 30.0
SILENCE_SECONDS: Final = 45.0
"""The gateway's heartbeat comes every 15 s; after three missed ones the connection is given up."""
TRIES: Final = 8
"""Failed attempts in a row after which a stream is given up; each frame starts the count again."""
CHUNK_BYTES: Final = 65_536
LINE_BYTES: Final = 8 * 1024 * 1024
"""Longest line of a stream: an event of the log is at most 512 kB, as JSON somewhat more."""

_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 8.0


class Unreachable(CliError):
    """No answer, or one that promises better times."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One server-sent event of a run's stream."""

    event: str
    id: str
    data: Mapping[str, Any]


class Gateway:
    """Reads one run."""

    def __init__(self, http: aiohttp.ClientSession, access: Access, run: str) -> None:
        self._http = http
        self._access = access
        self._run = run

    async def receipt(self) -> dict[str, Any]:
        return await self._json("receipt")

    async def events(self, *, after: int, limit: int, types: tuple[str, ...]) -> dict[str, Any]:
        """One page."""
        query = [("after_seq", str(after)), ("limit", str(limit)), *(("type", type) for type in types)]
        return await self._json("events", query)

    async def artifact(self, path: str) -> AsyncGenerator[bytes]:
        """The file's bytes, in pieces."""
        async with self._get(f"artifacts/{quote(path)}") as response:
            async for piece in response.content.iter_chunked(CHUNK_BYTES):
                yield piece

    async def follow(self, after: str | None) -> AsyncGenerator[Frame]:
        """The run's frames behind `after` until its `end`, over any number of connections.

        Raises CliError where the gateway refuses, or is away for too long.
        """
        failures = 0
        while True:
            try:
                async with aclosing(self._connection(after)) as frames:
                    async for frame in frames:
                        failures = 0
                        after = frame.id or after
                        yield frame
                        if frame.event in {"end", "error"}:
                            return
                failures += 1
                lost: Exception = Unreachable("the gateway closed the stream")
            except (Unreachable, aiohttp.ClientError, TimeoutError) as error:
                failures += 1
                lost = error
            if failures >= TRIES:
                raise CliError(
                    f"the stream broke {TRIES} times in a row: {lost or type(lost).__name__}",
                    f"the run is not affected; continue with --after {after}" if after else "",
                )
            await asyncio.sleep(min(_FIRST_PAUSE_SECONDS * 2 ** (failures - 1), _LONGEST_PAUSE_SECONDS))

    async def _connection(self, after: str | None) -> AsyncGenerator[Frame]:
        headers = {"Last-Event-ID": after} if after else {}
        async with self._get("stream", headers=headers, silence=SILENCE_SECONDS) as response:
            fields: dict[str, str] = {}
            async for line in response.content:
                text = line.decode(errors="replace").rstrip("\r\n")
                if text.startswith(":"):
                    continue
                if text:
                    name, _, value = text.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    yield Frame(fields.get("event", ""), fields.get("id", ""), json.loads(fields["data"]))
                    fields = {}

    async def _json(self, rest: str, query: list[tuple[str, str]] | None = None) -> dict[str, Any]:
        async with self._get(rest, query=query) as response:
            answer: dict[str, Any] = await response.json()
            return answer

    @asynccontextmanager
    async def _get(
        self,
        rest: str,
        *,
        query: list[tuple[str, str]] | None = None,
        headers: Mapping[str, str] | None = None,
        silence: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One GET; once more with a fresh token where the first was refused."""
        for fresh in (False, True):
            token = await self._access.token(fresh=fresh)
            run = f"/ns/{self._access.namespace}/v1/runs/{quote(self._run, safe='')}"
            address = f"{await self._access.url()}{run}/{rest}"
            limits = aiohttp.ClientTimeout(
                total=None if silence else ANSWER_SECONDS, sock_connect=ANSWER_SECONDS, sock_read=silence
            )
            sent = {"Authorization": f"Bearer {token}", **(headers or {})}
            try:
                async with self._http.get(address, params=query, headers=sent, timeout=limits) as response:
                    if response.status == 401 and not fresh:
                        continue
                    if response.status != 200:
                        raise await _refusal(response)
                    yield response
                    return
            except aiohttp.ClientConnectorError as error:
                raise Unreachable(
                    f"the gateway does not answer: {error}", "is a gateway pod ready?"
                ) from error


async def _refusal(response: aiohttp.ClientResponse) -> CliError:
    """The gateway's own sentence, which says what to change."""
    try:
        problem = json.loads(await response.text())
        detail = str(problem["detail"])
    except (ValueError, KeyError, TypeError, aiohttp.ClientError):
        detail = f"the gateway answered {response.status} {response.reason}"
    return Unreachable(detail) if response.status in {429, 500, 502, 503, 504} else CliError(detail)


@asynccontextmanager
async def open_gateway(access: Access, run: str) -> AsyncIterator[Gateway]:
    async with aiohttp.ClientSession(read_bufsize=LINE_BYTES) as http:
        yield Gateway(http, access, run)
