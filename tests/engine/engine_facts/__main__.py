"""Command line: derive the facts and write them into the planner, or compare.

python -m engine_facts write
python -m engine_facts check
"""

import argparse
import sys

from engine_environment import ensure_environment
from engine_facts.data import DATA, derived, kept, written


def main(arguments: list[str] | None = None) -> int:
    """Run one command; ``check`` gives 1 when the data differs from the engine."""
    parser = argparse.ArgumentParser(prog="python -m engine_facts", description="Facts of the pinned vLLM.")
    parser.add_argument("command", choices=("write", "check"))
    command = parser.parse_args(arguments).command
    version, facts = derived(ensure_environment())
    text = written({**kept(), version: facts})
    if command == "write":
        DATA.write_text(text)
        print(f"vLLM {version}: {', '.join(f'{len(value)} {key}' for key, value in facts.items())}")
        return 0
    if DATA.exists() and DATA.read_text() == text:
        return 0
    print(f"{DATA} differs from vLLM {version}: make engine-facts", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
