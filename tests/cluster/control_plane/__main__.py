"""Command line: bring a cluster up and keep it, look at it, take it down.

    python -m control_plane up --nodes 2 --gpu H100-SXM-80GB
    eval "$(python -m control_plane env)"
    python -m control_plane down

Kept clusters live under .local/cluster/NAME of the checkout, so two checkouts never meet, and two names in
one checkout do not either.
"""

import argparse
import shlex
import sys
import time
from pathlib import Path

from control_plane.binaries import MODULE, BuildError, build_tools
from control_plane.certificates import CertificateError
from control_plane.folders import read_state, stop_folder
from control_plane.gpus import NODE_GPUS
from control_plane.nodes import make_nodes
from control_plane.plane import ControlPlane
from control_plane.processes import StartError
from control_plane.toolchain import ToolchainError

CHECKOUT = MODULE.parent.parent
KEPT = CHECKOUT / ".local" / "cluster"


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code is 0 on success, 1 when there is no such cluster or it did not start."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (BuildError, ToolchainError, StartError, CertificateError) as error:
        print(f"control plane: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m control_plane", description="A local control plane.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start a cluster and keep it, or say where the running one is")
    up.set_defaults(run=_up)
    up.add_argument("--nodes", type=int, default=2, help="number of simulated GPU nodes (default: 2)")
    up.add_argument(
        "--gpu", default="H100-SXM-80GB", choices=list(NODE_GPUS), metavar="GPU", help="their GPU"
    )
    up.add_argument(
        "--foreground", action="store_true", help="end with this process (Ctrl-C) instead of being kept"
    )
    down = commands.add_parser("down", help="stop a cluster, also one whose starter crashed")
    down.set_defaults(run=_down)
    status = commands.add_parser("status", help="tell whether a cluster runs, and its servers' pids")
    status.set_defaults(run=_status)
    env = commands.add_parser("env", help="print the export line of a running cluster")
    env.set_defaults(run=_env)
    build = commands.add_parser("build", help="build the programs into the cache and print their folder")
    build.set_defaults(run=_build)
    for command in (up, env):
        command.add_argument(
            "--path", action="store_true", help="also put kubectl, helm and shardwright on PATH"
        )
    for command in (up, down, status, env):
        command.add_argument("--name", default="default", help="name of the cluster (default: default)")
    return parser


def _up(options: argparse.Namespace) -> int:
    folder = KEPT / options.name
    state = read_state(folder)
    if state is not None and state.is_running():
        print(f"control plane: {options.name} runs already", file=sys.stderr)
        return _env(options)
    stop_folder(folder)
    tools = build_tools()
    started = time.monotonic()
    plane = ControlPlane(folder, tools=tools, keep=not options.foreground).start()
    try:
        client = plane.cluster.client()
        make_nodes(client, options.gpu, options.nodes)
        client.close()
        seconds = time.monotonic() - started
        text = f"up in {seconds:.1f} s with {options.nodes} nodes of {options.gpu}"
        print(f"control plane: {text}; kubectl is {tools.kubectl}", file=sys.stderr)
        _env(options)
        if options.foreground:
            _wait_for_interrupt()
    except BaseException:
        plane.stop()
        raise
    if options.foreground:
        plane.stop()
    else:
        plane.release()
    return 0


def _wait_for_interrupt() -> None:
    print("control plane: Ctrl-C ends it", file=sys.stderr, flush=True)
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return


def _down(options: argparse.Namespace) -> int:
    if not stop_folder(KEPT / options.name):
        print(f"control plane: no cluster {options.name!r} in this checkout", file=sys.stderr)
    return 0


def _status(options: argparse.Namespace) -> int:
    state = read_state(KEPT / options.name)
    if state is None:
        print(f"no cluster {options.name!r}")
        return 1
    for process in state.processes:
        print(f"{process.name:24} pid {process.pid:<8} {'running' if process.is_running() else 'gone'}")
    return 0 if state.is_running() else 1


def _env(options: argparse.Namespace) -> int:
    folder: Path = KEPT / options.name
    state = read_state(folder)
    if state is None or not state.is_running():
        print(f"control plane: {options.name} does not run", file=sys.stderr)
        return 1
    print(f"export KUBECONFIG={shlex.quote(str(state.kubeconfig))}")
    if options.path:
        folders = (build_tools().folder, Path(sys.executable).parent)
        print(f"export PATH={':'.join(shlex.quote(str(folder)) for folder in folders)}:$PATH")
    sys.stdout.flush()
    return 0


def _build(_: argparse.Namespace) -> int:
    print(build_tools().folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
