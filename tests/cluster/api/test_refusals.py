"""The real API server gives the answers of the tables, and each refusal names what to change."""

from typing import Any

import pytest

from support.api_cases import CREATE
from support.api_changes import SPEC_CHANGES, Change
from support.api_objects import ABSENT, Case, Object, agent, merged, run, thread
from support.api_statuses import STATUS, StatusCase
from support.apiserver import Answer, ApiServer
from support.cluster import Cluster
from support.unwatched import CASES_GROUP, unwatched_path

BASES = {"Agent": agent, "Thread": thread, "Run": run}


def _judge(answer: Answer, deny: str | None) -> None:
    if deny is None:
        assert answer.refusal is None
    else:
        assert answer.refusal is not None, f"allowed, but should be refused with: {deny}"
        for part in deny.split(" … "):
            assert part in answer.refusal


@pytest.mark.req("R91")
@pytest.mark.parametrize("case", CREATE, ids=str)
async def test_an_object_is_taken_or_refused_with_a_sentence(
    installed: Cluster, server: ApiServer, case: Case
) -> None:
    path = f"/apis/treadle.dev/v1alpha1/namespaces/default/{case.object['kind'].lower()}s"
    _judge(await server.request("POST", path, case.object, dry_run=True), case.deny)


async def _stored(server: ApiServer, namespace: str, manifest: Object) -> dict[str, Any]:
    metadata = {"name": ABSENT, "generateName": "case-"}
    manifest = merged(manifest, {"apiVersion": f"{CASES_GROUP}/v1alpha1", "metadata": metadata})
    return (await server.request("POST", unwatched_path(manifest["kind"], namespace), manifest)).agreed()


@pytest.mark.req("R91")
@pytest.mark.parametrize("change", SPEC_CHANGES, ids=str)
async def test_a_spec_changes_only_where_it_may(
    unwatched_kinds: Cluster, server: ApiServer, cases_namespace: str, change: Change
) -> None:
    stored = await _stored(server, cases_namespace, change.before)
    labels = change.after["metadata"].get("labels", {})
    after = merged(stored, {"metadata": {"labels": labels}}) | {"spec": change.after["spec"]}
    path = unwatched_path(stored["kind"], cases_namespace, stored["metadata"]["name"])
    _judge(await server.request("PUT", path, after, dry_run=True), change.deny)


@pytest.mark.req("R91")
@pytest.mark.parametrize("case", STATUS, ids=str)
async def test_a_status_keeps_its_promises(
    unwatched_kinds: Cluster, server: ApiServer, cases_namespace: str, case: StatusCase
) -> None:
    stored = await _stored(server, cases_namespace, BASES[case.kind]())
    path = unwatched_path(case.kind, cases_namespace, stored["metadata"]["name"], "status")
    if case.before is not None:
        stored = (await server.request("PUT", path, stored | {"status": case.before})).agreed()
    _judge(await server.request("PUT", path, stored | {"status": case.after}, dry_run=True), case.deny)
