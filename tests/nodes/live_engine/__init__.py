"""A real vLLM in the operator's pods on real nodes: models, deployments, and what happens to them."""

from live_engine.deployment import GPU, TOPOLOGIES, Live, LiveDeployment, Topology
from live_engine.models import Model, Models, ensure_models
from live_engine.pods import engine_image, mounts
from live_engine.table import Row

__all__ = [
    "GPU",
    "TOPOLOGIES",
    "Live",
    "LiveDeployment",
    "Model",
    "Models",
    "Row",
    "Topology",
    "engine_image",
    "ensure_models",
    "mounts",
]
