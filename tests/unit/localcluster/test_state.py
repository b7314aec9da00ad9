"""What `up` writes down before it acts, and what a crash can leave of it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from support.localcluster.errors import ClusterError
from support.localcluster.identity import Process
from support.localcluster.layout import Layout
from support.localcluster.state import Cluster, PrivateEngine, State, locked


def whole() -> State:
    engine = PrivateEngine(
        "/run/x/docker.sock", "/run/x", "treadle-x", "trd-x", Process(41, 99), [["-I", "FORWARD"]]
    )
    cluster = Cluster(
        name="one",
        kubeconfig="/cache/kubeconfig/one",
        nodes=3,
        image="node:1",
        ready=True,
        loaded={"image:1": "sha256:a"},
        images={"runtime": "image:1"},
        ports={"gateway": 30080},
    )
    return State(engine, {"one": cluster}, "unix:///run/x/docker.sock", modules_dir_made=True)


def test_a_state_reads_back_as_it_was_written(tmp_path: Path) -> None:
    whole().write(tmp_path / "deep" / "state.json")
    assert State.read(tmp_path / "deep" / "state.json") == whole()


def test_an_engine_whose_pid_is_not_known_yet_reads_back_too(tmp_path: Path) -> None:
    state = whole()
    assert state.engine is not None
    state.engine = dataclasses.replace(state.engine, process=None)
    state.write(tmp_path / "state.json")
    assert State.read(tmp_path / "state.json") == state


def test_no_file_is_an_empty_state(tmp_path: Path) -> None:
    assert State.read(tmp_path / "state.json") == State()


@pytest.mark.parametrize("text", ["", "{", "{}", '{"engine": null, "clusters": {"a": {"nome": 1}}}', "[]"])
def test_a_torn_or_foreign_state_is_refused_and_never_taken_for_an_empty_one(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(ClusterError, match=r"state\.json"):
        State.read(tmp_path / "state.json")


def test_the_lock_keeps_a_second_command_out_and_dies_with_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import fcntl,time; f=open({str(lock)!r},'a'); fcntl.flock(f,2); print(1,flush=True); "
            "time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(TimeoutError, match="lock"), locked(lock, seconds=0):
            pass
        holder.kill()
        holder.wait()
    with locked(lock, seconds=5):
        pass


def test_two_caches_share_no_name_of_what_lies_outside_of_them() -> None:
    one, other = Layout(Path("/a")), Layout(Path("/b"))
    for name in ("run_dir", "cgroup", "bridge", "state_file"):
        assert getattr(one, name) != getattr(other, name)


def test_a_bridge_name_fits_into_a_kernel_interface_name() -> None:
    assert len(Layout(Path("/some/cache")).bridge) <= 15


def test_the_cache_is_where_the_environment_says() -> None:
    assert Layout.of({"TREADLE_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}).cache == Path("/a")
    assert Layout.of({"XDG_CACHE_HOME": "/b", "HOME": "/c"}).cache == Path("/b/treadle")
    assert Layout.of({"HOME": "/c"}).cache == Path("/c/.cache/treadle")
