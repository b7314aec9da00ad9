"""The release's stores let in those that have a role, each as far as the role reaches."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from support.cluster import Cluster
from support.release import Release


def _from_outside(cluster: Cluster, url: str, store: str) -> str:
    """The same login by the node port that the cluster maps to the host."""
    parts = urlsplit(url)
    login = f"{parts.username}:{parts.password}@" if parts.username else ""
    port = cluster.exports[f"TREADLE_{store}_PORT"]
    return parts._replace(netloc=f"{login}127.0.0.1:{port}").geturl()


@asynccontextmanager
async def _redis(cluster: Cluster, url: str) -> AsyncIterator[Any]:
    client = Redis.from_url(_from_outside(cluster, url, "REDIS"))
    try:
        yield client
    finally:
        await client.aclose()


async def test_nobody_uses_redis_without_a_login(cluster: Cluster, treadle_release: Release) -> None:
    urls = await treadle_release.secret("stream-access")
    async with _redis(cluster, urls["agent-url"]) as redis:
        with pytest.raises(AuthenticationError):
            await redis.get("treadle:x:token")


async def test_the_operator_makes_users_and_the_gateway_reads_streams_alone(
    cluster: Cluster, treadle_release: Release
) -> None:
    urls = await treadle_release.secret("stream-access")
    async with _redis(cluster, urls["operator-url"]) as redis:
        assert {"default", "treadle-operator", "treadle-gateway"} <= set(await redis.acl_users())
        assert (await redis.acl_getuser("default"))["enabled"] is False
    async with _redis(cluster, urls["gateway-url"]) as redis:
        assert await redis.xread({"treadle:test:thread:1i1:live": "0"}) == []
        with pytest.raises(NoPermissionError):
            await redis.xadd("treadle:test:thread:1i1:live", {"type": "forged"})
        with pytest.raises((NoPermissionError, ResponseError)):
            await redis.acl_users()


@pytest.mark.req("R92")
async def test_the_agents_login_reads_no_table(cluster: Cluster, treadle_release: Release) -> None:
    dsn = (await treadle_release.secret("store-access"))["agent-dsn"]
    connection = await asyncpg.connect(_from_outside(cluster, dsn, "POSTGRES"))
    try:
        for table in ("threads", "runs", "run_events", "receipts", "agent_pods", "checkpoints", "blobs"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.fetch(f"SELECT * FROM treadle.{table} LIMIT 1")
    finally:
        await connection.close()
