"""`python -m support.simulator SEED`: play one history again, with everything that happened in it."""

import sys

from support.simulator.history import History
from support.simulator.loop import Broken


def main(seed: int) -> int:
    history = History(seed)
    try:
        summary = history.play()
    except Broken as broken:
        _tell(history)
        print(f"seed {seed}, t={history.loop.now:.3f}: {broken}")
        return 1
    _tell(history)
    print(f"seed {seed} holds: {summary}")
    return 0


def _tell(history: History) -> None:
    for at, who, what in history.loop.trace:
        print(f"{at:10.3f}  {who:14}  {what}")


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))
