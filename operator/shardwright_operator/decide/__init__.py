"""Decisions: what is seen and the time in, writes and a status out. Pure; the only place that chooses."""

from shardwright_operator.decide.deployment import decide
from shardwright_operator.decide.target import DecideSettings

__all__ = ["DecideSettings", "decide"]
