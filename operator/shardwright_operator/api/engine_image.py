"""Which engine image a resource runs, and which vLLM version is in it.

The planner's defaults and limits depend on the version (utilization, batch sizes, CUDA graphs), so it must be
known before anything runs; an image says it only by its tag.
"""

import re

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec

DEFAULT_ENGINE_VERSION = "0.32.0"
DEFAULT_IMAGE = f"vllm/vllm-openai:v{DEFAULT_ENGINE_VERSION}"

_TAG = re.compile(r":v?([0-9]+\.[0-9]+(?:\.[0-9]+)?)[^/:@]*(@|$)")


def engine_image(spec: ModelDeploymentSpec, default: str = DEFAULT_IMAGE) -> str:
    """The image of the spec, or the operator's default."""
    return spec.engine.image or default


def engine_version(spec: ModelDeploymentSpec, default: str = DEFAULT_IMAGE) -> str:
    """The vLLM version in the image: said by the spec, or read from the image's tag.

    Raises:
        SpecError: for an image whose tag does not say.
    """
    image = engine_image(spec, default)
    if spec.engine.version is not None:
        return spec.engine.version
    found = _TAG.search(image)
    if found is None:
        raise SpecError(
            field="spec.engine.version",
            value=None,
            limit=f"the tag of the image {image} does not say which vLLM is in it",
            remedy=f"add it, for example {DEFAULT_ENGINE_VERSION}",
        )
    return found.group(1)


def minor_version(version: str) -> str:
    """``0.32.0`` as ``0.32``: what the planner's tables go by."""
    return ".".join(version.split(".")[:2])
