"""The agent's Pod and the run's Lease, as the JSON that is sent (02-api, "Pods and Leases"; 10-agent-pods).

Pure. The pod passes the restricted Pod Security Standard, carries neither token nor fence key, and has a name
that follows from Run and attempt. Its pod key stands in the environment of its one container.
"""

from collections.abc import Mapping
from typing import Any

from treadle_api import contract, names
from treadle_api.agent import Agent
from treadle_api.pod import AgentPodTemplate, EnvVar, Quantities, RunPodTemplate
from treadle_api.records import Json
from treadle_api.resolved import ResolvedRun
from treadle_api.run import Run

CONTAINER = "agent"
DRAIN_SECONDS = 30
"""What an agent has, after SIGTERM, to reach a boundary, flush its journal and release its Lease."""
GRACE_SECONDS = DRAIN_SECONDS + 15
TOKEN_SECONDS = 3600
TMP_BYTES = 256 * 1024 * 1024
WORKSPACE_MARGIN = 64 * 1024 * 1024
"""Room above the workspace's own limit: the agent refuses a file before the kubelet evicts the pod for it."""
_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path

_REQUESTS: Mapping[str, str] = {"cpu": "100m", "memory": "256Mi"}
_LIMITS: Mapping[str, str] = {"memory": "1Gi"}
"""No CPU limit: below one core it makes the two seconds of imports ten."""


def agent_pod(
    run: Run,
    agent: Agent,
    settings: ResolvedRun,
    *,
    attempt: int,
    pod_key: str,
    retries_left: int,
    default_image: str,
) -> Json:
    """The pod of one attempt. `default_image` is the installation's runtime image."""
    above = agent.spec.pod_template or AgentPodTemplate()
    below = run.spec.pod_template or RunPodTemplate()
    spec: Json = {
        "restartPolicy": "Never",
        "serviceAccountName": above.service_account_name or names.AGENT_SERVICE_ACCOUNT,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            _container(agent, above, below, _environment(agent, pod_key, retries_left), default_image)
        ],
        "volumes": _volumes(settings),
    }
    optional: Json = {
        "nodeSelector": {**(above.node_selector or {}), **(below.node_selector or {})},
        "tolerations": [_dump(t) for t in (below.tolerations or above.tolerations or ())],
        "imagePullSecrets": [_dump(ref) for ref in above.image_pull_secrets or ()],
        "priorityClassName": above.priority_class_name,
        "runtimeClassName": above.runtime_class_name,
    }
    spec |= {key: value for key, value in optional.items() if value}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.pod_name(run.metadata.name, attempt),
            "namespace": run.metadata.namespace,
            "labels": {
                **(above.labels or {}),
                **(below.labels or {}),
                **_labels(run),
                names.LABEL_AGENT: agent.metadata.name,
                names.LABEL_ATTEMPT: str(attempt),
            },
            **({"annotations": dict(above.annotations)} if above.annotations else {}),
            "ownerReferences": [owner_reference(run)],
        },
        "spec": spec,
    }


def run_lease(run: Run, settings: ResolvedRun, *, pod: str) -> Json:
    """The run's Lease as it is created: nobody holds it, `pod` may take it. The duration in it is for
    readers; the operator judges by `settings` alone."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": names.lease_name(run.metadata.uid),
            "namespace": run.metadata.namespace,
            "labels": _labels(run),
            "annotations": {names.ANNOTATION_POD: pod},
            "ownerReferences": [owner_reference(run)],
        },
        "spec": {"holderIdentity": "", "leaseDurationSeconds": settings.lease.duration_seconds},
    }


def owner_reference(run: Run) -> Json:
    """Garbage collection takes pods and Lease with their Run; the uid keeps a namesake's away."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Run",
        "name": run.metadata.name,
        "uid": run.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def _labels(run: Run) -> dict[str, str]:
    return {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_RUN: run.metadata.uid,
        names.LABEL_RUN_NAME: names.bounded(run.metadata.name),
    }


