"""A real vLLM on this machine, made once and kept: the judge of what the operator renders.

vLLM's CPU build has the same parser and the same configuration checks as the one for GPUs, so that a command
line can be held against the engine itself on any machine. It lives in a virtual environment of its own in
the cache, since its requirements and the project's would fight.
"""

from engine_environment.environment import EngineSetupError, Environment, ensure_environment

__all__ = ["EngineSetupError", "Environment", "ensure_environment"]
