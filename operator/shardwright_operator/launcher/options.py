"""The launcher's options. The engine's command stands after ``--`` as it would without a launcher.

Pods outlive the operator that made them, and a ConfigMap may be written anew by a newer one: options are only
ever added, and each has a default.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

PEER_PORT = 29600
PEER_TIMEOUT_S = 20.0
STALL_TIMEOUT_S = 90.0


def parser() -> argparse.ArgumentParser:
    """The options, with a help that says what each of them is good for."""
    found = argparse.ArgumentParser(
        prog="launcher.py",
        usage="launcher.py [OPTIONS] -- COMMAND [ARGUMENTS]",
        description="Checks the pod, runs the engine, passes signals on, and watches the other ranks.",
        allow_abbrev=False,
    )
    check = found.add_argument_group("checks before the start; each is left out without its option")
    check.add_argument("--gpus", type=int, help="GPUs that the plan counts on in this pod")
    check.add_argument(
        "--shared-memory", type=int, metavar="BYTES", help="size of /dev/shm, which is emptied"
    )
    check.add_argument("--memory", type=int, metavar="BYTES", help="memory that the engine's processes need")
    check.add_argument(
        "--resolve-interface",
        action="store_true",
        help="set NCCL's and Gloo's interface to the one that reaches the leader",
    )
    group = found.add_argument_group("the group")
    group.add_argument("--rank", type=int, default=0, help="node rank of this pod (0)")
    group.add_argument("--members", type=int, default=1, help="pods of the group (1)")
    group.add_argument("--leader", default="", metavar="NAME", help="DNS name of rank 0")
    group.add_argument(
        "--peer-port", type=int, default=PEER_PORT, help=f"port of rank 0's launcher ({PEER_PORT})"
    )
    group.add_argument(
        "--peer-timeout",
        type=float,
        default=PEER_TIMEOUT_S,
        metavar="SECONDS",
        help=f"silence after which a rank counts as lost ({PEER_TIMEOUT_S:g})",
    )
    life = found.add_argument_group("the engine's life")
    life.add_argument(
        "--start-within",
        type=float,
        default=1800.0,
        metavar="SECONDS",
        help="time that a start may take, and patience with the leader's name (1800)",
    )
    life.add_argument("--port", type=int, help="port of the engine's API; only rank 0 has one")
    life.add_argument(
        "--stall-timeout",
        type=float,
        default=STALL_TIMEOUT_S,
        metavar="SECONDS",
        help=f"time without a step, while requests run, that means a hang ({STALL_TIMEOUT_S:g})",
    )
    life.add_argument(
        "--drain-within",
        type=float,
        default=35.0,
        metavar="SECONDS",
        help="time for running requests after a stop signal, once the API serves (35)",
    )
    life.add_argument(
        "--stop-within",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="time to end after a stop signal otherwise (5)",
    )
    life.add_argument(
        "--termination-log", default="/dev/termination-log", metavar="FILE", help="where last words go"
    )
    life.add_argument("--folder", metavar="DIR", help="folder whose size the last words tell, of a download")
    life.add_argument("--progress-port", type=int, metavar="PORT", help="port at which that size is told")
    life.add_argument("command", nargs="*", help=argparse.SUPPRESS)
    return found


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Options and the engine's command; argparse itself ends the program for anything else."""
    found = parser()
    if "--" not in arguments:
        found.error("the engine's command must follow --")
    place = list(arguments).index("--")
    command = list(arguments[place + 1 :])
    if not command:
        found.error("there is no command after --")
    return found.parse_args(list(arguments[:place])), command
