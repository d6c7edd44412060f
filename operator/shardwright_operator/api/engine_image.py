"""Which engine image a resource runs, and which vLLM version is in it.

The planner's defaults and limits and the engine's command line both depend on the version, so it must be
known before anything runs; an image says it only by its tag.
"""

import re

from shardwright_operator.api.engine_spec import EngineSpec
from shardwright_operator.api.errors import SpecError

DEFAULT_IMAGE = "vllm/vllm-openai:v0.32.0"
KNOWN_VERSIONS = ("0.32", "0.33")
"""Versions of vLLM whose defaults and command line were read and tried, as major.minor."""

_TAG = re.compile(r"^v?(\d+\.\d+)(?:\.|$|-|\+|rc|post)")


def engine_image(engine: EngineSpec, default: str = DEFAULT_IMAGE) -> str:
    """The image of the spec, or the operator's default."""
    return engine.image or default


def engine_version(engine: EngineSpec, default: str = DEFAULT_IMAGE) -> str:
    """The vLLM version as major.minor: what the user says, or else what the image's tag says.

    Raises:
        SpecError: for a version that is not known. A user who knows that an image behaves like a known
            version says so in ``spec.engine.version``, which is then taken at its word.
    """
    shown = " and ".join(KNOWN_VERSIONS)
    if engine.version is not None:
        stated = ".".join(engine.version.split(".")[:2])
        if stated in KNOWN_VERSIONS:
            return stated
        raise SpecError(
            field="spec.engine.version",
            value=engine.version,
            limit=f"vLLM {shown} are known",
            remedy="state the known version that the image behaves like",
        )
    image = engine_image(engine, default)
    found = _TAG.match(_tag(image))
    if found and found[1] in KNOWN_VERSIONS:
        return found[1]
    raise SpecError(
        field="spec.engine.image",
        value=image,
        limit=f"its tag names none of the known vLLM versions, {shown}",
        remedy="set spec.engine.version to the known version that the image behaves like",
    )


def _tag(image: str) -> str:
    name = image.split("@", 1)[0].rsplit("/", 1)[-1]
    return name.split(":", 1)[1] if ":" in name else ""