def _container(
    agent: Agent,
    above: AgentPodTemplate,
    below: RunPodTemplate,
    environment: list[Json],
    default_image: str,
) -> Json:
    container: Json = {
        "name": CONTAINER,
        "image": agent.spec.image or default_image,
        "env": [*environment, *(_variable(env) for env in above.env or ())],
        "resources": resources(above, below),
        "terminationMessagePath": contract.TERMINATION_MESSAGE_PATH,
        "terminationMessagePolicy": "File",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "workspace", "mountPath": contract.WORKSPACE_PATH},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - a mount of the pod's own
            {"name": "token", "mountPath": _TOKEN_PATH, "readOnly": True},
        ],
    }
    if agent.spec.image_pull_policy is not None:
        container["imagePullPolicy"] = agent.spec.image_pull_policy.value
    return container


def _environment(agent: Agent, pod_key: str, retries_left: int) -> list[Json]:
    store = agent.spec.store_secret_ref.name if agent.spec.store_secret_ref else names.STORE_SECRET
    stream = agent.spec.stream_secret_ref.name if agent.spec.stream_secret_ref else names.STREAM_SECRET
    variables = [
        {"name": contract.ENV_POD_KEY, "value": pod_key},
        _field(contract.ENV_POD_NAME, "metadata.name"),
        _field(contract.ENV_POD_UID, "metadata.uid"),
        _field(contract.ENV_NAMESPACE, "metadata.namespace"),
        _secret(contract.ENV_STORE_DSN, store, "dsn"),
        _secret(contract.ENV_STREAM_URL, stream, "url", optional=True),
        {"name": contract.ENV_WORKSPACE, "value": contract.WORKSPACE_PATH},
        {"name": contract.ENV_DRAIN_SECONDS, "value": str(DRAIN_SECONDS)},
        {"name": contract.ENV_RETRIES_LEFT, "value": str(retries_left)},
        {"name": "HOME", "value": "/tmp"},  # noqa: S108 - the only place besides the workspace to write to
    ]
    key = agent.spec.model.api_key_secret_key_ref
    if key is not None:
        variables.append(_secret(contract.ENV_MODEL_API_KEY, key.name, key.key))
    return variables


def _field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _secret(name: str, secret: str, key: str, *, optional: bool = False) -> Json:
    """By reference: the kubelet reads the Secret, the operator never does. The wire is optional: without it
    viewers wait longer and nothing is lost (P4)."""
    reference: Json = {"name": secret, "key": key}
    if optional:
        reference["optional"] = True
    return {"name": name, "valueFrom": {"secretKeyRef": reference}}


def _variable(env: EnvVar) -> Json:
    return _dump(env)


def resources(above: AgentPodTemplate, below: RunPodTemplate) -> Json:
    """The Run's amounts over the Agent's over ours. Ours stand back where a person said anything about that
    resource, or a request could come out greater than its limit."""
    requests = {**_amounts(above, "requests"), **_amounts(below, "requests")}
    limits = {**_amounts(above, "limits"), **_amounts(below, "limits")}
    named = requests.keys() | limits.keys()
    ours_requested = {k: v for k, v in _REQUESTS.items() if k not in named}
    ours_limited = {k: v for k, v in _LIMITS.items() if k not in named}
    return {"requests": {**ours_requested, **requests}, "limits": {**ours_limited, **limits}}


def _amounts(template: RunPodTemplate, kind: str) -> Quantities:
    said = template.resources
    amounts: Quantities | None = getattr(said, kind) if said is not None else None
    return amounts or {}


def _volumes(settings: ResolvedRun) -> list[Json]:
    size = settings.workspace.max_bytes + WORKSPACE_MARGIN
    return [
        {"name": "workspace", "emptyDir": {"sizeLimit": str(size)}},
        {"name": "tmp", "emptyDir": {"sizeLimit": str(TMP_BYTES)}},
        {
            "name": "token",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
                    {
                        "configMap": {
                            "name": "kube-root-ca.crt",
                            "items": [{"key": "ca.crt", "path": "ca.crt"}],
                        }
                    },
                    {
                        "downwardAPI": {
                            "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
                        }
                    },
                ]
            },
        },
    ]


def _dump(model: Any) -> Json:
    dumped: Json = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped
