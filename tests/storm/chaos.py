"""A storm for a person to watch: ``chaos.py SEED MINUTES``, or several, with seeds as ``3..9``.

It ends with 1 if a promise was broken.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from storm import run_storm

FOLDER = Path(__file__).parents[2] / ".local" / "storm"


def main(arguments: list[str]) -> int:
    try:
        seeds, minutes = list(_seeds(arguments[0])), float(arguments[1])
    except (IndexError, ValueError):
        sys.stderr.write(
            "error: SEED is a number or FIRST..LAST, MINUTES a number: make chaos SEED=3..9 MINUTES=1\n"
        )
        return 2
    worst = 0
    for seed in seeds:
        outcome = run_storm(seed, minutes * 60, FOLDER / str(seed))
        print(outcome.report(), flush=True)
        worst = max(worst, 1 if outcome.violations else 0)
        if outcome.violations:
            print(f"again: make chaos SEED={seed} MINUTES={minutes:g}", flush=True)
    return worst


def _seeds(text: str) -> Iterator[int]:
    first, _, last = text.partition("..")
    yield from range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
