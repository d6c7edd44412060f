"""Facts that belong to the engine, read off the pinned vLLM itself and kept as data of the planner.

Which architectures can be pipelined, which quantizations there are and on which GPUs, the options of
``vllm serve`` and the variables it reads: all of them change between versions, and a list kept by hand is
wrong before long. ``python -m engine_facts write`` derives them; the tests of the engine hold the data
against the engine again.
"""

from engine_facts.data import DATA, derived, written

__all__ = ["DATA", "derived", "written"]
