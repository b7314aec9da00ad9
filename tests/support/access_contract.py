"""What every `Access` must answer: run against the real Kubernetes and against the test double."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from treadle_gateway.access import Access


@dataclass(frozen=True)
class AccessWorld:
    """An `Access` and tokens whose rights are known. All tokens but `invalid` are good ones.

    `reader` may get every run of `namespace`, `narrow` only the run `one`, `stranger` none; `foreign` was
    made for somebody else's audience; `plain` is a reader's for the API server.
    """

    access: Access
    namespace: str
    reader: str
    plain: str
    narrow: str
    stranger: str
    foreign: str


async def a_valid_token_has_one_identity(world: AccessWorld) -> None:
    first = await world.access.authenticate(world.reader)
    assert first is not None
    assert first.name
    assert first.groups
    assert await world.access.authenticate(world.reader) == first


async def a_token_for_the_api_server_is_accepted_too(world: AccessWorld) -> None:
    ours, plain = await world.access.authenticate(world.reader), await world.access.authenticate(world.plain)
    assert ours is not None
    assert plain is not None
    assert plain.name == ours.name


async def other_tokens_are_nobody(world: AccessWorld) -> None:
    for token in ("", "x", world.reader + "x", "a.b.c", world.foreign):
        assert await world.access.authenticate(token) is None


async def a_reader_may_get_any_run_of_its_namespace_only(world: AccessWorld) -> None:
    reader = await world.access.authenticate(world.reader)
    assert reader is not None
    for name in ("one", "two", ""):
        assert await world.access.may_get_run(reader, world.namespace, name)
        assert not await world.access.may_get_run(reader, "kube-system", name)


async def a_right_to_one_run_is_a_right_to_one_run(world: AccessWorld) -> None:
    narrow = await world.access.authenticate(world.narrow)
    assert narrow is not None
    answers = [await world.access.may_get_run(narrow, world.namespace, name) for name in ("one", "two", "")]
    assert answers == [True, False, False]


async def a_stranger_may_get_nothing(world: AccessWorld) -> None:
    stranger = await world.access.authenticate(world.stranger)
    assert stranger is not None
    assert not await world.access.may_get_run(stranger, world.namespace, "one")


CONTRACT: list[Callable[[AccessWorld], Awaitable[None]]] = [
    a_valid_token_has_one_identity,
    a_token_for_the_api_server_is_accepted_too,
    other_tokens_are_nobody,
    a_reader_may_get_any_run_of_its_namespace_only,
    a_right_to_one_run_is_a_right_to_one_run,
    a_stranger_may_get_nothing,
]
