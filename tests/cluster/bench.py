"""``make bench``: what the planner and the operator cost, as counts and as ratios measured in one run.

``make bench RESOURCES=1000`` is about the operator beside many resources, and takes ten minutes. Absolute
times belong to the machine; ratios, counts and the growth from one row of a table to the next travel.
"""

import argparse
import sys

from bench_ground import Ground, running_operator, say
from bench_planner import command_line_figures, planner_figures
from bench_resources import (
    first_resource,
    floors,
    grown,
    idle_figures,
    reaction_figures,
    restart_figures,
)

MANY = 400
"""From so many resources on, the run is about their number: no floors and no planner."""


def main() -> int:
    """Run all parts; prints a line a figure."""
    parser = argparse.ArgumentParser(description="Figures of the planner and the operator.")
    parser.add_argument("--resources", type=int, default=200, help="two-node resources (default: 200)")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds to watch an idle operator")
    parser.add_argument("--losses", type=int, default=100, help="pods that die one after the other")
    options = parser.parse_args()
    count: int = options.resources
    sizes = (100, MANY, count) if count > MANY else (count,)
    if count <= MANY:
        planner_figures()
        command_line_figures()
    with Ground(nodes=2 * count + 2) as ground:
        floor_s = floors(ground, count) if count <= MANY else {}
        with running_operator(ground) as operator:
            first_resource(ground)
            grown(ground, operator, sizes, floor_s)
            idle_figures(ground, operator, count, options.idle)
        with restart_figures(ground, count) as operator:
            reaction_figures(ground, operator, min(options.losses, count))
    say("all figures taken", "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
