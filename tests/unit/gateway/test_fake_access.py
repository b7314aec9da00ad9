"""The test double of Kubernetes' answers keeps to the contract of the real one."""

import pytest

from support.access_contract import CONTRACT, AccessWorld
from support.gateway import FakeAccess


@pytest.mark.parametrize("clause", CONTRACT, ids=lambda clause: clause.__name__)
async def test_the_fake_answers_as_kubernetes_does(clause: object) -> None:
    access = FakeAccess()
    access.add("reader", "reader", "team")
    access.users["plain"] = access.users["reader"]
    access.add("narrow", "narrow")
    access.rights.add(("narrow", "team", "one"))
    access.add("stranger", "stranger")
    assert callable(clause)
    await clause(AccessWorld(access, "team", "reader", "plain", "narrow", "stranger", "foreign"))
