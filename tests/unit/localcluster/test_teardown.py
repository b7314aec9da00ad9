"""`down` undoes what the state names, in order, also when `up` or the engine was killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.localcluster import teardown
from support.localcluster.identity import Process
from support.localcluster.layout import Layout
from support.localcluster.state import Cluster, PrivateEngine, State
from support.localcluster.teardown import Step, Teardown, engine_process, plan
from support.localcluster.waiting import wait_until

SUPPORT = Path(teardown.__file__).parents[1]


def engine(run_dir: str = "/run/treadle-x", **known: object) -> PrivateEngine:
    values = {
        "socket": f"{run_dir}/docker.sock",
        "run_dir": run_dir,
        "cgroup": "treadle-x",
        "bridge": "trd-x",
    }
    return PrivateEngine(**{**values, **known})  # type: ignore[arg-type]


def two_clusters() -> dict[str, Cluster]:
    return {name: Cluster(name, f"/cache/{name}", 1, "node:1") for name in ("one", "two")}


def kinds(state: State, only: str | None = None) -> list[str]:
    return [step.kind for step in plan(state, only=only)]


def test_nothing_started_is_nothing_to_undo() -> None:
    assert plan(State()) == []


def test_on_the_users_engine_the_clusters_go_and_the_engine_stays() -> None:
    state = State(clusters=two_clusters(), host="unix:///var/run/docker.sock")
    assert plan(state) == [Step("cluster", "one"), Step("cluster", "two")]


def test_one_cluster_goes_alone_when_it_is_named() -> None:
    assert plan(State(engine(), two_clusters()), only="two") == [Step("cluster", "two")]


def test_the_last_cluster_takes_the_engine_with_it_though_it_is_named() -> None:
    last = {"one": two_clusters()["one"]}
    assert kinds(State(engine(), last), only="one") == kinds(State(engine(), last))


def test_an_engine_without_a_cluster_ends_whoever_was_to_come() -> None:
    assert kinds(State(engine()), only="one") == kinds(State(engine()))


def test_a_name_that_is_not_there_ends_nothing_of_others() -> None:
    assert plan(State(engine(), two_clusters()), only="three") == []


def test_the_private_engine_ends_after_its_clusters_and_before_what_it_stood_on() -> None:
    rule = ["-I", "FORWARD", "-i", "trd-x", "-j", "REJECT"]
    state = State(engine(rules=[rule], forwarding_was_off=True), two_clusters(), modules_dir_made=True)
    assert kinds(state) == [
        *(
            "cluster",
            "cluster",
            "network",
            "engine",
            "helpers",
            "cgroup",
            "mounts",
            "bridge",
            "rule",
            "forwarding",
        ),
        *("folder", "empty folder"),
    ]


def test_what_was_there_before_us_stays() -> None:
    left_alone = {"forwarding", "empty folder"}
    assert not left_alone & set(kinds(State(engine(), two_clusters())))


@pytest.fixture
def dockerd(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts a process that was given a configuration file, as dockerd is, and writes its pid file."""
    started: list[subprocess.Popen[bytes]] = []

    def start(configuration: str) -> subprocess.Popen[bytes]:
        program = "import time; print(1, flush=True); time.sleep(60)"
        words = [sys.executable, "-c", program, "--config-file", configuration]
        process = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        (tmp_path / "docker.pid").write_text(str(process.pid))
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()


Dockerd = Callable[[str], "subprocess.Popen[bytes]"]


def test_an_engine_that_we_were_killed_too_early_to_know_is_found_by_its_own_pid_file(
    tmp_path: Path, dockerd: Dockerd
) -> None:
    process = dockerd(f"{tmp_path}/daemon.json")
    found = engine_process(engine(str(tmp_path)))
    assert found is not None
    assert found.pid == process.pid


def test_a_pid_file_that_points_at_somebody_else_is_not_believed(tmp_path: Path, dockerd: Dockerd) -> None:
    dockerd("/etc/docker/daemon.json")
    assert engine_process(engine(str(tmp_path))) is None


