"""The engine: asked, never guessed from the presence of a client."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .commands import answers, run
from .errors import ClusterError, CommandFailed

_ASK_SECONDS = 10
_PROBE_SECONDS = 4


class NoEngine(ClusterError):
    """No engine answers where we asked."""


class UnfitEngine(ClusterError):
    """An engine answers, but a cluster on it would not be on this machine's loopback."""


@dataclass(frozen=True)
class Engine:
    """A Docker engine reached through a unix socket on this machine."""

    host: str

    @property
    def env(self) -> dict[str, str]:
        return {
            "DOCKER_HOST": self.host,
            "DOCKER_CONTEXT": "",
            "DOCKER_BUILDKIT": "0",
            "KIND_EXPERIMENTAL_PROVIDER": "docker",
        }

    def docker(self, *words: str | Path, timeout: float = 60, stdin: IO[bytes] | str | None = None) -> str:
        return run(["docker", *words], timeout=timeout, env=self.env, stdin=stdin)

    def follow_args(self, words: Sequence[str]) -> list[str]:
        return ["docker", *words]

    def answers(self) -> bool:
        return answers(
            ["docker", "version", "--format", "{{.Server.Version}}"], timeout=_ASK_SECONDS, env=self.env
        )

    def has_image(self, name: str) -> bool:
        return answers(["docker", "image", "inspect", name], timeout=_ASK_SECONDS, env=self.env)

    def image_id(self, name: str) -> str:
        return self.docker("image", "inspect", "--format", "{{.Id}}", name, timeout=_ASK_SECONDS).strip()

    def cgroup_version(self) -> int:
        return int(self.docker("info", "--format", "{{.CgroupVersion}}", timeout=_ASK_SECONDS).strip() or 1)

    def lets_containers_lower_oom_score(self, image: str) -> bool:
        """Whether a privileged container may ask for a negative OOM score (it needs CAP_SYS_RESOURCE)."""
        script = "echo -500 > /proc/self/oom_score_adj"
        words = [
            "run",
            "--rm",
            "--privileged",
            "--network",
            "none",
            "--entrypoint",
            "/bin/sh",
            image,
            "-c",
            script,
        ]
        return answers(["docker", *words], timeout=60, env=self.env)

    def registry_answers(self) -> bool:
        """Whether the engine's registry speaks the registry protocol to this machine.

        ``GET /v2/`` is answered with 200 or 401 and the header ``Docker-Distribution-Api-Version`` (OCI
        distribution specification, "Determining Support"); the word of a proxy is no such answer.
        """
        address = self.docker("info", "--format", "{{.IndexServerAddress}}", timeout=_ASK_SECONDS).strip()
        return speaks_registry(address)


def speaks_registry(address: str) -> bool:
    """See `Engine.registry_answers`; `address` is a URL of which scheme and host count."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme not in ("http", "https"):
        return False
    try:
        with urllib.request.urlopen(f"{parts.scheme}://{parts.netloc}/v2/", timeout=_PROBE_SECONDS) as answer:
            status, headers = answer.status, answer.headers
    except urllib.error.HTTPError as refusal:
        status, headers = refusal.code, refusal.headers
    except OSError:
        return False
    return status in (200, 401) and "registry/2" in (headers.get("Docker-Distribution-Api-Version") or "")


def ask() -> Engine:
    """The engine that the user's docker client speaks to.

    Raises NoEngine where nothing answers (a client alone is no engine, whatever `docker -v` says), and
    UnfitEngine for an engine on another machine or of another operating system.
    """
    try:
        words = run(
            ["docker", "version", "--format", "{{.Server.Version}} {{.Server.Os}}"], timeout=_ASK_SECONDS
        ).split()
    except CommandFailed as failure:
        raise NoEngine(f"no engine answers: {failure.output.strip()[-200:] or failure.reason}") from failure
    if len(words) != 2:
        raise NoEngine(f"the engine tells no version: {' '.join(words)!r}")
    version, system = words
    if system != "linux":
        raise UnfitEngine(f"engine {version} runs {system} containers; switch it to Linux containers")
    host = _endpoint()
    if not host.startswith("unix://"):
        raise UnfitEngine(
            f"the engine at {host} is another machine, its ports are not on this loopback; "
            "unset DOCKER_HOST or choose a local docker context"
        )
    return Engine(host)


def _endpoint() -> str:
    words = run(["docker", "context", "inspect"], timeout=_ASK_SECONDS)
    try:
        return str(json.loads(words)[0]["Endpoints"]["docker"]["Host"])
    except (ValueError, LookupError) as failure:
        raise UnfitEngine(f"`docker context inspect` is not understood: {words[:200]!r}") from failure
