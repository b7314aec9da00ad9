"""The operator's calls on a real API server: what they do, and what their failures are called."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.cluster import Cluster
from treadle_api.names import FIELD_MANAGER, FINALIZER
from treadle_operator.kube import Kube
from treadle_operator.kube_errors import AlreadyExists, Conflict, NotFound, Rejected, Unavailable
from treadle_operator.kube_login import Credentials


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def run(name: str = "sales") -> dict[str, Any]:
    return {
        "apiVersion": "treadle.dev/v1alpha1",
        "kind": "Run",
        "metadata": {"name": name},
        "spec": {"threadRef": {"name": "t"}, "input": {"text": "hello"}},
    }


def lease(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"holderIdentity": ""},
    }


async def test_what_is_created_can_be_read_listed_and_deleted_by_uid(kube: Kube, namespace: str) -> None:
    made = await kube.create("configmaps", namespace, config_map("a", k="v"))
    assert (await kube.get("configmaps", namespace, "a"))["data"] == {"k": "v"}
    names = [item["metadata"]["name"] async for item in kube.list_objects("configmaps", namespace)]
    assert "a" in names
    await kube.delete("configmaps", namespace, "a", uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        await kube.get("configmaps", namespace, "a")


async def test_a_list_goes_on_over_its_pages(
    kube: Kube, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle_operator.kube.PAGE", 2)
    for n in range(5):
        body = config_map(f"c{n}")
        body["metadata"]["labels"] = {"mine": "yes"}
        await kube.create("configmaps", namespace, body)
    found = [item async for item in kube.list_objects("configmaps", namespace, labels="mine=yes")]
    assert sorted(item["metadata"]["name"] for item in found) == [f"c{n}" for n in range(5)]


async def test_a_second_create_says_that_it_exists(kube: Kube, namespace: str) -> None:
    await kube.create("leases", namespace, lease("l", namespace))
    with pytest.raises(AlreadyExists):
        await kube.create("leases", namespace, lease("l", namespace))


async def test_a_delete_with_the_uid_of_a_predecessor_is_a_conflict(kube: Kube, namespace: str) -> None:
    await kube.create("configmaps", namespace, config_map("a"))
    with pytest.raises(Conflict):
        await kube.delete("configmaps", namespace, "a", uid="00000000-0000-0000-0000-000000000000")


async def test_a_replace_with_an_old_version_is_a_conflict(kube: Kube, namespace: str) -> None:
    first = await kube.create("leases", namespace, lease("l", namespace))
    body = lease("l", namespace) | {"metadata": first["metadata"]}
    body["spec"] = {"holderIdentity": "me"}
    await kube.replace("leases", namespace, "l", body)
    with pytest.raises(Conflict):
        await kube.replace("leases", namespace, "l", body)


async def test_a_status_is_written_only_to_the_object_that_was_seen(kube: Kube, namespace: str) -> None:
    seen = await kube.create("runs", namespace, run())
    written = await kube.replace_status("runs", seen, {"observedGeneration": 1, "phase": "Pending"})
    assert written["status"]["phase"] == "Pending"
    assert written["metadata"]["generation"] == 1
    with pytest.raises(Conflict):
        await kube.replace_status("runs", seen, {"observedGeneration": 1, "phase": "Queued"})


async def test_a_field_that_is_no_longer_said_goes(kube: Kube, namespace: str) -> None:
    seen = await kube.create("runs", namespace, run())
    seen = await kube.replace_status("runs", seen, {"observedGeneration": 1, "phase": "Queued", "attempt": 1})
    seen = await kube.replace_status("runs", seen, {"observedGeneration": 1, "phase": "Starting"})
    assert "attempt" not in seen["status"]


async def test_what_another_hand_wrote_into_the_status_goes_with_the_next_write(
    cluster: Cluster, kube: Kube, namespace: str
) -> None:
    seen = await kube.create("runs", namespace, run())
    await kube.replace_status("runs", seen, {"observedGeneration": 1, "phase": "Starting"})
    patch = json.dumps({"status": {"model": "by hand"}})
    words = ("patch", "run/sales", "--subresource=status", "--type=merge", f"--patch={patch}")
    await cluster.kubectl(*words, namespace=namespace)
    by_hand = await kube.get("runs", namespace, "sales")
    assert by_hand["status"]["model"] == "by hand"
    seen = await kube.replace_status("runs", by_hand, {"observedGeneration": 1, "phase": "Running"})
    assert seen["status"] == {"observedGeneration": 1, "phase": "Running"}


async def test_a_status_of_an_object_that_is_gone_is_not_found(kube: Kube, namespace: str) -> None:
    seen = await kube.create("runs", namespace, run())
    await kube.delete("runs", namespace, "sales", uid=seen["metadata"]["uid"])
    with pytest.raises(NotFound):
        await kube.replace_status("runs", seen, {"observedGeneration": 1})


async def test_a_status_leaves_everything_else_to_its_owners(
    cluster: Cluster, kube: Kube, namespace: str
) -> None:
    body = run()
    body["metadata"]["labels"] = {"team": "sales"}
    await cluster.run("kubectl", "apply", "--server-side", "-f", "-", "-n", namespace, stdin=json.dumps(body))
    seen = await kube.get("runs", namespace, "sales")
    pod = {"name": "sales-a1", "uid": "u", "node": "n"}
    status = {"observedGeneration": 1, "phase": "Starting", "pod": pod}
    after = await kube.replace_status("runs", seen, status)
    assert (after["spec"], after["metadata"]["labels"]) == (seen["spec"], {"team": "sales"})
    theirs, ours = after["metadata"]["managedFields"]
    assert theirs == seen["metadata"]["managedFields"][0]
    assert (ours["manager"], ours["subresource"]) == (FIELD_MANAGER, "status")
    assert ours["fieldsV1"] == {"f:status": {}}


async def test_the_finalizer_comes_and_goes_and_no_other_is_touched(kube: Kube, namespace: str) -> None:
    body = run()
    body["metadata"]["finalizers"] = ["example.com/theirs"]
    seen = await kube.create("runs", namespace, body)
    held = await kube.add_finalizer("runs", seen)
    assert held["metadata"]["finalizers"] == ["example.com/theirs", FINALIZER]
    assert await kube.add_finalizer("runs", held) is held
    with pytest.raises(Conflict):
        await kube.add_finalizer("runs", seen)
    freed = await kube.remove_finalizer("runs", held)
    assert freed["metadata"]["finalizers"] == ["example.com/theirs"]
    await kube.merge("runs", namespace, "sales", {"metadata": {"finalizers": None}})


async def test_what_the_server_refuses_keeps_its_words(kube: Kube, namespace: str) -> None:
    with pytest.raises(Rejected, match=r"spec\.threadRef") as refused:
        await kube.create("runs", namespace, run() | {"spec": {"input": {"text": "x"}}})
    assert refused.value.status == 422


async def test_a_server_that_is_not_there_is_unavailable(kubeconfig: Path) -> None:
    credentials = Credentials(str(kubeconfig))
    client = Kube(credentials)
    await client.open()
    credentials.configuration.host = "https://127.0.0.1:1"
    with pytest.raises(Unavailable, match="could not be reached"):
        await client.ping()
    await client.close()


async def test_a_missing_kubeconfig_is_told_by_name() -> None:
    with pytest.raises(Unavailable, match="/nowhere/config"):
        await Kube(Credentials("/nowhere/config")).open()
