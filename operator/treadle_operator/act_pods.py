"""The two objects that an attempt needs: its run's Lease and its pod."""

from contextlib import suppress

from pydantic import ValidationError

from treadle_api.agent import Agent
from treadle_api.names import ANNOTATION_POD, LABEL_ATTEMPT, lease_name
from treadle_api.reasons import Reason
from treadle_api.records import Assigned, Json
from treadle_api.resolved import ResolvedRun
from treadle_api.run import Run
from treadle_operator import podspec
from treadle_operator.kube import Kube
from treadle_operator.kube_errors import AlreadyExists, Conflict, NotFound, Rejected
from treadle_operator.leases import LeaseBook
from treadle_operator.lifecycle.actions import DeletePod
from treadle_operator.lifecycle.world import Problem
from treadle_operator.objects import Objects
from treadle_operator.observe import SeenRun
from treadle_operator.views import owned_by


class Refused(Exception):
    """The API server or the store does not take it; `problem` says why and whether it ever will."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Pods:
    def __init__(self, kube: Kube, objects: Objects, leases: LeaseBook, *, default_image: str) -> None:
        self._kube = kube
        self._objects = objects
        self._leases = leases
        self._default_image = default_image

    async def ensure_lease(self, seen: SeenRun, pod: str) -> None:
        """The run's Lease exists and names `pod`; its holder is empty unless it named that pod already.

        Raises Conflict where a holder renews at the same moment.
        """
        if seen.world.record is None:
            raise AssertionError("a Lease belongs to an admitted run")
        run = Run.model_validate(seen.raw)
        namespace, name = run.metadata.namespace, lease_name(run.metadata.uid)
        lease = None
        if seen.world.record.attempt > 0:
            lease = await self._lease(namespace, name)
        if lease is None:
            body = podspec.run_lease(run, ResolvedRun.model_validate(seen.world.record.config), pod=pod)
            try:
                self._leases.seen(await self._kube.create("leases", namespace, body))
                return
            except AlreadyExists:  # an operator before us came this far
                lease = await self._kube.get("leases", namespace, name)
        if (lease["metadata"].get("annotations") or {}).get(ANNOTATION_POD) == pod:
            self._leases.seen(lease)
            return
        change: Json = {
            "metadata": {
                "resourceVersion": lease["metadata"]["resourceVersion"],
                "annotations": {ANNOTATION_POD: pod},
            },
            "spec": {"holderIdentity": ""},
        }
        self._leases.seen(await self._kube.merge("leases", namespace, name, change))

    async def delete_lease(self, seen: SeenRun) -> None:
        """Once the run has ended: Leases are listed every few seconds, so none is kept for history."""
        run = seen.world.run
        known = self._leases.of_run(run.uid)
        if known is None:
            return
        with suppress(NotFound, Conflict):  # gone already; and a namesake is none of ours
            await self._kube.delete("leases", run.namespace, known.name, uid=known.uid)
        self._leases.forget(run.uid)

    async def _lease(self, namespace: str, name: str) -> Json | None:
        try:
            return await self._kube.get("leases", namespace, name)
        except NotFound:
            return None

    async def create(self, seen: SeenRun, assigned: Assigned, *, retries_left: int) -> None:
        """The pod of the attempt; one that is there already is taken if it is this Run's. Raises Refused."""
        if seen.agent is None or seen.world.record is None:
            raise AssertionError("a pod belongs to an admitted run and is built from its Agent")
        try:
            run, agent = Run.model_validate(seen.raw), Agent.model_validate(seen.agent)
        except ValidationError as error:
            told = f"Run or Agent cannot be read by this operator: {error.errors()[0]['msg']}"
            raise Refused(Problem(Reason.POD_CREATION_BACKOFF, told)) from error
        if not (agent.spec.image or self._default_image):
            told = f"Agent {agent.metadata.name} names no image and the operator knows no default; set image"
            raise Refused(Problem(Reason.POD_CREATION_BACKOFF, told))
        body = podspec.agent_pod(
            run,
            agent,
            ResolvedRun.model_validate(seen.world.record.config),
            attempt=assigned.attempt,
            pod_key=assigned.pod_key,
            retries_left=retries_left,
            default_image=self._default_image,
        )
        namespace, name = run.metadata.namespace, assigned.pod
        try:
            await self._objects.create("pods", namespace, body)
        except AlreadyExists:
            known = await self._objects.get("pods", namespace, name, live=True)
            if known is not None and not _same_attempt(known, run.metadata.uid, assigned.attempt):
                told = f"Pod {name} exists and is not of this Run; delete it, or rename the Run"
                raise Refused(Problem(Reason.POD_CREATION_BACKOFF, told)) from None
        except Rejected as rejected:
            raise Refused(refusal(rejected)) from rejected

    async def delete(self, seen: SeenRun, action: DeletePod) -> None:
        """A pod that is gone, or a namesake of it, is as good."""
        namespace = seen.world.run.namespace
        try:
            await self._kube.delete(
                "pods", namespace, action.name, uid=action.uid, grace_seconds=action.grace
            )
        except (NotFound, Conflict):
            await self._objects.get("pods", namespace, action.name, live=True)


def refusal(rejected: Rejected) -> Problem:
    """What the API server's refusal of a pod means: quota and admission may let it in later, a fault of the
    pod itself will not go away."""
    if rejected.status == 403:
        return Problem(Reason.POD_CREATION_BACKOFF, rejected.message)
    return Problem(Reason.INVALID_POD, rejected.message, final=True)


def _same_attempt(pod: Json, run_uid: str, attempt: int) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return owned_by(pod, run_uid) and labels.get(LABEL_ATTEMPT) == str(attempt)
