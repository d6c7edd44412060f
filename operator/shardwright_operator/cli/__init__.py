"""The command line: plan, render and compare on a laptop with no cluster, or run the operator."""

from shardwright_operator.cli.main import main

__all__ = ["main"]
