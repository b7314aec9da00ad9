"""The command line, and what it means."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Options:
    """One invocation. None and empty stand for "not given"."""

    command: str
    run: str
    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    gateway_namespace: str | None = None
    gateway_url: str | None = None
    service_account: str = "treadle-reader"
    token_file: str | None = None
    output: str | None = None
    path: str = ""
    after: str | None = None
    limit: int = 200
    types: tuple[str, ...] = ()
    follow: bool = False
    attempt: int | None = None
    tail: int | None = None


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Exits with a message on a command line that cannot be understood."""
    given = vars(_parser().parse_args(arguments))
    return Options(**{**given, "types": tuple(given.get("types") or ())})


def _parser() -> argparse.ArgumentParser:
    common = _common()
    parser = argparse.ArgumentParser(prog="kubectl treadle", description=__doc__, parents=[common])
    parser.description = "Look at runs of Treadle, live and afterwards."
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, help: str, *, json: bool = True) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help, description=help, parents=[common])
        made.add_argument("run", metavar="RUN", help="name or uid of the Run")
        if json:
            made.add_argument(
                "-o", "--output", choices=["json"], default=argparse.SUPPRESS, help="for programs"
            )
        return made

    stream = command("stream", "Follow a run: its text as it comes, a line per tool call, its outcome.")
    stream.add_argument("--after", metavar="ID", default=None, help="continue behind this frame id")
    logs = command("logs", "Print the log of the newest attempt's pod.", json=False)
    logs.add_argument("-f", "--follow", action="store_true", help="go on until the pod ends")
    logs.add_argument("--attempt", type=_positive, default=None, help="another attempt than the newest")
    logs.add_argument("--tail", type=_positive, default=None, help="only so many last lines")
    command("receipt", "Print the receipt: how the run ended and what it delivered.")
    events = command("events", "List the run's events from the log, oldest first.")
    events.add_argument("--after", metavar="SEQ", default=None, help="only events behind this seq")
    events.add_argument("--limit", type=_positive, default=200, help="at most so many (default 200)")
    events.add_argument(
        "--type", dest="types", action="append", help="only events of this type; may be repeated"
    )
    artifact = command("artifact", "Fetch a delivered file and check it against the receipt.", json=False)
    artifact.add_argument("path", metavar="PATH", help="as the receipt lists it")
    artifact.add_argument(
        "-o", "--output", metavar="FILE", default=argparse.SUPPRESS, help="where to; - for standard output"
    )
    return parser


def _common() -> argparse.ArgumentParser:
    """Accepted before and behind the command; SUPPRESS keeps the one from hiding the other."""
    common = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    common.add_argument("-n", "--namespace", help="of the Run (default: that of the kubeconfig's context)")
    common.add_argument("--context", help="of the kubeconfig")
    common.add_argument("--kubeconfig", metavar="FILE")
    common.add_argument("--gateway-namespace", metavar="NAMESPACE", help="where the gateway's Service is")
    common.add_argument(
        "--gateway-url", metavar="URL", help="the gateway's address, instead of a port-forward"
    )
    common.add_argument(
        "--service-account",
        metavar="NAME",
        help="of the Run's namespace, in whose name to read (default treadle-reader)",
    )
    common.add_argument(
        "--token-file", metavar="FILE", help="a bearer token, instead of the ServiceAccount's"
    )
    return common


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
