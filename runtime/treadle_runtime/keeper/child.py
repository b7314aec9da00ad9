"""The agent process as the keeper sees it: started, signalled, reaped, killed with its whole group."""

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from treadle_runtime.keeper import wire

_KUBERNETES = ("KUBERNETES_", "KUBECONFIG")
_DEFAULT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGPIPE)


def agent_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The agent's environment: ours without anything that leads to the API server.

    The token file itself stays readable to the same uid; what it may do is bounded by RBAC and by the
    Lease admission policy (02-api, "Pods and Leases").
    """
    return {name: value for name, value in environ.items() if not name.startswith(_KUBERNETES)}


@dataclass(slots=True)
class Child:
    """A started agent: its pid (also its process group), and our two ends of the pipe pair."""

    pid: int
    read_fd: int
    write_fd: int
    status: int | None = None
    """Exit code once reaped; 128 + n where signal n ended it."""

    def signal(self, number: int) -> None:
        """Send a signal to the agent alone; a no-op once it is reaped."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill_group(self) -> None:
        """SIGKILL the agent and everything it started in its group; safe to repeat."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)


AGENT: Final = (sys.executable, "-m", "treadle_runtime")


def start(command: Sequence[str] = AGENT) -> Child:
    """Start the agent in its own process group, with a pipe pair to us in its environment."""
    child_read, our_write = os.pipe()
    our_read, child_write = os.pipe()
    for descriptor in (child_read, child_write):
        os.set_inheritable(descriptor, True)
    environment = agent_environment(os.environ)
    environment[wire.ENV_READ_FD] = str(child_read)
    environment[wire.ENV_WRITE_FD] = str(child_write)
    pid = os.posix_spawn(command[0], list(command), environment, setpgroup=0, setsigdef=_DEFAULT_SIGNALS)
    os.close(child_read)
    os.close(child_write)
    return Child(pid, our_read, our_write)


def reap(child: Child) -> None:
    """Collect every ended process (PID 1 inherits orphans) and note the agent's status when it is one."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == child.pid:
            code = os.waitstatus_to_exitcode(status)
            child.status = code if code >= 0 else 128 - code
