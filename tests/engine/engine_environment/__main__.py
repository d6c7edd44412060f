"""Command line: make the engine's environment, or say where it is.

python -m engine_environment setup
"$(python -m engine_environment path)"/venv/bin/vllm --version
"""

import argparse
import sys

from engine_environment.environment import EngineSetupError, ensure_environment, environment


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code is 0 on success, 1 when set-up failed or has not been done."""
    parser = argparse.ArgumentParser(
        prog="python -m engine_environment", description="The engine of the tests."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("setup", help="install vLLM's CPU build into the cache, unless it is there")
    commands.add_parser("path", help="print the folder, without making it")
    if parser.parse_args(arguments).command == "setup":
        try:
            print(ensure_environment().folder)
        except EngineSetupError as error:
            print(f"engine: {error}", file=sys.stderr)
            return 1
        return 0
    found = environment()
    print(found.folder)
    return 0 if found.is_complete() else 1


if __name__ == "__main__":
    sys.exit(main())
