"""Ray in the operator's pods: its own environment, and a stand-in for the vLLM that would run on it.

vLLM's CPU build refuses Ray ("current platform cpu does not support ray"). So Ray itself is real, started by
the words that the operator renders; the engine is a program that asks Ray for what vLLM would ask; and the
words after ``vllm serve`` are held against vLLM's parser.
"""

from live_ray.environment import RayEnvironment, ensure_ray
from live_ray.image import IMAGE, ray_image, ray_mounts

__all__ = ["IMAGE", "RayEnvironment", "ensure_ray", "ray_image", "ray_mounts"]