def test_an_engine_whose_pid_another_process_took_over_is_gone(tmp_path: Path, dockerd: Dockerd) -> None:
    process = dockerd(f"{tmp_path}/daemon.json")
    known = Process.of(process.pid)
    assert known is not None
    assert engine_process(engine(str(tmp_path), process=known)) == known
    assert engine_process(engine(str(tmp_path), process=Process(known.pid, known.started - 1))) is None


def test_what_a_killed_engine_leaves_is_known_by_our_run_directory(tmp_path: Path, dockerd: Dockerd) -> None:
    ours, other = dockerd(f"{tmp_path}/ours/c.sock"), dockerd(f"{tmp_path}/ours-not/c.sock")
    teardown.end_helpers(f"{tmp_path}/ours")
    assert ours.wait(timeout=10) == -signal.SIGTERM
    assert other.poll() is None


def test_a_pid_file_without_a_number_is_no_engine(tmp_path: Path) -> None:
    (tmp_path / "docker.pid").write_text("")
    assert engine_process(engine(str(tmp_path))) is None


# They answer as an engine would, write down what they were asked, and hang in `kind create`.
DOCKER = """#!/bin/sh
echo "docker $*" >> "$CALLS"
case "$*" in
  version*) echo "28.2.2 linux" ;;
  "context inspect") echo '[{"Endpoints": {"docker": {"Host": "unix:///stub.sock"}}}]' ;;
  "info --format {{.CgroupVersion}}") echo 2 ;;
  "ps --all --quiet"*) echo 4711 ;;
esac
"""
KIND = """#!/bin/sh
echo "kind $*" >> "$CALLS"
case "$1" in
  version) echo "kind v0.33.0 go1.26 linux/amd64" ;;
  create) echo $$ > "$STARTED"; exec sleep 60 ;;
esac
"""
KUBECTL = """#!/bin/sh
echo '{"clientVersion": {"minor": "35"}}'
"""
HELM = "#!/bin/sh\necho v3.22.0\n"


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with an engine, and a cache of its own; the folder that both lie in."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"docker": DOCKER, "kind": KIND, "kubectl": KUBECTL, "helm": HELM}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    for name, value in {
        "PATH": f"{programs}:/usr/bin:/bin",
        "PYTHONPATH": str(SUPPORT),
        "TREADLE_CACHE": str(tmp_path / "cache"),
        "TREADLE_OFFLINE": "1",
        "CALLS": str(tmp_path / "calls"),
        "STARTED": str(tmp_path / "started"),
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("TREADLE_CLUSTER", "TREADLE_CLUSTER_NAME", "TREADLE_NODES", "DOCKER_HOST"):
        monkeypatch.delenv(name, raising=False)
    os.mkfifo(tmp_path / "started")
    return tmp_path


def harness(*words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "localcluster", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_after_a_killed_up_its_command_is_gone_and_down_removes_the_half_made_cluster(stubs: Path) -> None:
    with harness("up", "--no-images") as up:
        with (stubs / "started").open() as started:  # opens once `kind create` runs
            creating = Process.of(int(started.read()))
        assert creating is not None
        os.kill(up.pid, signal.SIGKILL)
    wait_until("the end of `kind create`", lambda: not creating.alive(), seconds=10)
    state = json.loads((stubs / "cache" / "localcluster.json").read_text())
    assert state["clusters"]["treadle"]["ready"] is False

    down = subprocess.run(
        [sys.executable, "-m", "localcluster", "down"], capture_output=True, text=True, check=True
    )
    assert "cluster: treadle" in down.stderr
    assert "docker rm --force --volumes 4711" in (stubs / "calls").read_text()
    assert not (stubs / "cache" / "localcluster.json").exists()

    again = subprocess.run(
        [sys.executable, "-m", "localcluster", "down"], capture_output=True, text=True, check=True
    )
    assert "nothing was up" in again.stderr


def test_a_teardown_finds_its_subjects_gone_and_ends_well(
    stubs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stubs / "bin" / "docker").write_text("#!/bin/sh\nexit 1\n")
    layout = Layout.of()
    state = State(engine(str(stubs / "treadle-gone")), two_clusters(), "unix:///gone.sock")
    state.write(layout.state_file)
    Teardown(layout, state).carry_out(plan(state))
    assert not layout.state_file.exists()
