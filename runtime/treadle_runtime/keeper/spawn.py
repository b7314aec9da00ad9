"""Start the agent process: the first thing a keeper does, before it imports what a keeper needs.

So this module imports only what an interpreter has loaded by then, and `signal`: each import here delays the
agent, whose own imports are most of the time to its first model call.
"""

import os
import signal
import sys

ENV_READ_FD = "TREADLE_KEEPER_READ_FD"
"""The file descriptor from which the agent reads what the keeper says."""
ENV_WRITE_FD = "TREADLE_KEEPER_WRITE_FD"

AGENT = (sys.executable, "-m", "treadle_runtime")

_KUBERNETES = ("KUBERNETES_", "KUBECONFIG")
_DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE)


def start(command: tuple[str, ...] = AGENT) -> tuple[int, int, int]:
    """Start the agent in its own process group, with a pipe pair to us in its environment.

    Its pid, and our two ends: the descriptor to read from and the one to write to.
    """
    child_read, our_write = os.pipe()
    our_read, child_write = os.pipe()
    for descriptor in (child_read, child_write):
        os.set_inheritable(descriptor, True)
    environment = agent_environment(dict(os.environ))
    environment[ENV_READ_FD] = str(child_read)
    environment[ENV_WRITE_FD] = str(child_write)
    pid = os.posix_spawn(command[0], command, environment, setpgroup=0, setsigdef=_DEFAULT_SIGNALS)
    os.close(child_read)
    os.close(child_write)
    return pid, our_read, our_write


def agent_environment(environ: dict[str, str]) -> dict[str, str]:
    """The agent's environment: ours without anything that leads to the API server.

    The token file itself stays readable to the same uid; what it may do is bounded by RBAC and by the
    Lease admission policy (02-api, "Pods and Leases").
    """
    return {name: value for name, value in environ.items() if not name.startswith(_KUBERNETES)}
