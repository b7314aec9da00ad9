"""The API server by plain HTTP, as the person of a kubeconfig or as whoever owns a token."""

import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

CALL_SECONDS = 15.0


@dataclass(frozen=True)
class Answer:
    """Status code and body of a response."""

    code: int
    body: dict[str, Any]

    @property
    def refusal(self) -> str | None:
        """What the server says against the request, None where it agrees."""
        return None if self.code < 300 else str(self.body.get("message", self.body))

    def agreed(self) -> dict[str, Any]:
        """The body; AssertionError where the server refused."""
        assert self.refusal is None, self.refusal
        return self.body


class ApiServer:
    """Requests to one API server. `path` begins at the root, as in `/api/v1/namespaces`."""

    def __init__(self, url: str, admin: aiohttp.ClientSession, anybody: aiohttp.ClientSession) -> None:
        self._url = url
        self._admin = admin
        self._anybody = anybody

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
        token: str | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        """Strict about field names, as kubectl is. With `token` the kubeconfig's identity is not used."""
        query = {"fieldManager": "treadle-tests", "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        headers = {"Content-Type": content_type}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        session = self._admin if token is None else self._anybody
        asks_for_change = method in {"POST", "PUT", "PATCH"}
        async with session.request(
            method, self._url + path, params=query if asks_for_change else {}, json=body, headers=headers
        ) as response:
            return Answer(response.status, await response.json(content_type=None))

    async def watch(self, path: str, *, since: str = "") -> AsyncIterator[dict[str, Any]]:
        """The events of a collection as the administrator, until the server ends it.

        Without `since`, a resourceVersion, what is there comes first.
        """
        query = {"watch": "1", "resourceVersion": since}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CALL_SECONDS)
        async with self._admin.get(self._url + path, params=query, timeout=timeout) as response:
            assert response.status == 200, await response.text()
            rest = b""
            async for data in response.content.iter_any():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    yield json.loads(line)


@asynccontextmanager
async def open_apiserver(kubeconfig: Path) -> AsyncIterator[ApiServer]:
    """The API server of the kubeconfig's current context (kind's: a client certificate within the file)."""
    url, known, unknown = _read(kubeconfig)
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=known), timeout=timeout) as admin,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=unknown), timeout=timeout) as anybody,
    ):
        yield ApiServer(url, admin, anybody)


def _read(kubeconfig: Path) -> tuple[str, ssl.SSLContext, ssl.SSLContext]:
    """Address, TLS with the person's certificate, TLS without."""
    config = yaml.safe_load(kubeconfig.read_text())
    context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
    cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
    user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
    ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(base64.b64decode(user["client-certificate-data"]))
        pair.write(base64.b64decode(user["client-key-data"]))
        pair.flush()
        known = ssl.create_default_context(cadata=ca)
        known.load_cert_chain(pair.name)
    return cluster["server"], known, ssl.create_default_context(cadata=ca)
