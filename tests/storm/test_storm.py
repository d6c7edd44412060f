"""Bounded storms with fixed seeds; ``make chaos`` runs longer ones."""

import os
from pathlib import Path

import pytest

from control_plane.cluster import GIVEN_KUBECONFIG
from storm import run_storm

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(GIVEN_KUBECONFIG in os.environ, reason="restarts the API server, so it has its own"),
]

STORM_S = 75.0


@pytest.mark.parametrize("seed", [1, 2])
def test_no_promise_is_broken_in_a_storm(seed: int, tmp_path: Path) -> None:
    outcome = run_storm(seed, STORM_S, tmp_path / "storm")
    assert outcome.violations == [], outcome.report()
