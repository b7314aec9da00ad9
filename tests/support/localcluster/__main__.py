"""The command line: ``python3 -m localcluster up|down|env|status|images|wheels|shell``."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from . import images, ladder, wheels
from .errors import ClusterError
from .layout import Layout
from .narrate import say
from .settings import Settings
from .state import locked

_COMMANDS = {
    "up": "a cluster with our images; reuses what is there",
    "down": "end all that `up` started; with --name one cluster, and the rest if it was the last",
    "env": "shell exports to use the cluster",
    "status": "what runs",
    "images": "build our images, load nothing",
    "wheels": "collect the wheels that the images hold",
    "shell": "an interactive shell with the exports set",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="localcluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in _COMMANDS.items():
        one = commands.add_parser(name, help=words)
        one.add_argument("--name", help="the cluster (default treadle, or $TREADLE_CLUSTER_NAME)")
        if name == "status":
            one.add_argument(
                "--quiet", action="store_true", help="no words: exit code 0 if the cluster is healthy"
            )
        if name == "up":
            one.add_argument("--nodes", type=int, help="1 to 5 (default 1, or $TREADLE_NODES)")
            one.add_argument("--no-images", action="store_true", help="a cluster without our images")
    arguments = parser.parse_args()
    try:
        return _carry_out(arguments)
    except (ClusterError, TimeoutError) as failure:
        print(f"localcluster: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("localcluster: interrupted; `down` clears what was begun", file=sys.stderr)
        return 130


def _carry_out(arguments: argparse.Namespace) -> int:
    layout = Layout.of()
    settings = Settings.read(name=arguments.name, nodes=getattr(arguments, "nodes", None))
    match arguments.command:
        case "up":
            if settings.existing:
                say(
                    "cluster",
                    "TREADLE_CLUSTER=existing: the current kube context is used, nothing is created",
                )
            else:
                with locked(layout.lock_file):
                    ladder.up(layout, settings, with_images=not arguments.no_images)
                say("use it", f"export KUBECONFIG={layout.kubeconfig(settings.name)}")
                say("", 'or all of it: eval "$(PYTHONPATH=tests/support python3 -m localcluster env)"')
        case "down":
            if settings.existing:
                say("down", "TREADLE_CLUSTER=existing: nothing was created, nothing is removed")
            else:
                with locked(layout.lock_file):
                    ladder.down(layout, only=arguments.name)
        case "env":
            for name, value in ladder.exports(layout, settings).items():
                print(f"export {name}={shlex.quote(value)}")
            if folders := [] if settings.existing else ladder.program_folders(layout):
                print(f'export PATH={shlex.quote(os.pathsep.join(folders))}:"$PATH"')
        case "status" if arguments.quiet:
            return 0 if settings.existing or ladder.healthy(layout, settings) else 1
        case "status":
            print("\n".join(ladder.status(layout)))
        case "images":
            with locked(layout.lock_file):
                ladder.build_images(layout, settings)
        case "wheels":
            for image in images.WITH_WHEELS:
                print(wheels.collect(layout, image))
        case "shell":
            os.environ.update(ladder.exports(layout, settings))
            folders = [] if settings.existing else ladder.program_folders(layout)
            os.environ["PATH"] = os.pathsep.join([*folders, os.environ.get("PATH", "")])
            shell = os.environ.get("SHELL", "/bin/sh")
            os.execv(shell, [shell])
    return 0


if __name__ == "__main__":
    sys.exit(main())
