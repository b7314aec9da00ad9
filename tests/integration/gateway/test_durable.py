"""Events, receipts and artifacts over HTTP, and what a caller is told when something is wrong."""

import base64
import hashlib
from uuid import uuid4

import pytest

from support.claims import NAMESPACE
from support.gateway import STRANGER_TOKEN, FakeAccess, GatewayUnderTest, gateway_running, take
from support.live_runs import LiveRun, LiveRuns
from support.stores import Store
from treadle_api.records import Event
from treadle_store import events
from treadle_store.pool import open_connection

DATA = "Umsatz\n\0\xff".encode("latin-1") * 1000


def path(run: LiveRun | str, rest: str, namespace: str = NAMESPACE) -> str:
    return f"/ns/{namespace}/v1/runs/{run if isinstance(run, str) else run.name}/{rest}"


@pytest.fixture
async def run(wireless: LiveRuns) -> LiveRun:
    """A run with a hundred events, in three types."""
    run = await wireless.start()
    batch = [
        Event(uuid4(), ("message", "tool.call", "state")[number % 3], {"n": number}, task_id=f"t{number % 2}")
        for number in range(1, 101)
    ]
    await events.append_events(run.db, run.capability, batch)
    return run


@pytest.mark.req("R48")
async def test_events_are_paged_by_seq(run: LiveRun, polling_gateway: GatewayUnderTest) -> None:
    seen: list[int] = []
    after: int | None = 0
    async with polling_gateway.client() as client:
        while after is not None:
            page = (await client.get(path(run, f"events?after_seq={after}&limit=30"))).json()
            assert len(page["events"]) <= 30
            seen += [event["seq"] for event in page["events"]]
            after = page["next"]
    assert seen == list(range(1, 101))


@pytest.mark.req("R48")
async def test_events_are_filtered_by_type_and_task(run: LiveRun, polling_gateway: GatewayUnderTest) -> None:
    async with polling_gateway.client() as client:
        query = "events?type=message&type=state&task_id=t1&limit=500"
        page = (await client.get(path(run, query))).json()["events"]
    wanted = [n for n in range(1, 101) if n % 3 in {0, 2} and n % 2]
    assert [event["payload"]["n"] for event in page] == wanted
    assert set(page[0]) == {"seq", "event_id", "type", "task_id", "token", "created_at", "payload"}


async def test_a_page_of_large_events_ends_early(
    wireless: LiveRuns, polling_gateway: GatewayUnderTest
) -> None:
    run = await wireless.start()
    for _ in range(50):
        await run.say("x" * 200_000)
    async with polling_gateway.client() as client:
        page = (await client.get(path(run, "events?limit=500"))).json()
        assert 20 <= len(page["events"]) < 30
        rest = (await client.get(path(run, f"events?limit=500&after_seq={page['next']}"))).json()
    assert rest["events"][0]["seq"] == page["events"][-1]["seq"] + 1


async def test_a_receipt_is_there_once_the_run_has_ended(
    run: LiveRun, polling_gateway: GatewayUnderTest
) -> None:
    async with polling_gateway.client() as client:
        early = await client.get(path(run, "receipt"))
        assert early.status_code == 404
        assert early.json()["title"] == "NotSettled"
        assert "follow its stream" in early.json()["detail"]
        await run.settle()
        by_name, by_uid = [
            (await client.get(path(name, "receipt"))).json() for name in (run.name, run.view.run_id)
        ]
    assert by_name == by_uid
    assert by_name["payload"]["outcome"] == "success"
    assert by_name["token"] == run.capability.token


