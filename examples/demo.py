"""`make demo`: the second example on a real Kubernetes, with its agent killed in the middle.

Standard library only, so that it runs before anything is installed. Every stage says what it does and how
long it took; at the end nothing is left running, unless KEEP=1.
"""

import contextlib
import hashlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SYSTEM = "treadle-system"
AGENTS = "agents"
RUN = "sales-review"
ARTIFACT = "sales-review.md"
KILL_AFTER_TOOLS = 5
STREAM_LIMIT = 180

KILL_AGENT = (
    "import os,signal;"
    "children=[int(p) for p in os.listdir('/proc') if p.isdigit() and p!='1' and int(p)!=os.getpid()"
    " and open(f'/proc/{p}/stat').read().rsplit(')',1)[1].split()[1]=='1'];"
    "print('kill -9', *children); [os.kill(p, signal.SIGKILL) for p in children]"
)
"""Runs inside the agent's container: ends the children of process 1, which is the keeper."""

stages: list[tuple[str, float]] = []


class DemoError(Exception):
    """A stage did not do what it promises; the message says which command to look at."""


@contextlib.contextmanager
def stage(title: str) -> Iterator[None]:
    print(f"\n== {title}", flush=True)
    begun = time.monotonic()
    yield
    stages.append((title, time.monotonic() - begun))


def run(*command: str, quiet: bool = False, limit: float = 600) -> str:
    """The command's standard output. Raises DemoError with its last words."""
    if not quiet:
        print(f"$ {shlex.join(command)}", flush=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)
    if done.returncode:
        raise DemoError(
            f"{shlex.join(command)} ended with {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}"
        )
    return done.stdout


def show(*command: str) -> None:
    for line in run(*command).splitlines():
        print(f"  {line}", flush=True)


def cluster(environment: Path | None, *words: str) -> str:
    """A command of the local cluster's harness; its progress goes to the terminal."""
    variables = os.environ | {"PYTHONPATH": str(ROOT / "tests" / "support")}
    python = environment / "bin" / "python" if environment else sys.executable
    command = [str(python), "-m", "localcluster", *words]
    capture = subprocess.PIPE if words[0] == "env" else None
    done = subprocess.run(command, cwd=ROOT, env=variables, stdout=capture, text=True, check=False)
    if done.returncode:
        raise DemoError(f"the local cluster: `{' '.join(words)}` ended with {done.returncode}")
    return done.stdout or ""


def enter_cluster(environment: Path) -> None:
    for line in cluster(environment, "env").splitlines():
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            os.environ[name] = os.path.expandvars(" ".join(shlex.split(value)))


def install() -> None:
    images = {"operator": "OPERATOR", "runtime": "RUNTIME", "devStore": "DEVSTORE"}
    settings = ["devStores.enabled=true", f"agentNamespaces={{{AGENTS}}}", "createNamespaces=true"]
    for value, variable in images.items():
        repository, _, tag = os.environ[f"TREADLE_{variable}_IMAGE"].rpartition(":")
        settings += [f"images.{value}.repository={repository}", f"images.{value}.tag={tag}"]
    options = [word for setting in settings for word in ("--set", setting)]
    release = ["treadle", "charts/treadle", "--namespace", SYSTEM, "--create-namespace"]
    run("helm", "upgrade", "--install", *release, *options, "--wait", "--timeout", "5m")
    show("kubectl", "get", "pods", "-n", SYSTEM)


def plugin(environment: Path, *words: str) -> list[str]:
    return [str(environment / "bin" / "python"), "-m", "treadle_cli", "-n", AGENTS, *words]


