"""Decisions: what is seen and the time in, writes and a status out. Pure; the only place that chooses."""
