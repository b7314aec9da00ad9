#!/usr/bin/python3 -IS
"""An OCI runtime for a host that may not grant CAP_SYS_RESOURCE.

runc refuses a container whose configuration names a capability that runc itself lacks ("unable to apply
caps"), and kind runs and enters its nodes privileged, which names all of them. So this program takes out of
the bundle (`create`, `run`) or of the process file (`exec`) what this host could not grant, and becomes runc.

It stands alone: the engine starts a copy of this file, without our package around it.
"""

import json
import os
import resource
import shutil
import sys

_CAPABILITY = "CAP_SYS_RESOURCE"
_BIT = 24  # its number in capabilities(7)


def grantable() -> bool:
    """Whether this process's bounding set still holds the capability."""
    with open("/proc/self/status") as status:
        bounding = next(line.split()[1] for line in status if line.startswith("CapBnd:"))
    return bool(int(bounding, 16) >> _BIT & 1)


def without_capability(process: dict) -> dict:  # type: ignore[type-arg]
    """The `process` object of the OCI runtime specification, less what only CAP_SYS_RESOURCE could do."""
    capabilities = {
        name: [one for one in held if one != _CAPABILITY]
        for name, held in (process.get("capabilities") or {}).items()
    }
    lowered = {**process, "capabilities": capabilities}
    if (process.get("oomScoreAdj") or 0) < 0:
        lowered["oomScoreAdj"] = 0
    if "rlimits" in process:
        lowered["rlimits"] = [_within_hard_limit(limit) for limit in process["rlimits"] or []]
    return lowered


def _within_hard_limit(limit: dict) -> dict:  # type: ignore[type-arg]
    hard = resource.getrlimit(getattr(resource, limit["type"]))[1]
    if hard == resource.RLIM_INFINITY or limit["hard"] <= hard:
        return limit
    return {**limit, "hard": hard, "soft": min(limit["soft"], hard)}


def option(words: list[str], *names: str) -> str:
    """The value of `--name value` or `--name=value`, or nothing."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word in names:
            return following
        name, has_value, value = word.partition("=")
        if has_value and name in names:
            return value
    return ""


def lower(words: list[str]) -> None:
    """Rewrite the file that this runtime call reads its process from."""
    if "create" in words or "run" in words:
        path = os.path.join(option(words, "--bundle", "-b") or ".", "config.json")
        with open(path) as file:
            whole = json.load(file)
        whole["process"] = without_capability(whole["process"])
    elif "exec" in words and (path := option(words, "--process", "-p")):
        with open(path) as file:
            whole = without_capability(json.load(file))
    else:
        return
    with open(path, "w") as file:
        json.dump(whole, file)


def main() -> None:
    words = sys.argv[1:]
    if not grantable():
        lower(words)
    runc = shutil.which("runc", path="/usr/local/sbin:/usr/sbin:/usr/local/bin:/usr/bin")
    if runc is None:
        sys.exit("runc is not installed")
    os.execv(runc, [runc, *words])


if __name__ == "__main__":
    main()
