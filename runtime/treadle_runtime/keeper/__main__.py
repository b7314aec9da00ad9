"""`python -m treadle_runtime.keeper`: start the agent first, import everything else afterwards."""

import sys

from treadle_runtime.keeper import spawn


def main() -> int:
    started = spawn.start()
    # The Kubernetes client and the loop take fifteen times as long to import as the agent takes to start.
    from treadle_runtime.keeper import guard
    from treadle_runtime.keeper.child import Child

    return guard.run(Child(*started))


if __name__ == "__main__":
    sys.exit(main())
