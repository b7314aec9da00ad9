"""What the plug-in cannot do, told with the next step."""


class CliError(Exception):
    """Ends the command with exit code 1. `hint` says what the reader can do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
