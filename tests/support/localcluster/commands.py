"""Running other programs: always with a deadline, never outliving us.

Each command leads a process group of its own, so that a deadline ends it with its children, and asks the
kernel to be killed with us (PR_SET_PDEATHSIG), so that a killed `up` leaves no `kind create` behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from .errors import CommandFailed

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)

Environment = Mapping[str, str]
Child = subprocess.Popen[bytes]


def _die_with_parent() -> None:
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def search_path() -> str:
    """PATH with the administrator's folders, which an ordinary shell may lack."""
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def merged(extra: Environment | None) -> dict[str, str]:
    """This process's environment with `extra` on top; an empty value removes a variable."""
    env = {**os.environ, "PATH": search_path(), **(extra or {})}
    return {name: value for name, value in env.items() if value != ""}


def run(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    env: Environment | None = None,
    cwd: Path | None = None,
    stdin: IO[bytes] | str | None = None,
) -> str:
    """Run to the end and return standard output; CommandFailed carries both outputs otherwise."""
    words = [str(word) for word in argv]
    feed = stdin.encode() if isinstance(stdin, str) else None
    source = subprocess.PIPE if feed is not None else (stdin or subprocess.DEVNULL)
    try:
        process = subprocess.Popen(
            words,
            stdin=source,  # type: ignore[arg-type]
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=merged(env),
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    except OSError as failure:
        raise CommandFailed(words, f"could not be started ({failure.strerror})", "") from failure
    try:
        out, err = process.communicate(feed, timeout=timeout)
    except subprocess.TimeoutExpired:
        end_group(process)
        out, err = process.communicate()
        raise CommandFailed(words, f"did not end within {timeout:g} s", _text(err) + _text(out)) from None
    except BaseException:
        end_group(process)
        process.wait()
        raise
    if process.returncode != 0:
        raise CommandFailed(words, f"ended with code {process.returncode}", _text(out) + _text(err))
    return _text(out)


def follow(
    argv: Sequence[str | Path],
    on_line: Callable[[str], None],
    *,
    timeout: float,
    env: Environment | None = None,
    cwd: Path | None = None,
) -> None:
    """Run to the end, handing each line of both outputs to `on_line` as it comes."""
    words = [str(word) for word in argv]
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=merged(env),
        cwd=cwd,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )
    late = threading.Event()

    def out_of_time() -> None:
        late.set()
        end_group(process)

    timer = threading.Timer(timeout, out_of_time)
    timer.start()
    lines: list[str] = []
    try:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                lines = [*lines[-40:], line]
                on_line(line.rstrip("\n"))
        process.wait()
    except BaseException:
        end_group(process)
        process.wait()
        raise
    finally:
        timer.cancel()
    if process.returncode != 0:
        reason = (
            f"did not end within {timeout:g} s" if late.is_set() else f"ended with code {process.returncode}"
        )
        raise CommandFailed(words, reason, "".join(lines))


@contextlib.contextmanager
def beside(
    argv: Sequence[str | Path], *, stdout: IO[bytes] | int, stderr: IO[bytes] | int | None = None
) -> Iterator[Child]:
    """A command that runs while we do something else, and is ended at the latest when that is done."""
    process = subprocess.Popen(
        [str(word) for word in argv],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=merged(None),
        start_new_session=True,
        preexec_fn=_die_with_parent,
    )
    try:
        yield process
    finally:
        end_group(process)
        process.wait()


def answers(argv: Sequence[str | Path], *, timeout: float, env: Environment | None = None) -> bool:
    """Whether the command ends well in time."""
    try:
        run(argv, timeout=timeout, env=env)
    except CommandFailed:
        return False
    return True


def end_group(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Kill a command of ours that still runs, with its children."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