async def test_an_artifact_comes_with_its_hash_and_cannot_act(
    run: LiveRun, polling_gateway: GatewayUnderTest
) -> None:
    sha256 = await run.present('out/résumé "q".html', DATA, "text/html")
    await run.settle()
    async with polling_gateway.client() as client:
        url = path(run, "artifacts/out/r%C3%A9sum%C3%A9%20%22q%22.html")
        got = await client.get(url)
        again = await client.get(url, headers={"If-None-Match": got.headers["etag"]})
    assert got.content == DATA
    assert sha256 == hashlib.sha256(DATA).hexdigest()
    assert got.headers["etag"] == f'"{sha256}"'
    digest = base64.b64encode(bytes.fromhex(sha256)).decode()
    assert got.headers["digest"] == f"sha-256={digest}"
    assert got.headers["repr-digest"] == f"sha-256=:{digest}:"
    assert got.headers["content-type"] == "text/html"
    assert (
        got.headers["content-disposition"] == "attachment; filename*=UTF-8''r%C3%A9sum%C3%A9%20%22q%22.html"
    )
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["content-security-policy"].startswith("sandbox")
    assert (again.status_code, again.content) == (304, b"")


async def test_downloads_beyond_the_limit_are_refused(
    run: LiveRun, polling_gateway: GatewayUnderTest
) -> None:
    await run.present("a", DATA, "text/plain")
    await run.settle()
    downloads = polling_gateway.services.downloads
    async with polling_gateway.client() as client:
        downloads.limit = 0
        got = await client.get(path(run, "artifacts/a"))
        assert (got.status_code, got.json()["title"]) == (503, "TooManyDownloads")
        downloads.limit = 2
        for _ in range(3):
            assert (await client.get(path(run, "artifacts/a"))).content == DATA
            assert (await client.get(path(run, "artifacts/b"))).status_code == 404
    assert downloads.taken == 0


async def test_a_media_type_that_is_none_becomes_octet_stream(
    run: LiveRun, polling_gateway: GatewayUnderTest
) -> None:
    await run.present("a", b"x", "text/html\r\nSet-Cookie: a=b")
    await run.settle()
    async with polling_gateway.client() as client:
        got = await client.get(path(run, "artifacts/a"))
    assert got.headers["content-type"] == "application/octet-stream"
    assert "set-cookie" not in got.headers


@pytest.mark.parametrize(
    ("rest", "status", "title"),
    [
        ("artifacts/none.md", 404, "ArtifactNotFound"),
        ("artifacts/..%2f..%2fetc%2fpasswd", 404, "ArtifactNotFound"),
        ("artifacts/a%00b", 400, "BadParameter"),
        ("events?after_seq=-1", 400, "BadParameter"),
        ("events?after_seq=1e3", 400, "BadParameter"),
        ("events?limit=501", 400, "BadParameter"),
        ("events?limit=0", 400, "BadParameter"),
        ("events?type=%00", 400, "BadParameter"),
        ("nothing", 404, "NoSuchPath"),
    ],
)
async def test_bad_requests_are_told_what_to_change(
    run: LiveRun, polling_gateway: GatewayUnderTest, rest: str, status: int, title: str
) -> None:
    async with polling_gateway.client() as client:
        got = await client.get(path(run, rest))
    assert (got.status_code, got.json()["title"]) == (status, title)
    assert got.headers["content-type"] == "application/problem+json"
    assert len(got.json()["detail"]) > 20


async def test_a_bad_cursor_is_refused_before_the_stream_begins(
    run: LiveRun, polling_gateway: GatewayUnderTest
) -> None:
    async with polling_gateway.client() as client:
        got = await client.get(path(run, "stream"), headers={"Last-Event-ID": "57"})
        posted = await client.post(path(run, "stream"))
    assert (got.status_code, got.json()["title"]) == (400, "BadCursor")
    assert "1i1.57-3" in got.json()["detail"]
    assert (posted.status_code, posted.json()["title"]) == (405, "MethodNotAllowed")


ROUTES = ("stream", "events", "receipt", "artifacts/a")


@pytest.mark.parametrize("rest", ROUTES)
async def test_without_a_valid_token_nothing_is_shown(
    run: LiveRun, polling_gateway: GatewayUnderTest, rest: str
) -> None:
    for token in (None, "unknown", "x" * 20_000, "a b"):
        async with polling_gateway.client(token) as client:
            got = await client.get(path(run, rest))
        assert (got.status_code, got.json()["title"]) == (401, "Unauthorized"), token
        assert got.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("rest", ROUTES)
