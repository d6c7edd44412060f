"""A GitOps tool in a storm: it heals, it outlives an API server that is away, and Git changes under it.

The tool of tests/gitops fails its test when one application fails, which here is bound to happen.
"""

import contextlib
import subprocess
import threading
from types import TracebackType
from typing import Self

import yaml

from control_plane.client import Json
from control_plane.cluster import Cluster, CommandError
from gitops_loop import WAYS

EVERY_S = 3.0


class GitTool:
    """Context manager: inside the block what stands in Git is applied again and again."""

    def __init__(self, cluster: Cluster, manifest: Json) -> None:
        self._cluster = cluster
        self.manifest = manifest
        """What stands in Git."""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="GitOps", daemon=True)
        self.rounds = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def commit(self, **spec: object) -> None:
        """Change what stands in Git."""
        self.manifest = {**self.manifest, "spec": {**self.manifest["spec"], **spec}}

    def stop(self) -> None:
        """Apply nothing any more."""
        self._end.set()
        self._thread.join(120)

    def _run(self) -> None:
        while not self._end.wait(EVERY_S):
            with contextlib.suppress(CommandError, subprocess.TimeoutExpired):
                self._cluster.kubectl(*WAYS["server"], stdin=yaml.safe_dump(self.manifest))
                self.rounds += 1
