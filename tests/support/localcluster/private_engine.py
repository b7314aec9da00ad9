"""Our own dockerd: own data, socket, bridge and cgroup, so that it meets nobody else's and leaves nothing.

The engine itself touches no firewall (``"iptables": false``). The few rules that a cluster needs are ours,
carry our comment, and are in the state file before they are in the kernel.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from . import debian, oci_runtime
from .commands import answers, merged, run, search_path
from .engine import Engine
from .errors import ClusterError
from .identity import Process
from .layout import Layout
from .narrate import say
from .state import PrivateEngine, State
from .waiting import wait_until

NETWORK = "kind"
_START_SECONDS = 60
_DEAD_PROXY = "http://127.0.0.1:9"  # discard: nothing listens, so the engine's way out ends at once
_NO_DNS = "203.0.113.53"  # RFC 5737: nobody's address; the reject rule answers for it at once
_MARK = "0x7472/0xffff"  # on packets that come from our bridge, so that the rules need not know its addresses
_APPARMOR = Path("/sys/module/apparmor/parameters/enabled")
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")


def install() -> None:
    """dockerd and its companions are on this machine afterwards."""
    why = "no container engine answers, a private one is to be started"
    lacking = [
        package for program, package in _needed().items() if not shutil.which(program, path=search_path())
    ]
    if lacking:
        debian.install(lacking, why)
    debian.require("docker", "docker-cli", why)  # a package of its own since Debian 13


def _needed() -> dict[str, str]:
    """Debian's packages by the program that we or dockerd start."""
    packages = {"dockerd": "docker.io", "iptables": "iptables", "ip": "iproute2"}
    if _APPARMOR.exists() and _APPARMOR.read_text().strip() == "Y":
        packages["apparmor_parser"] = "apparmor"  # dockerd loads a profile where the kernel has AppArmor
    return packages


def start(layout: Layout, state: State, *, offline: bool) -> Engine:
    """Start dockerd and its network. `offline`: neither it nor its containers get off this machine."""
    run_dir = layout.run_dir
    socket = run_dir / "docker.sock"
    started = PrivateEngine(str(socket), str(run_dir), layout.cgroup, layout.bridge, offline=offline)
    started.forwarding_was_off = _FORWARDING.read_text().strip() == "0"
    started.rules = firewall(layout, offline=offline)
    state.engine, state.host = started, f"unix://{socket}"
    state.write(layout.state_file)

    layout.engine_data.mkdir(parents=True, exist_ok=True)
    run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    configuration = run_dir / "daemon.json"
    configuration.write_text(json.dumps(daemon_json(layout, offline=offline), indent=1))
    log = layout.engine_data / "dockerd.log"
    dead = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY"), _DEAD_PROXY) | {"NO_PROXY": "", "no_proxy": ""}
    with log.open("ab") as output:
        # Not through `commands`: this one is to outlive us. `down` ends it by what stands in the state file.
        dockerd = subprocess.Popen(
            ["dockerd", "--config-file", str(configuration)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=merged(dead if offline else {}),
        )
    started.process = Process.of(dockerd.pid)
    state.write(layout.state_file)

    engine = Engine(state.host)

    def up_or_dead() -> bool:
        if dockerd.poll() is not None:
            raise ClusterError(f"dockerd ended with code {dockerd.returncode}; its last words:\n{_tail(log)}")
        return engine.answers()

    wait_until("the private engine", up_or_dead, seconds=_START_SECONDS)
    # An engine that was killed comes back with its containers; a cluster is made anew instead.
    if left := engine.docker("ps", "--all", "--quiet").split():
        engine.docker("rm", "--force", "--volumes", *left, timeout=180)
    _network(engine, layout)
    for rule in started.rules:
        run(["iptables", "-w", *rule], timeout=20)
    return engine


def firewall(layout: Layout, *, offline: bool) -> list[list[str]]:
    """The rules as arguments of iptables that add them."""
    bridge, mark = layout.bridge, ["-m", "comment", "--comment", f"treadle-{layout.key}"]
    leaving = ["-i", bridge, "!", "-o", bridge]
    if offline:
        return [["-I", "FORWARD", *leaving, *mark, "-j", "REJECT"]]
    packet = ["-m", "mark", "--mark", _MARK]
    return [
        ["-t", "mangle", "-I", "PREROUTING", "-i", bridge, *mark, "-j", "MARK", "--set-xmark", _MARK],
        ["-t", "nat", "-I", "POSTROUTING", "!", "-o", bridge, *packet, *mark, "-j", "MASQUERADE"],
        ["-I", "FORWARD", "-i", bridge, *mark, "-j", "ACCEPT"],
        [
            "-I",
            "FORWARD",
            "-o",
            bridge,
            "-m",
            "conntrack",
            "--ctstate",
            "RELATED,ESTABLISHED",
            *mark,
            "-j",
            "ACCEPT",
        ],
    ]


def daemon_json(layout: Layout, *, offline: bool) -> dict[str, object]:
    run_dir = layout.run_dir
    configuration: dict[str, object] = {
        "hosts": [f"unix://{run_dir}/docker.sock"],
        "data-root": str(layout.engine_data / "data"),
        "exec-root": str(run_dir / "exec"),
        "pidfile": str(run_dir / "docker.pid"),
        "cgroup-parent": f"/{layout.cgroup}",
        "exec-opts": ["native.cgroupdriver=cgroupfs"],
        "storage-driver": "overlay2",
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
        "shutdown-timeout": 10,
    }
    if offline:
        configuration["dns"] = [_NO_DNS]
    if not oci_runtime.grantable():
        wrapper = run_dir / "oci-runtime"
        shutil.copyfile(oci_runtime.__file__, wrapper)
        wrapper.chmod(0o755)
        configuration |= {
            "default-runtime": "lowered",
            "runtimes": {"lowered": {"path": str(wrapper)}},
            "oom-score-adjust": 0,
        }
        say("engine", "this host grants no CAP_SYS_RESOURCE: containers run without it")
    return configuration


def _network(engine: Engine, layout: Layout) -> None:
    """kind's network, made by us first so that its bridge has a name that we know."""
    if answers(["docker", "network", "inspect", NETWORK], timeout=20, env=engine.env):
        return
    options = ["-o", f"com.docker.network.bridge.name={layout.bridge}"]
    engine.docker("network", "create", "--driver", "bridge", *options, NETWORK)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1500:]
