"""Command line: build and install what nodes need, so that no test waits for it.

python -m real_nodes setup
"""

import argparse
import sys

from control_plane.binaries import BuildError
from control_plane.toolchain import ToolchainError
from real_nodes.programs import NodeSetupError, ensure_programs


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit code is 0 on success, 1 when this machine cannot run nodes."""
    parser = argparse.ArgumentParser(prog="python -m real_nodes", description="The nodes of the tests.")
    parser.add_argument("command", choices=["setup"], help="build and install what is missing")
    parser.parse_args(arguments)
    try:
        print(ensure_programs().folder)
    except (BuildError, NodeSetupError, ToolchainError) as error:
        print(f"nodes: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
