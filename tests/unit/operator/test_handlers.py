"""Kopf's settings: each answers a measured trouble, so each is held."""

import kopf

from treadle_operator.handlers import watch_settings


def test_ended_objects_and_foreign_pods_are_left_out_by_the_server() -> None:
    watching = watch_settings().watching
    assert watching.field_selectors["treadle.dev", "v1alpha1", "runs"] == (
        "status.phase!=Cancelled,status.phase!=Failed,status.phase!=Interrupted,status.phase!=Succeeded"
    )
    assert watching.field_selectors["", "v1", "pods"] == "status.phase!=Failed,status.phase!=Succeeded"
    assert watching.label_selectors["", "v1", "pods"] == "app.kubernetes.io/managed-by=treadle"


def test_kopf_keeps_nothing_on_our_objects_and_posts_nothing() -> None:
    settings = watch_settings()
    body = kopf.Body({"metadata": {"name": "r"}, "spec": {"input": "x" * 1000}})
    assert settings.persistence.diffbase_storage.fetch(body=body) is None
    assert settings.persistence.diffbase_storage.build(body=body) == {}
    assert not settings.posting.enabled
    assert settings.peering.standalone
    assert settings.scanning.disabled


def test_the_number_of_kopfs_workers_is_not_limited() -> None:
    """50 workers would mean ten objects a second: an idle one keeps its place for five seconds."""
    assert watch_settings().queueing.worker_limit is None
