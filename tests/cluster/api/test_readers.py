"""What people and GitOps readers see of our kinds on a real API server."""

import pytest

from support.api_objects import agent, merged, run, thread
from support.api_statuses import FAILURE, RUNNING, SUCCESS
from support.apiserver import ApiServer
from support.cluster import Cluster
from support.kstatus import kstatus
from support.unwatched import CASES_GROUP, unwatched_path


@pytest.mark.req("R88")
@pytest.mark.parametrize("manifest", [agent(), thread(), run()], ids=lambda m: m["kind"])
async def test_an_unseen_object_is_never_current(
    unwatched_kinds: Cluster, server: ApiServer, namespace: str, manifest: dict[str, object]
) -> None:
    manifest = merged(manifest, {"apiVersion": f"{CASES_GROUP}/v1alpha1"})
    path = unwatched_path(str(manifest["kind"]), namespace)
    stored = (await server.request("POST", path, manifest)).agreed()
    assert stored["status"] == {"observedGeneration": -1}
    assert kstatus(stored) == "InProgress"


@pytest.mark.req("R88")
async def test_a_run_is_judged_by_its_conditions_all_the_way(
    unwatched_kinds: Cluster, server: ApiServer, namespace: str
) -> None:
    manifest = merged(run(), {"apiVersion": f"{CASES_GROUP}/v1alpha1"})
    stored = (await server.request("POST", unwatched_path("Run", namespace), manifest)).agreed()
    path = unwatched_path("Run", namespace, stored["metadata"]["name"], "status")
    seen = []
    for status in (RUNNING, SUCCESS):
        stored = (await server.request("PUT", path, stored | {"status": status})).agreed()
        seen.append(kstatus(stored))
    assert seen == ["InProgress", "Current"]


async def test_a_run_that_failed_is_failed_for_kstatus() -> None:
    assert kstatus({"metadata": {"generation": 1}, "status": FAILURE}) == "Failed"


async def test_a_status_without_the_field_is_still_unseen(
    unwatched_kinds: Cluster, server: ApiServer, namespace: str
) -> None:
    manifest = merged(run(), {"apiVersion": f"{CASES_GROUP}/v1alpha1"})
    stored = (await server.request("POST", unwatched_path("Run", namespace), manifest)).agreed()
    path = unwatched_path("Run", namespace, stored["metadata"]["name"], "status")
    stored = (await server.request("PUT", path, stored | {"status": {"phase": "Pending"}})).agreed()
    assert kstatus(stored) == "InProgress"


async def test_runs_are_selected_by_thread_and_phase(
    unwatched_kinds: Cluster, server: ApiServer, namespace: str
) -> None:
    manifest = merged(run(), {"apiVersion": f"{CASES_GROUP}/v1alpha1"})
    stored = (await server.request("POST", unwatched_path("Run", namespace), manifest)).agreed()
    path = unwatched_path("Run", namespace, stored["metadata"]["name"], "status")
    (await server.request("PUT", path, stored | {"status": SUCCESS})).agreed()

    async def names(selector: str) -> list[str]:
        listed = await server.request("GET", f"{unwatched_path('Run', namespace)}?fieldSelector={selector}")
        return [item["metadata"]["name"] for item in listed.agreed()["items"]]

    assert await names("spec.threadRef.name%3Dsales") == ["sales-review"]
    assert await names("spec.threadRef.name%3Dother") == []
    assert await names("status.phase!%3DSucceeded") == []


@pytest.mark.req("R87")
@pytest.mark.req("R88")
async def test_kubectl_shows_and_waits_for_a_run(
    unwatched_kinds: Cluster, server: ApiServer, namespace: str
) -> None:
    manifest = merged(run(), {"apiVersion": f"{CASES_GROUP}/v1alpha1"})
    stored = (await server.request("POST", unwatched_path("Run", namespace), manifest)).agreed()
    path = unwatched_path("Run", namespace, stored["metadata"]["name"], "status")
    (await server.request("PUT", path, stored | {"status": SUCCESS})).agreed()
    what = f"runscases.{CASES_GROUP}"
    shown = await unwatched_kinds.kubectl("get", what, namespace=namespace)
    header, row = (line.split() for line in shown.splitlines())
    assert header == ["NAME", "THREAD", "PHASE", "REASON", "ATTEMPT", "DELIVERED", "DURATION", "AGE"]
    assert row[:6] == ["sales-review", "sales", "Succeeded", "Delivered", "True", "1m0s"]
    wide = await unwatched_kinds.kubectl("get", what, "--output=wide", namespace=namespace)
    assert wide.split()[7:14] == ["AGE", "TOKEN", "POD", "NODE", "STEP", "TOKENS", "MODEL"]
    for condition in ("Finished", "Succeeded"):
        words = ("wait", f"{what}/sales-review", f"--for=condition={condition}", "--timeout=5s")
        assert "condition met" in await unwatched_kinds.kubectl(*words, namespace=namespace)


async def test_kubectl_explains_every_kind(installed: Cluster) -> None:
    assert "exactly one" not in await installed.kubectl("explain", "run")
    explained = await installed.kubectl("explain", "run.spec.delivery.requirement")
    assert "AtLeastOne: one file" in explained
    assert "LangChain's name of the provider" in await installed.kubectl("explain", "agent.spec.model")
    assert "Rises with every assignment" in await installed.kubectl("explain", "thread.status")


async def test_the_kinds_have_short_names_and_a_category(installed: Cluster) -> None:
    listed = await installed.kubectl(
        "api-resources", "--api-group=treadle.dev", "--output=wide", "--no-headers"
    )
    found = {line.split()[0]: line.split() for line in listed.splitlines()}
    assert {name: (words[1], words[-1]) for name, words in found.items()} == {
        "agents": ("agt", "treadle"),
        "threads": ("thr", "treadle"),
        "runs": ("trun", "treadle"),
    }
