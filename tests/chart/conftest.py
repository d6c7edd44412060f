"""The chart's tests call the helm that the local control plane's tools include."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from control_plane.binaries import build_tools

CHART = Path(__file__).parents[2] / "charts" / "shardwright"


@pytest.fixture(scope="session")
def helm() -> Callable[..., subprocess.CompletedProcess[str]]:
    """``helm("lint", "CHART")``: CHART stands for the chart's path; a failure is returned, not raised."""
    program = build_tools().helm

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(program), *(str(CHART) if a == "CHART" else a for a in arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run
