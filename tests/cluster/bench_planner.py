"""The planner's part of ``make bench``."""

import os
import statistics
import subprocess
import time

from bench_ground import ROOT, SHARDWRIGHT, SPEC, say
from shardwright_operator.api.plan_request import declared_pool, plan_request
from shardwright_operator.api.v1alpha1 import parse_spec
from shardwright_planner import PlanRequest, plan
from shardwright_planner.planner import search

WIDE = (
    "meta-llama/Llama-3.1-405B-Instruct",
    "deepseek-ai/DeepSeek-V3",
    "Qwen/Qwen3-235B-A22B",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    "openai/gpt-oss-120b",
)


def planner_figures() -> None:
    """Plans of usual and of the largest size."""
    small = _question("meta-llama/Llama-3.1-405B-Instruct", nodes=2)
    say("planner: 405B on 2 x 8 GPUs, ms a plan", _times_ms(small))
    for name in WIDE:
        # Nothing is fast enough, so that every candidate is judged and timed: the longest way.
        request = _question(name, nodes=8, tpot="1ms")
        count = len(search(request))
        short = name.partition("/")[2]
        say(f"planner: {short[:24]} on 8 x 8 GPUs, ms a plan", f"{_times_ms(request)}; {count} candidates")
    say("  aiconfigurator 0.12.0, one search, as published", "29 to 95 s")


def command_line_figures() -> None:
    """CPU of ``shardwright plan`` as a process, imports and all. The least of some: others wake up caches."""
    question = [str(SHARDWRIGHT), "plan", "-f", str(ROOT / "examples" / "llama-3.1-405b.yaml"), "-o", "json"]
    costs = []
    for _ in range(5):
        before = os.times()
        subprocess.run(question, check=True, stdout=subprocess.DEVNULL)
        after = os.times()
        costs.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    say("planner: `shardwright plan` as a process", f"{min(costs):.2f} s of CPU, least of {len(costs)}")


def _question(name: str, *, nodes: int, tpot: str = "150ms") -> PlanRequest:
    spec = parse_spec(
        {
            **SPEC,
            "model": {"name": name},
            "slo": {"concurrency": 32, "timePerOutputToken": tpot},
            "hardware": {**SPEC["hardware"], "maxNodes": nodes},
        }
    )
    pool = declared_pool(spec)
    assert pool is not None
    return plan_request(spec, (pool,))


def _times_ms(request: PlanRequest, rounds: int = 30) -> str:
    plan(request)
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        plan(request)
        times.append((time.perf_counter() - started) * 1000)
    return f"median {statistics.median(times):.1f}, worst of {rounds}: {max(times):.1f}"
