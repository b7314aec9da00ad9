"""Processes are known by pid and start time, so that a pid used anew is never taken for ours."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from .waiting import wait_until

_START_TIME = 19  # field 22 of /proc/<pid>/stat (proc(5)), counted behind the closing bracket of the name


@dataclass(frozen=True)
class Process:
    """A process that we started: its pid, and its start in clock ticks since boot."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has this pid now; None if there is none, or only its zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else cls(pid, int(fields[_START_TIME]))

    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def stop(self, *, grace: float) -> None:
        """SIGTERM, then SIGKILL after `grace` seconds; returns once the process is gone."""
        if not self._send(signal.SIGTERM):
            return
        try:
            wait_until(f"end of process {self.pid}", lambda: not self.alive(), seconds=grace)
        except TimeoutError:
            self._send(signal.SIGKILL)
            wait_until(f"end of killed process {self.pid}", lambda: not self.alive(), seconds=10)

    def _send(self, number: signal.Signals) -> bool:
        if not self.alive():
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False
