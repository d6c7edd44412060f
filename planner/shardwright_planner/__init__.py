"""The embedded planner: model facts, hardware and a service level in; an explained plan out."""

from shardwright_planner.catalogue import find_model, model_names
from shardwright_planner.config import model_from_config
from shardwright_planner.errors import PlanInputError
from shardwright_planner.explanation import explain
from shardwright_planner.fingerprint import input_hash
from shardwright_planner.hardware import GPUS, Gpu, find_gpu
from shardwright_planner.model import ModelFacts
from shardwright_planner.plan import Plan
from shardwright_planner.planner import plan
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
from shardwright_planner.version import PLANNER_VERSION

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
    "explain",
    "find_gpu",
    "find_model",
    "input_hash",
    "model_from_config",
    "model_names",
    "plan",
]
