"""How an attempt ends without an answer in the store."""

from treadle_api.contract import ExitCode
from treadle_api.reasons import Reason


class Misconfigured(Exception):
    """The attempt cannot be executed by this image with this configuration (exit 78)."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class AttemptOver(Exception):
    """This attempt ends without an answer, with an exit code that says what is wanted."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code
