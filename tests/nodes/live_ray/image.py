"""The image of Ray's pods: ``ray`` on its PATH, and a ``vllm`` that is none."""

from pathlib import Path

from live_ray.environment import RayEnvironment
from real_nodes.images import SYSTEM_PATH, Image

IMAGE = "shardwright.test/ray:v0.32.0"
"""The tag tells the operator which vLLM's words to write."""
FOLDER = "/opt/ray"
BIN = "/opt/ray-bin"
STAND_IN = Path(__file__).with_name("stand_in.py")

_SHEBANG = f"#!{FOLDER}/venv/bin/python\n"
_RAY = f"""\
{_SHEBANG}import sys
from ray.scripts.scripts import main
if __name__ == "__main__":
    sys.exit(main())
"""


def ray_image() -> Image:
    """The image; its programs need ``ray_mounts``."""
    return Image(
        name=IMAGE,
        environment={"PATH": f"{BIN}:{FOLDER}/venv/bin:{SYSTEM_PATH}", "LANG": "C.UTF-8"},
        programs={
            f"{BIN}/ray": _RAY.encode(),
            f"{BIN}/vllm": (_SHEBANG + STAND_IN.read_text()).encode(),
        },
    )


def ray_mounts(ray: RayEnvironment) -> dict[Path, str]:
    """Where the environment is for the pods."""
    return {ray.folder: FOLDER}