def python_environment() -> Path:
    done = subprocess.run(
        ["tests/support/setup.sh", "venv"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise DemoError("tests/support/setup.sh could not make the Python environment: see its words above")
    os.environ["PYTHONPATH"] = ":".join(str(ROOT / part) for part in ("crds", "operator", "runtime"))
    return Path(done.stdout.strip().splitlines()[-1])


def watch_and_kill(environment: Path) -> None:
    """Follow the stream; in its middle kill the agent's process; the stream goes on with the next attempt."""
    status = subprocess.Popen(
        ["kubectl", "get", "runs", "-n", AGENTS, "--watch"], stdout=subprocess.PIPE, text=True
    )
    follow = threading.Thread(target=_echo, args=(status, "  runs   | "), daemon=True)
    follow.start()
    stream = subprocess.Popen(
        plugin(environment, "stream", RUN),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    guard = threading.Timer(STREAM_LIMIT, stream.kill)
    guard.start()
    try:
        assert stream.stdout is not None
        tools, killed = 0, False
        for line in stream.stdout:
            print(f"  stream | {line.rstrip()}", flush=True)
            tools += line.startswith("•")
            if tools >= KILL_AFTER_TOOLS and not killed:
                killed = True
                pod = run(
                    "kubectl",
                    "get",
                    "run",
                    RUN,
                    "-n",
                    AGENTS,
                    "-o",
                    "jsonpath={.status.pod.name}",
                    quiet=True,
                )
                print(f"\n  !! the agent of pod {pod} is killed now (SIGKILL, no warning)", flush=True)
                print(
                    "  !! "
                    + run("kubectl", "exec", "-n", AGENTS, pod, "--", "python", "-c", KILL_AGENT, quiet=True)
                )
        if stream.wait() != 0:
            raise DemoError("`kubectl treadle stream` ended with an error: see its words above")
        if not killed:
            raise DemoError("the run was over before its agent could be killed")
    finally:
        guard.cancel()
        stream.kill()
        status.kill()
        follow.join(timeout=5)


def _echo(process: "subprocess.Popen[str]", prefix: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        print(prefix + line.rstrip(), flush=True)


def verify(environment: Path) -> None:
    run("kubectl", "wait", "-n", AGENTS, "--for=condition=Succeeded", f"run/{RUN}", "--timeout=120s")
    show("kubectl", "get", "runs", "-n", AGENTS, "-o", "wide")
    shown = json.loads(run("kubectl", "get", "run", RUN, "-n", AGENTS, "-o", "json", quiet=True))["status"]
    print("\n  status.delivery:")
    for line in json.dumps(shown["delivery"], indent=2).splitlines():
        print(f"    {line}")
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / ARTIFACT
        run(*plugin(environment, "artifact", RUN, ARTIFACT, "-o", str(target)))
        content = target.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    promised = next(file["sha256"] for file in shown["delivery"]["artifacts"] if file["path"] == ARTIFACT)
    print("\n".join(f"    {line}" for line in content.decode().splitlines()[:14]))
    print(f"\n  sha256 of the file:    {digest}\n  sha256 in the receipt: {promised}")
    if digest != promised:
        raise DemoError("the file is not the one that the receipt promises")
    if shown["attempt"] < 2:
        raise DemoError("the run needed no second attempt: its agent was not killed")
    story = ["--field-selector", "involvedObject.kind=Run", "--sort-by", ".metadata.creationTimestamp"]
    columns = "custom-columns=REASON:.reason,MESSAGE:.message"
    show("kubectl", "get", "events", "-n", AGENTS, *story, "-o", columns)


def main() -> int:
    keep = os.environ.get("KEEP") == "1"
    failed = True
    environment = None
    try:
        with stage("what this machine needs"):
            environment = python_environment()
        with stage("a real Kubernetes, and our images in it"):
            cluster(environment, "up")
            enter_cluster(environment)
        with stage("our chart"):
            install()
        with stage("an Agent and a Run"):
            run("kubectl", "delete", "run", RUN, "-n", AGENTS, "--ignore-not-found", quiet=True)
            show("kubectl", "apply", "-n", AGENTS, "-f", "examples/02-sales-review")
        with stage("the agent at work, killed in the middle, continued by the next attempt"):
            watch_and_kill(environment)
        with stage("the receipt"):
            verify(environment)
        failed = False
    except (DemoError, subprocess.TimeoutExpired) as error:
        print(f"\ndemo: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("\ndemo: interrupted", file=sys.stderr)
    finally:
        if keep:
            print(
                "\nKEEP=1: the cluster stays; `make cluster-shell` enters it, `make cluster-down` deletes it"
            )
        else:
            with stage("clean up"):
                cluster(environment, "down", "--name", os.environ.get("TREADLE_CLUSTER_NAME") or "treadle")
    print("\nhow long each stage took:")
    for title, seconds in stages:
        print(f"  {seconds:6.1f} s  {title}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
