"""The engine is asked, with a stub in the client's place that answers as real ones did."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.localcluster.engine import Engine, NoEngine, UnfitEngine, ask, speaks_registry

Stub = Callable[[str], Path]

LOCAL = '[{"Endpoints": {"docker": {"Host": "unix:///var/run/docker.sock"}}}]'
REMOTE = '[{"Endpoints": {"docker": {"Host": "tcp://192.0.2.9:2376"}}}]'


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """Puts a `docker` on PATH whose body is a shell script; `-v` always pretends that all is well."""

    def put(body: str) -> Path:
        program = tmp_path / "docker"
        program.write_text(
            f'#!/bin/sh\n[ "$1" = -v ] && {{ echo "Docker version 28.2.2"; exit 0; }}\n{body}\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return program

    return put


def answering(version: str, context: str = LOCAL) -> str:
    return f"case \"$1\" in version) echo '{version}';; context) echo '{context}';; *) exit 1;; esac"


def test_an_engine_that_answers_on_a_unix_socket_is_taken(docker: Stub) -> None:
    docker(answering("20.10.24+dfsg1 linux"))
    assert ask().host == "unix:///var/run/docker.sock"


def test_a_client_without_an_engine_is_no_engine(docker: Stub) -> None:
    docker('echo "Cannot connect to the Docker daemon at unix:///var/run/docker.sock." >&2; exit 1')
    with pytest.raises(NoEngine, match="Cannot connect"):
        ask()


def test_no_client_at_all_is_no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoEngine, match="could not be started"):
        ask()


def test_an_engine_on_another_machine_is_refused_with_what_to_change(docker: Stub) -> None:
    docker(answering("28.2.2 linux", REMOTE))
    with pytest.raises(UnfitEngine, match="unset DOCKER_HOST"):
        ask()


def test_an_engine_of_another_system_is_refused(docker: Stub) -> None:
    docker(answering("28.2.2 windows"))
    with pytest.raises(UnfitEngine, match="Linux containers"):
        ask()


def test_an_engine_that_tells_no_version_is_no_engine(docker: Stub) -> None:
    docker(answering(" linux"))
    with pytest.raises(NoEngine, match="tells no version"):
        ask()


def test_a_context_that_is_not_understood_is_refused(docker: Stub) -> None:
    docker(answering("28.2.2 linux", "[]"))
    with pytest.raises(UnfitEngine, match="not understood"):
        ask()


def test_a_missing_image_is_told_from_a_present_one(docker: Stub) -> None:
    docker('[ "$1 $2" = "image inspect" ] && [ "$3" = here:1 ]')
    engine = Engine("unix:///nowhere.sock")
    assert engine.has_image("here:1")
    assert not engine.has_image("elsewhere:1")


def test_the_engine_is_reached_by_its_socket_whatever_the_shell_says(
    docker: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "somewhere-else")
    docker('echo "$DOCKER_HOST ${DOCKER_CONTEXT-unset}"')
    assert Engine("unix:///ours.sock").docker("anything").split() == ["unix:///ours.sock", "unset"]


@pytest.fixture
def server() -> Iterator[Callable[[int, dict[str, str]], str]]:
    """Serves one fixed answer on loopback and tells its address."""
    servers: list[http.server.HTTPServer] = []

    def serve(status: int, headers: dict[str, str]) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status if self.path == "/v2/" else 404)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        one = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        servers.append(one)
        threading.Thread(target=one.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{one.server_port}/v1/"

    yield serve
    for one in servers:
        one.shutdown()
        one.server_close()


REGISTRY = {"Docker-Distribution-Api-Version": "registry/2.0"}


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (401, REGISTRY, True),
        (200, REGISTRY, True),
        (403, {}, False),
        (200, {}, False),
        (503, REGISTRY, False),
    ],
)
def test_only_an_answer_in_the_registry_protocol_counts_as_a_registry(
    server: Callable[[int, dict[str, str]], str], status: int, headers: dict[str, str], expected: bool
) -> None:
    assert speaks_registry(server(status, headers)) is expected


@pytest.mark.parametrize("address", ["", "unix:///x", "http://127.0.0.1:1/v1/"])
def test_an_address_where_nobody_answers_is_no_registry(address: str) -> None:
    assert not speaks_registry(address)
