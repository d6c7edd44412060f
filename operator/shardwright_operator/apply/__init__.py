"""Carries a decision out: live reads, writes in stages, one status write, events. Decides nothing."""
