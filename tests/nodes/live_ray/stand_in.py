"""Takes vLLM's place on Ray: asks for a GPU for each rank as vLLM does, and tells what it got.

Runs in a pod under Ray's own Python, started as ``vllm serve ...``; whatever is served but ``/health`` is
what was found.
"""

import argparse
import http.server
import json
import os
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

PLACED_WITHIN_S = 600


@ray.remote(num_cpus=0, num_gpus=1)
def node_rank() -> str:
    """Rank of the pod that this runs in."""
    return os.environ["NODE_RANK"]


def main(words: list[str]) -> None:
    """Serve until the end."""
    options = argparse.ArgumentParser()
    for name in ("--tensor-parallel-size", "--pipeline-parallel-size", "--port"):
        options.add_argument(name, type=int, required=True)
    given, _ = options.parse_known_args(words)
    # As vLLM, it knows from RAY_ADDRESS alone where the cluster is.
    ray.init()
    ranks = given.tensor_parallel_size * given.pipeline_parallel_size
    group = placement_group([{"GPU": 1}] * ranks, strategy="PACK")
    ray.get(group.ready(), timeout=PLACED_WITHIN_S)
    tasks = [
        node_rank.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)).remote()
        for index in range(ranks)
    ]
    found = {
        "nodes": sum(node["Alive"] for node in ray.nodes()),
        "gpus": ray.cluster_resources()["GPU"],
        "node_ranks": ray.get(tasks, timeout=PLACED_WITHIN_S),
        "words": words,
    }
    serve(json.dumps(found).encode(), given.port)


def serve(body: bytes, port: int) -> None:
    """Answer everything with this."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(http.HTTPStatus.NOT_FOUND if self.path == "/metrics" else http.HTTPStatus.OK)
            self.end_headers()
            self.wfile.write(body)

    http.server.ThreadingHTTPServer(("", port), Handler).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
