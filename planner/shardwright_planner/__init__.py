"""The embedded planner: model facts, hardware and a service level in; an explained plan out."""

from shardwright_planner.errors import PlanInputError
from shardwright_planner.hardware import GPUS, Gpu, find_gpu
from shardwright_planner.model import ModelFacts
from shardwright_planner.plan import Plan
from shardwright_planner.request import (
    EngineOptions,
    Executor,
    Pins,
    PlanRequest,
    Policy,
    Pool,
    ServiceLevel,
    Workload,
)

PLANNER_VERSION = "1"

__all__ = [
    "GPUS",
    "PLANNER_VERSION",
    "EngineOptions",
    "Executor",
    "Gpu",
    "ModelFacts",
    "Pins",
    "Plan",
    "PlanInputError",
    "PlanRequest",
    "Policy",
    "Pool",
    "ServiceLevel",
    "Workload",
    "find_gpu",
]
