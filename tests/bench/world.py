"""An operator of this checkout outside the cluster, a store of its own, and pods that are only played.

So neither agents nor containers take part in what is measured: the API server, the scheduler, the operator,
Postgres and Redis do. For the API server a played agent costs what a real one does at least: two pod
statuses, and a GET and two PUTs of its Lease.
"""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.watching import Object, Watch, watching
from support.apiserver import ApiServer, open_apiserver
from support.bare_node import BareNode
from support.cluster import Cluster
from support.operator_process import OperatorProcess
from support.operator_world import OperatorWorld
from support.sql_agent import SqlAgent
from support.stores import Server, Store
from treadle_api.names import AGENT_SERVICE_ACCOUNT, API_VERSION, LABEL_RUN, LABEL_RUN_NAME, lease_name
from treadle_operator.kube import Kube
from treadle_operator.kube_login import Credentials
from treadle_store.devstore import DATABASE, DevStore
from treadle_store.migrate import connect, ensure_logins, migrate
from treadle_store.roles import LOGINS

AT_ONCE = 16
"""Requests under way when many objects are made."""


@dataclass(frozen=True)
class World:
    """`base` has the parts, `runs` and `pods` see its namespace."""

    base: OperatorWorld
    api: ApiServer
    redis_url: str
    runs: Watch
    pods: Watch

    def path(self, plural: str) -> str:
        group = {"runs": f"/apis/{API_VERSION}", "jobs": "/apis/batch/v1"}.get(plural, "/api/v1")
        return f"{group}/namespaces/{self.base.namespace}/{plural}"

    async def post(self, plural: str, *objects: Object) -> None:
        """Creates many at once."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def create(object_: Object) -> None:
            async with gate:
                (await self.api.request("POST", self.path(plural), object_)).agreed()

        await asyncio.gather(*(create(object_) for object_ in objects))

    def agent(self, pod: Object) -> "PlayedAgent":
        return PlayedAgent(self, SqlAgent(self.base.agents, pod))

    def job(self, name: str) -> Object:
        """The peer of a Run: one pod on the same Node, replaced when its node had to let it go."""
        container = {"name": "agent", "image": "none:1", "command": ["true"]}
        pod: Object = {
            "restartPolicy": "Never",
            "nodeSelector": self.base.node.selector,
            "tolerations": self.base.node.tolerations,
            "containers": [{**container, "securityContext": _RESTRICTED}],
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        }
        rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        spec = {"backoffLimit": 6, "template": {"spec": pod}, "podFailurePolicy": {"rules": [rule]}}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}

    async def delete_all(self, plural: str) -> None:
        words = ("delete", plural, "--all", "--wait=false")
        await self.base.cluster.kubectl(*words, namespace=self.base.namespace, seconds=660)


_RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@dataclass
class PlayedAgent:
    """Keeper and agent of one pod object."""

    world: World
    sql: SqlAgent
    lease: Object | None = None
    """As it was last written."""

    @property
    def run(self) -> str:
        return str(self.sql.pod["metadata"]["labels"][LABEL_RUN_NAME])

    async def begin(self) -> None:
        """Takes the Lease, claims, tells the operator."""
        assert await self.sql.take() is not None
        await self._hold(self.sql.holder)
        await self.sql.claim()
        await self.sql.nudge(self.world.redis_url, "claimed")

    async def finish(self) -> None:
        """Some events, the receipt, and the released Lease."""
        await self.sql.work("run.start", "message")
        await self.sql.settle()
        await self.sql.nudge(self.world.redis_url, "settled")
        await self._hold("")

    async def _hold(self, holder: str) -> None:
        """Reads the Lease the first time, as the keeper does."""
        kube, namespace = self.world.base.kube, self.world.base.namespace
        name = lease_name(self.sql.pod["metadata"]["labels"][LABEL_RUN])
        lease = self.lease or await kube.get("leases", namespace, name)
        lease["spec"]["holderIdentity"] = holder
        self.lease = await kube.replace("leases", namespace, name, lease)


@asynccontextmanager
async def standing(cluster: Cluster) -> AsyncIterator[World]:
    """All of it but the operator's process, which a benchmark starts; everything is taken away at the end."""
    async with AsyncExitStack() as stack:
        redis_url, store = await stack.enter_async_context(_store())
        namespace = f"bench-{secrets.token_hex(4)}"
        kube = Kube(Credentials(str(cluster.kubeconfig)))
        await kube.open()
        stack.push_async_callback(kube.close)
        api = await stack.enter_async_context(open_apiserver(cluster.kubeconfig))
        node = BareNode(cluster, f"bare-{namespace}")
        await node.create()
        stack.push_async_callback(node.delete)
        await cluster.kubectl("create", "namespace", namespace)
        stack.push_async_callback(_delete, cluster, kube, namespace)
        await cluster.kubectl(
            "wait", "--for=create", "serviceaccount/default", "--timeout=60s", namespace=namespace
        )
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": AGENT_SERVICE_ACCOUNT}}
        await cluster.apply(account, namespace=namespace)
        log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="treadle-bench-"))) / "operator.log"
        operator = OperatorProcess(_environment(cluster, store, redis_url, namespace), log)
        stack.push_async_callback(operator.kill)
        agents, reader = await store.pool("agent", max_size=AT_ONCE), await store.pool("operator")
        stack.push_async_callback(store.close)
        base = OperatorWorld(cluster, kube, namespace, store, agents, reader, node, operator)
        await base.apply(base.agent_object())
        prefix = f"namespaces/{namespace}"
        runs = await stack.enter_async_context(watching(api, f"/apis/{API_VERSION}/{prefix}/runs"))
        pods = await stack.enter_async_context(watching(api, f"/api/v1/{prefix}/pods"))
        yield World(base, api, redis_url, runs, pods)


@asynccontextmanager
async def _store() -> AsyncIterator[tuple[str, Store]]:
    async with DevStore.start(durable=True) as servers:
        admin = await connect(servers.admin_dsn, wait=10)
        passwords = {program: secrets.token_hex(8) for program in LOGINS}
        try:
            await migrate(admin)
            await ensure_logins(admin, passwords)
        finally:
            await admin.close()
        server = Server(servers.admin_dsn, servers.redis_url, passwords)
        yield (
            servers.redis_url,
            Store(DATABASE, servers.admin_dsn, **{p: server.dsn(DATABASE, p) for p in LOGINS}),
        )


def _environment(cluster: Cluster, store: Store, redis_url: str, namespace: str) -> dict[str, str]:
    return {
        "TREADLE_STORE_DSN": store.operator,
        "TREADLE_STREAM_URL": redis_url,
        "TREADLE_KUBECONFIG": str(cluster.kubeconfig),
        "TREADLE_WATCH_NAMESPACES": namespace,
        "TREADLE_NAMESPACE": namespace,
        "TREADLE_POD_NAME": "operator",
    }


async def _delete(cluster: Cluster, kube: Kube, namespace: str) -> None:
    """Also what an operator that is no more would have to let go, and pods that no kubelet ends."""
    for kind in ("runs", "threads"):
        async for left in kube.list_objects(kind, namespace):
            if left["metadata"].get("finalizers"):
                await kube.merge(
                    kind, namespace, left["metadata"]["name"], {"metadata": {"finalizers": None}}
                )
    words = ("delete", "jobs,pods", "--all", "--force", "--grace-period=0", "--ignore-not-found")
    await cluster.kubectl(*words, namespace=namespace, seconds=300)
    await cluster.kubectl("delete", "namespace", namespace, "--wait=false")
