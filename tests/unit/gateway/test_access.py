"""The guard: headers, short memory, and what an unreachable Kubernetes means."""

import pytest

from support.gateway import FakeAccess
from treadle_gateway.access import CACHE_ENTRIES, CACHE_SECONDS, Guard, Identity
from treadle_gateway.problems import Problem
from treadle_gateway.settings import Settings, SettingsError


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access() -> FakeAccess:
    access = FakeAccess()
    access.add("good", "ann", "team")
    return access


@pytest.fixture
def guard(access: FakeAccess, clock: Clock) -> Guard:
    return Guard(access, clock=clock)


async def refusal(guard: Guard, authorization: str | None) -> int:
    with pytest.raises(Problem) as refused:
        await guard.identify(authorization)
    return refused.value.status


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "good", "Basic good", "Bearer bad"])
async def test_no_valid_token_no_identity(guard: Guard, header: str | None) -> None:
    assert await refusal(guard, header) == 401


@pytest.mark.parametrize("header", ["Bearer good", "bearer good", " Bearer   good "])
async def test_a_valid_token_is_its_user(guard: Guard, header: str) -> None:
    assert (await guard.identify(header)).name == "ann"


async def test_answers_are_remembered_for_ten_seconds_and_no_longer(
    guard: Guard, access: FakeAccess, clock: Clock
) -> None:
    async def ask() -> int:
        await guard.require_run(await guard.identify("Bearer good"), "team", "a")
        return access.asked

    assert [await ask(), await ask()] == [2, 2]
    access.rights.clear()
    clock.now += CACHE_SECONDS - 0.1
    await ask()
    clock.now += 0.1
    with pytest.raises(Problem) as refused:
        await ask()
    assert refused.value.status == 403


async def test_a_refusal_is_remembered_as_short(guard: Guard, access: FakeAccess, clock: Clock) -> None:
    assert await refusal(guard, "Bearer new") == 401
    access.add("new", "bob")
    assert await refusal(guard, "Bearer new") == 401
    clock.now += CACHE_SECONDS
    assert (await guard.identify("Bearer new")).name == "bob"


async def test_a_right_in_one_namespace_or_run_is_none_in_another(guard: Guard, access: FakeAccess) -> None:
    ann = await guard.identify("Bearer good")
    await guard.require_run(ann, "team", "a")
    for identity, namespace in ((ann, "other"), (Identity("eve", "", ()), "team")):
        with pytest.raises(Problem) as refused:
            await guard.require_run(identity, namespace, "a")
        assert refused.value.status == 403


async def test_kubernetes_away_is_503_and_not_remembered(guard: Guard, access: FakeAccess) -> None:
    access.down = True
    assert await refusal(guard, "Bearer good") == 503
    access.down = False
    assert (await guard.identify("Bearer good")).name == "ann"


async def test_the_memory_is_bounded(guard: Guard, access: FakeAccess) -> None:
    await guard.identify("Bearer good")
    for number in range(CACHE_ENTRIES):
        await refusal(guard, f"Bearer x{number}")
    asked = access.asked
    await guard.identify("Bearer good")
    assert access.asked == asked + 1


def test_settings_come_from_the_environment_with_defaults() -> None:
    settings = Settings.read({"TREADLE_STORE_DSN": "d"})
    assert (settings.stream_url, settings.port, settings.max_streams) == (None, 8080, 500)


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({}, "TREADLE_STORE_DSN"),
        ({"TREADLE_STORE_DSN": "d", "TREADLE_GATEWAY_PORT": "0"}, "TREADLE_GATEWAY_PORT"),
        ({"TREADLE_STORE_DSN": "d", "TREADLE_GATEWAY_MAX_STREAMS": "many"}, "TREADLE_GATEWAY_MAX_STREAMS"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(environment: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Settings.read(environment)
