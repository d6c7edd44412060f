"""How long a group may take to start, and the probes that follow from it.

One budget serves the start-up probe and the engine's own time limits. If an inner limit were shorter, the
engine would give up on a load that the probe still allows; if it were longer, a restart would look like a
hang.
"""

import math

from shardwright_operator.api.lifecycle_spec import RecoverySpec
from shardwright_operator.build.owner import Manifest
from shardwright_operator.build.service import API_PORT_NAME
from shardwright_operator.launcher import start
from shardwright_planner.plan import Plan

READ_BYTES_PER_S = 250_000_000
"""Slowest steady rate at which a node is expected to get the checkpoint, from the Hub or a network volume."""
WARM_UP_S = 600
"""Everything but reading: imports, forming the group, compiling kernels, warm-up and CUDA graphs. Warm-ups of
more than 10 minutes were reported with a cold compile cache (vLLM pull request 27444)."""
PROBE_PERIOD_S = int(start.PROBE_PERIOD_S)
"""As the launcher has it, which tells by it whether this probe may have ended a start."""
PROBE_TIMEOUT_S = 10


def startup_budget_s(recovery: RecoverySpec, plan: Plan) -> int:
    """Seconds from the start of the containers to readiness, rounded up to a period of the probe.

    ``recovery.startupTimeout``, or the whole checkpoint at ``READ_BYTES_PER_S`` plus ``WARM_UP_S``: every
    node reads all files, because a rank looks through each of them for its part.
    """
    given = recovery.startup_timeout_s
    budget = WARM_UP_S + plan.weights_bytes / READ_BYTES_PER_S if given is None else given
    return math.ceil(budget / PROBE_PERIOD_S) * PROBE_PERIOD_S


def leader_probes(budget_s: int) -> Manifest:
    """Probes of rank 0 as fields of its container. A worker has none: it listens on no fixed port.

    vLLM opens its port when the engine is ready, so a refused connection is the normal state while it loads.
    A saturated engine answers late, hence the patient limits; ``/health`` tells only that the leader's engine
    process lives, so that liveness serves for nothing but a server that no longer answers at all.
    """
    return {
        "startupProbe": _probe(period_s=PROBE_PERIOD_S, failures=budget_s // PROBE_PERIOD_S),
        "readinessProbe": _probe(period_s=5, failures=3),
        "livenessProbe": _probe(period_s=30, failures=10),
    }


def _probe(*, period_s: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": "/health", "port": API_PORT_NAME},
        "periodSeconds": period_s,
        "timeoutSeconds": PROBE_TIMEOUT_S,
        "failureThreshold": failures,
    }
