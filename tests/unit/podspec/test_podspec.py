"""The Pod and the Lease as they are sent."""

import json
from typing import Any

import pytest

from treadle_api import contract, names
from treadle_api.agent import Agent
from treadle_api.resolved import ResolvedRun
from treadle_api.run import Run
from treadle_operator.podspec import GRACE_SECONDS, agent_pod, run_lease

POD_KEY = "pod-key-0123456789"


def a_run(name: str = "review", **spec: Any) -> Run:
    return Run.model_validate(
        {
            "metadata": {"name": name, "namespace": "team", "uid": "uid-1"},
            "spec": {"threadRef": {"name": "sales"}, "input": {"text": "Hi"}, **spec},
        }
    )


def an_agent(**spec: Any) -> Agent:
    model = {"provider": "openai", "name": "gpt"}
    return Agent.model_validate(
        {"metadata": {"name": "reviewer", "namespace": "team"}, "spec": {"model": model, **spec}}
    )


def pod(run: Run | None = None, agent: Agent | None = None, attempt: int = 1) -> dict[str, Any]:
    return agent_pod(
        run or a_run(),
        agent or an_agent(),
        ResolvedRun(),
        attempt=attempt,
        pod_key=POD_KEY,
        retries_left=2,
        default_image="treadle-runtime:1",
    )


