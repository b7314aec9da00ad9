"""`python -m treadle_runtime.keeper`: start the agent first, import everything else afterwards."""

import sys

from treadle_runtime.keeper import child


def main() -> int:
    agent = child.start()
    # The Kubernetes client and the loop take ten times as long to import as the agent takes to start.
    from treadle_runtime.keeper import guard

    return guard.run(agent)


if __name__ == "__main__":
    sys.exit(main())
