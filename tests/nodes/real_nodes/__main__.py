"""Command line: build and install what nodes need, so that no test waits for it.

python -m real_nodes check
python -m real_nodes setup
"""

import argparse
import sys

from control_plane.binaries import BuildError
from control_plane.toolchain import ToolchainError
from real_nodes.ability import obstacle
from real_nodes.programs import NodeSetupError, ensure_programs


def main(arguments: list[str] | None = None) -> int:
    """Run a command; the exit code is 0 on success, 1 when this machine cannot run nodes or set-up failed."""
    parser = argparse.ArgumentParser(prog="python -m real_nodes", description="The nodes of the tests.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("check", help="say whether this machine can hold nodes; changes nothing")
    commands.add_parser("setup", help="build and install what is missing")
    command = parser.parse_args(arguments).command
    if why := obstacle():
        print(f"nodes: not run here: {why}", file=sys.stderr)
        return 1
    if command == "check":
        print("nodes: this machine can hold them")
        return 0
    try:
        print(ensure_programs().folder)
    except (BuildError, NodeSetupError, ToolchainError) as error:
        print(f"nodes: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