def container(found: dict[str, Any]) -> dict[str, Any]:
    (only,) = found["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def environment(found: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry for entry in container(found)["env"]}


def test_the_pod_is_restricted() -> None:
    """https://kubernetes.io/docs/concepts/security/pod-security-standards, profile Restricted."""
    spec, only = pod()["spec"], container(pod())
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {kind for volume in spec["volumes"] for kind in volume if kind != "name"} == {
        "emptyDir",
        "projected",
    }
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()


def test_the_pod_is_one_attempt_and_ends_with_it() -> None:
    found = pod(attempt=3)
    assert found["metadata"]["name"] == "review-a3"
    assert found["spec"]["restartPolicy"] == "Never"
    assert found["spec"]["terminationGracePeriodSeconds"] == GRACE_SECONDS
    assert int(environment(found)[contract.ENV_DRAIN_SECONDS]["value"]) < GRACE_SECONDS
    assert container(found)["terminationMessagePath"] == contract.TERMINATION_MESSAGE_PATH
    assert "command" not in container(found)
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Run", "uid-1", True)
    assert found["metadata"]["labels"] == {
        names.LABEL_MANAGED_BY: "treadle",
        names.LABEL_RUN: "uid-1",
        names.LABEL_RUN_NAME: "review",
        names.LABEL_AGENT: "reviewer",
        names.LABEL_ATTEMPT: "3",
    }


def test_the_same_attempt_always_gives_the_same_pod() -> None:
    assert json.dumps(pod(), sort_keys=True) == json.dumps(pod(), sort_keys=True)


def test_the_pod_key_stands_in_one_variable_and_no_token_anywhere() -> None:
    text = json.dumps(pod())
    assert text.count(POD_KEY) == 1
    assert environment(pod())[contract.ENV_POD_KEY] == {"name": contract.ENV_POD_KEY, "value": POD_KEY}
    assert "fence" not in text.lower()
    assert "fencing" not in text.lower()


def test_secrets_are_named_never_copied() -> None:
    found = environment(pod())
    assert found[contract.ENV_STORE_DSN]["valueFrom"] == {
        "secretKeyRef": {"name": "treadle-store", "key": "dsn"}
    }
    assert found[contract.ENV_STREAM_URL]["valueFrom"]["secretKeyRef"]["optional"] is True
    assert contract.ENV_MODEL_API_KEY not in found
    agent = an_agent(
        model={"provider": "openai", "name": "gpt", "apiKeySecretKeyRef": {"name": "keys", "key": "openai"}},
        storeSecretRef={"name": "own-store"},
        streamSecretRef={"name": "own-stream"},
    )
    own = environment(pod(agent=agent))
    key = own[contract.ENV_MODEL_API_KEY]["valueFrom"]
    assert key == {"secretKeyRef": {"name": "keys", "key": "openai"}}
    assert own[contract.ENV_STORE_DSN]["valueFrom"]["secretKeyRef"]["name"] == "own-store"
    assert own[contract.ENV_STREAM_URL]["valueFrom"]["secretKeyRef"]["name"] == "own-stream"


def test_the_pod_learns_who_it_is_from_the_kubelet() -> None:
    found = environment(pod())
    for variable, path in (
        (contract.ENV_POD_NAME, "metadata.name"),
        (contract.ENV_POD_UID, "metadata.uid"),
        (contract.ENV_NAMESPACE, "metadata.namespace"),
    ):
        assert found[variable]["valueFrom"] == {"fieldRef": {"fieldPath": path}}


def test_the_pod_learns_whether_another_attempt_would_follow() -> None:
    assert environment(pod())[contract.ENV_RETRIES_LEFT]["value"] == "2"


def test_the_token_of_the_service_account_is_bound_and_lasts_an_hour() -> None:
    spec = pod()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == names.AGENT_SERVICE_ACCOUNT
    sources = next(v["projected"]["sources"] for v in spec["volumes"] if v["name"] == "token")
    assert sources[0] == {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}


def test_every_place_to_write_to_has_a_limit_above_the_workspaces_own() -> None:
    volumes = {v["name"]: v["emptyDir"]["sizeLimit"] for v in pod()["spec"]["volumes"] if "emptyDir" in v}
    assert int(volumes["workspace"]) > ResolvedRun().workspace.max_bytes
    assert int(volumes["tmp"]) > 0
    assert {m["name"] for m in container(pod())["volumeMounts"]} == {"workspace", "tmp", "token"}


def test_unsaid_resources_are_requested_and_cpu_is_not_limited() -> None:
    assert container(pod())["resources"] == {
        "requests": {"cpu": "100m", "memory": "256Mi"},
        "limits": {"memory": "1Gi"},
    }


@pytest.mark.parametrize(
    ("agent", "run", "expected"),
    [
        ({"limits": {"memory": "128Mi"}}, None, {"requests": {"cpu": "100m"}, "limits": {"memory": "128Mi"}}),
        ({"requests": {"memory": "4Gi"}}, None, {"requests": {"cpu": "100m", "memory": "4Gi"}, "limits": {}}),
        ({"limits": {"memory": "1Gi", "cpu": 1}}, {"limits": {"memory": "2Gi"}},
         {"requests": {}, "limits": {"memory": "2Gi", "cpu": 1}}),
    ],
)  # fmt: skip
def test_a_persons_amounts_win_and_ours_never_contradict_them(
    agent: dict[str, Any], run: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    below = a_run(podTemplate={"resources": run}) if run else a_run()
    found = pod(below, an_agent(podTemplate={"resources": agent}))
    assert container(found)["resources"] == expected


def test_a_run_shapes_where_its_pod_runs_and_not_who_it_is() -> None:
    agent = an_agent(
        image="own:2",
        imagePullPolicy="Never",
        podTemplate={
            "labels": {"team": "a", "tier": "1"},
            "annotations": {"note": "x"},
            "nodeSelector": {"disk": "ssd", "zone": "a"},
            "tolerations": [{"key": "agents", "operator": "Exists"}],
            "env": [{"name": "LOG", "value": "debug"}],
            "serviceAccountName": "own",
            "priorityClassName": "high",
            "runtimeClassName": "gvisor",
            "imagePullSecrets": [{"name": "registry"}],
        },
    )
    run = a_run(podTemplate={"labels": {"tier": "2"}, "nodeSelector": {"zone": "b"}})
    found = pod(run, agent)
    spec, metadata = found["spec"], found["metadata"]
    assert {k: v for k, v in metadata["labels"].items() if "/" not in k} == {"team": "a", "tier": "2"}
    assert metadata["annotations"] == {"note": "x"}
    assert spec["nodeSelector"] == {"disk": "ssd", "zone": "b"}
    assert spec["tolerations"] == [{"key": "agents", "operator": "Exists"}]
    assert (spec["serviceAccountName"], spec["priorityClassName"], spec["runtimeClassName"]) == (
        "own",
        "high",
        "gvisor",
    )
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert (container(found)["image"], container(found)["imagePullPolicy"]) == ("own:2", "Never")
    assert environment(found)["LOG"] == {"name": "LOG", "value": "debug"}


def test_long_names_stay_within_what_kubernetes_takes() -> None:
    found = pod(a_run("r" * 52), attempt=100)
    assert len(found["metadata"]["name"]) <= 63
    assert all(len(value) <= 63 for value in found["metadata"]["labels"].values())


def test_a_new_lease_is_held_by_nobody_and_names_the_pod_that_may_take_it() -> None:
    lease = run_lease(a_run(), ResolvedRun(), pod="review-a1")
    assert lease["metadata"]["name"] == "run-uid-1"
    assert lease["metadata"]["annotations"] == {names.ANNOTATION_POD: "review-a1"}
    assert lease["metadata"]["labels"][names.LABEL_RUN] == "uid-1"
    assert lease["spec"]["holderIdentity"] == ""
    assert lease["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