async def test_who_may_not_get_runs_learns_nothing_of_them(
    run: LiveRun, polling_gateway: GatewayUnderTest, rest: str
) -> None:
    async with polling_gateway.client(STRANGER_TOKEN) as client:
        there, not_there = [await client.get(path(name, rest)) for name in (run.name, "no-such-run")]
        elsewhere = await client.get(path(run, rest, "elsewhere"))
        by_uid = await client.get(path(run.view.run_id, rest, "elsewhere"))
    assert (there.status_code, not_there.status_code) == (403, 403)
    assert (elsewhere.status_code, by_uid.status_code) == (404, 404)


@pytest.mark.parametrize(
    ("namespace", "name"), [("team", "no-such-run"), ("team", "0b9c4f6e-3c7e-4a53-8d69-0f3d1b7a52c1")]
)
async def test_an_unknown_run_is_named_in_the_answer(
    wireless: LiveRuns, polling_gateway: GatewayUnderTest, namespace: str, name: str
) -> None:
    async with polling_gateway.client() as client:
        got = await client.get(path(name, "events", namespace))
    assert (got.status_code, got.json()["title"]) == (404, "RunNotFound")
    assert f"kubectl get run {name} -n {namespace}" in got.json()["detail"]


@pytest.mark.parametrize("name", ["..", "A", "a%00", "%F0%9F%98%80", "x" * 254])
async def test_a_name_that_kubernetes_would_refuse_is_refused(
    wireless: LiveRuns, polling_gateway: GatewayUnderTest, name: str
) -> None:
    async with polling_gateway.client() as client:
        got = await client.get(f"/ns/{name.replace('..', '%2e%2e')}/v1/runs/a/events")
    assert got.status_code in {400, 404}


async def test_kubernetes_away_is_no_refusal_and_known_callers_go_on(
    run: LiveRun, polling_gateway: GatewayUnderTest, access: FakeAccess
) -> None:
    async with polling_gateway.client() as client:
        assert (await client.get(path(run, "events"))).status_code == 200
        access.down = True
        assert (await client.get(path(run, "events"))).status_code == 200
    async with polling_gateway.client(STRANGER_TOKEN) as client:
        got = await client.get(path(run, "events"))
    assert (got.status_code, got.json()["title"]) == (503, "AuthenticationUnavailable")
    assert got.headers["retry-after"]


async def test_the_newest_run_of_a_name_is_the_one_that_is_meant(
    store: Store, wireless: LiveRuns, polling_gateway: GatewayUnderTest
) -> None:
    old, new = await wireless.start(), await wireless.start()
    await old.settle()
    admin = await open_connection(store.admin, application="test")
    await admin.execute(
        "UPDATE treadle.runs SET name = 'same' WHERE run_id IN ($1, $2)", old.view.run_id, new.view.run_id
    )
    await admin.close()
    async with polling_gateway.client() as client:
        got = (await client.get(path("same", "events"))).json()
    assert got["run_id"] == new.view.run_id


async def test_probes_need_no_token_and_tell_the_store_from_the_process(
    store: Store, wireless: LiveRuns, access: FakeAccess
) -> None:
    pool = await store.pool("gateway", max_size=1)
    async with gateway_running(pool, access, None) as gateway, gateway.client(None) as client:
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 200
        await pool.close()
        assert (await client.get("/healthz")).status_code == 200
        got = await client.get("/readyz")
    assert (got.status_code, got.json()["title"]) == (503, "StoreUnavailable")


async def test_a_stream_outlives_a_short_outage_of_the_store(
    store: Store, run: LiveRun, polling_gateway: GatewayUnderTest
) -> None:
    async with polling_gateway.stream(NAMESPACE, run.name, after=run.cursor(100)) as frames:
        await take(frames, 2)
        admin = await open_connection(store.admin, application="test")
        await admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'test-gateway'"
        )
        await admin.close()
        await run.say("after the outage")
        assert (await take(frames, 1))[0].data == {"text": "after the outage"}
