"""The objects as last seen: newest wins, echoes are no news."""

from typing import Any

from treadle_api.names import LABEL_RUN
from treadle_operator.cache import Cache


def run(version: int, *, name: str = "r", uid: str = "u1", thread: str = "t", phase: str = "Running") -> Any:
    return {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": uid,
            "resourceVersion": str(version),
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"threadRef": {"name": thread}},
        "status": {"phase": phase},
    }


def pod(version: int, name: str, run_uid: str) -> Any:
    return {
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": f"pod-{name}",
            "resourceVersion": str(version),
            "labels": {LABEL_RUN: run_uid},
        }
    }


def test_the_echo_of_our_own_write_is_no_news() -> None:
    cache = Cache()
    assert cache.put("runs", run(9))
    assert cache.put("runs", run(10))  # what our write returned
    assert not cache.put("runs", run(10))  # the watch tells it again
    assert not cache.put("runs", run(9))  # and something older, late


def test_versions_are_compared_as_numbers() -> None:
    cache = Cache()
    cache.put("runs", run(9))
    assert cache.put("runs", run(10))
    known = cache.get("runs", "ns", "r")
    assert known is not None
    assert known["metadata"]["resourceVersion"] == "10"


def test_managed_fields_are_not_kept() -> None:
    cache = Cache()
    cache.put("runs", run(1))
    assert "managedFields" not in next(cache.all("runs"))["metadata"]


def test_the_late_deletion_of_a_predecessor_leaves_the_namesake() -> None:
    cache = Cache()
    cache.put("runs", run(20, uid="u2"))
    assert not cache.remove("runs", run(15, uid="u1"))
    assert cache.get("runs", "ns", "r") is not None
    assert cache.remove("runs", run(21, uid="u2"))
    assert cache.get("runs", "ns", "r") is None


def test_pods_are_found_by_their_run_and_runs_by_their_thread() -> None:
    cache = Cache()
    cache.put("pods", pod(1, "r-a2", "u1"))
    cache.put("pods", pod(2, "r-a1", "u1"))
    cache.put("pods", pod(3, "x-a1", "other"))
    assert [p["metadata"]["name"] for p in cache.pods_of_run("u1")] == ["r-a1", "r-a2"]
    cache.remove("pods", pod(4, "r-a1", "u1"))
    assert [p["metadata"]["name"] for p in cache.pods_of_run("u1")] == ["r-a2"]
    cache.put("runs", run(1))
    assert [r["metadata"]["name"] for r in cache.runs_of_thread("ns", "t")] == ["r"]
    assert cache.runs_of_thread("ns", "other") == []


def test_threads_are_found_by_their_key_whatever_their_number() -> None:
    cache = Cache()

    def thread(version: int, name: str, key: str | None) -> Any:
        metadata = {"namespace": "ns", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
        return {"metadata": metadata, "spec": {"threadID": key} if key else {}}

    def names(key: str) -> list[str]:
        return [found["metadata"]["name"] for found in cache.threads_with_key("ns", key)]

    cache.put("threads", thread(1, "b", "sales"))
    cache.put("threads", thread(2, "a", "sales"))
    cache.put("threads", thread(3, "c", None))
    assert names("sales") == ["a", "b"]
    assert names("uid-c") == ["c"]
    cache.remove("threads", thread(4, "a", "sales"))
    cache.put("threads", thread(5, "b", "other"))
    assert names("sales") == []
    assert names("other") == ["b"]
    assert cache.threads_with_key("elsewhere", "other") == []
