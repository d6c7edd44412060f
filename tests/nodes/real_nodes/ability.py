"""Can this machine hold nodes at all? Found out by doing once, in a second, what a node does.

A container of a CI system may lack the right to mount or to make namespaces. Then it is better to say so than
to spend minutes on a set-up whose nodes never come up.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from control_plane.toolchain import cache_folder
from real_nodes.cgroups import group_name, make_group, remove_group, sweep_groups
from real_nodes.programs import NodeSetupError, check_machine, search_path

NODE_PROCESS = Path(__file__).with_name("node_process.py")
TRIED_WITHIN_S = 120.0
TRIAL = "trial"


def obstacle() -> str:
    """Why no node can run on this machine, in a sentence; empty when one can."""
    try:
        check_machine()
        sweep_groups()
        groups = make_group(group_name(TRIAL))
    except (NodeSetupError, OSError) as error:
        return str(error)
    cache_folder().mkdir(parents=True, exist_ok=True)
    try:
        # Nodes keep their containers below the cache: here layers must mount over each other.
        with tempfile.TemporaryDirectory(prefix="trial-", dir=cache_folder()) as folder:
            settings = Path(folder, "settings.json")
            settings.write_text(json.dumps({"groups": [str(file) for file in groups], "folder": folder}))
            return _try([sys.executable, str(NODE_PROCESS), "trial", str(settings)])
    finally:
        remove_group(group_name(TRIAL))


def _try(command: list[str]) -> str:
    variables = os.environ | {"PATH": search_path()}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TRIED_WITHIN_S, env=variables
        )
    except subprocess.TimeoutExpired:
        return f"namespaces and mounts of a node were not there within {TRIED_WITHIN_S:.0f} s"
    if done.returncode == 0:
        return ""
    said = (done.stderr or done.stdout).strip().splitlines()
    return f"namespaces and mounts of a node cannot be made: {said[-1] if said else done.returncode}"
