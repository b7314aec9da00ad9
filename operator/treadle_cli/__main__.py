"""`kubectl treadle`."""

import os
import sys
from collections.abc import Sequence

from . import commands
from .arguments import parse
from .errors import CliError

INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Ends the process with the command's exit code."""
    try:
        code = commands.run(parse(arguments))
    except CliError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # Whoever read us has enough; Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


if __name__ == "__main__":
    main()
