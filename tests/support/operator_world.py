"""What the operator's tests stand in: a namespace, a store, an operator, a Node without a kubelet."""

import json
from dataclasses import dataclass
from typing import Any

from support.bare_node import BareNode
from support.cluster import Cluster
from support.eventually import eventually
from support.operator_process import OperatorProcess
from support.sql_agent import SqlAgent
from support.stores import Store
from treadle_api.names import API_VERSION, STORE_SECRET
from treadle_api.records import RunRecord, RunStatus, RunUID
from treadle_operator.kube import Kube
from treadle_operator.kube_errors import NotFound
from treadle_store.pool import Pool
from treadle_store.run_records import read_runs


@dataclass
class OperatorWorld:
    """The parts, and the words to tell what happens in them."""

    cluster: Cluster
    kube: Kube
    namespace: str
    store: Store
    agents: Pool
    reader: Pool
    node: BareNode
    operator: OperatorProcess

    async def apply(self, *objects: dict[str, Any]) -> None:
        await self.cluster.apply(*objects, namespace=self.namespace)

    async def run(self, name: str) -> dict[str, Any]:
        return await self.kube.get("runs", self.namespace, name)

    async def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.run(name)).get("status", {})
        return found

    async def pod(self, name: str) -> dict[str, Any]:
        """Waits for the pod object."""
        listed = await eventually(
            lambda: self._pods(name), f"pod {name} exists\n{self.operator.text()[-3000:]}", within=20
        )
        return listed[0]

    async def record(self, name: str) -> RunRecord:
        """The run's row and receipt as the store has them."""
        uid = RunUID((await self.run(name))["metadata"]["uid"])
        return (await read_runs(self.reader, [uid]))[uid]

    async def events(self, name: str) -> list[tuple[str, str]]:
        """Type and reason of the Events about the Run, in the order in which they were told."""
        told = [
            event
            async for event in self.kube.list_objects("events", self.namespace)
            if event["involvedObject"]["kind"] == "Run" and event["involvedObject"]["name"] == name
        ]
        told.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [(event["type"], event["reason"]) for event in told]

    async def finish(self, pod: str, outcome: RunStatus = RunStatus.SUCCESS) -> SqlAgent:
        """The whole life of an attempt: start, claim, settle, exit."""
        agent = await self.agent(pod)
        await self.node.runs(self.namespace, pod)
        await agent.claim()
        await agent.settle(outcome)
        await self.node.ends(self.namespace, pod, 0)
        return agent

    async def pods(self) -> list[dict[str, Any]]:
        return [pod async for pod in self.kube.list_objects("pods", self.namespace)]

    async def _pods(self, name: str) -> list[dict[str, Any]]:
        return [pod for pod in await self.pods() if pod["metadata"]["name"] == name]

    async def agent(self, pod: str) -> SqlAgent:
        """The agent of that pod, once the pod is there."""
        return SqlAgent(self.agents, await self.pod(pod))

    async def reaches(
        self, name: str, phase: str, reason: str | None = None, *, within: float = 20
    ) -> dict[str, Any]:
        """Waits until the Run shows that phase (and reason of Succeeded); its status."""
        seen: dict[str, Any] = {}

        async def there() -> dict[str, Any] | None:
            seen.clear()
            seen.update(await self.status(name))
            right = seen.get("phase") == phase and (reason is None or self.reason(seen) == reason)
            return seen if right else None

        try:
            await eventually(there, f"Run {name} is {phase}/{reason}", within=within)
            return seen
        except AssertionError as error:
            told = json.dumps(seen, indent=1)
            raise AssertionError(f"{error}\n{told}\n{self.operator.text()[-6000:]}") from None

    async def agent_reaches(self, name: str, ready: str, reason: str) -> str:
        """Waits until the Agent shows that Ready; its message."""

        async def there() -> str:
            status = (await self.kube.get("agents", self.namespace, name)).get("status", {})
            said = self.condition(status, "Ready")
            right = (said.get("status"), said.get("reason")) == (ready, reason)
            return str(said["message"]) if right else ""

        return await eventually(there, f"Agent {name} is Ready={ready}/{reason}", within=40)

    async def is_gone(self, name: str) -> None:
        """Waits until there is no such Run."""

        async def gone() -> bool:
            try:
                await self.run(name)
            except NotFound:
                return True
            return False

        await eventually(gone, f"Run {name} is gone\n{self.operator.text()[-3000:]}", within=20)

    async def counts(self, sample: str, wanted: float) -> None:
        """Waits until a counter of the operator has come to `wanted`, and fails where it is beyond.

        What a Run shows goes out before the operator has counted it.
        """

        async def reached() -> float:
            value = (await self.operator.metrics()).get(sample, 0.0)
            return value if value >= wanted else 0.0

        assert await eventually(reached, f"{sample} comes to {wanted}", within=15) == wanted

    async def patch_status(self, kind: str, name: str, patch: dict[str, Any]) -> None:
        """As somebody else who may write statuses."""
        await self.cluster.kubectl(
            "patch",
            kind,
            name,
            "--subresource=status",
            "--type=merge",
            f"--patch={json.dumps(patch)}",
            namespace=self.namespace,
        )

    @staticmethod
    def condition(status: dict[str, Any], type_: str) -> dict[str, Any]:
        return next((c for c in status.get("conditions", []) if c["type"] == type_), {})

    @classmethod
    def reason(cls, status: dict[str, Any]) -> str:
        return str(cls.condition(status, "Succeeded").get("reason", ""))

    def store_secret(self) -> dict[str, Any]:
        """What the chart puts into each namespace where agents may run; nobody reads it here."""
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": STORE_SECRET},
            "stringData": {"dsn": "postgresql://nobody@nowhere/none"},
        }

    def agent_object(self, name: str = "helper", **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": API_VERSION,
            "kind": "Agent",
            "metadata": {"name": name},
            "spec": {
                "image": "none:1",
                "model": {"provider": "openai", "name": "none"},
                "podTemplate": {"nodeSelector": self.node.selector, "tolerations": self.node.tolerations},
                **spec,
            },
        }

    def run_object(self, name: str = "sales", thread: str = "t", **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": API_VERSION,
            "kind": "Run",
            "metadata": {"name": name},
            "spec": {
                "threadRef": {"name": thread},
                "threadTemplate": {"agentRef": {"name": "helper"}},
                "input": {"text": "hello"},
                **spec,
            },
        }
