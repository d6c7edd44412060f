"""A GitOps tool that heals: it applies what stands in Git again and again, whatever anybody else does."""

import threading
from types import TracebackType
from typing import Self

import yaml

from control_plane.client import Json
from control_plane.cluster import Cluster

EVERY_S = 0.3

WAYS = {
    "server": ("apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", "-"),
    "client": ("apply", "-f", "-"),
}
"""By server-side apply, as Flux does it and Argo CD can; and by kubectl's own three-way merge."""


class GitOpsLoop:
    """Context manager: inside the block the manifest is applied over and over by ``kubectl``.

    It has been applied once on entry, and once more after all else on exit.
    """

    def __init__(self, cluster: Cluster, manifest: Json, way: str) -> None:
        self._cluster = cluster
        self._text = yaml.safe_dump(manifest)
        self._command = WAYS[way]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="GitOps", daemon=True)
        self._failure: Exception | None = None
        self.rounds = 0

    def __enter__(self) -> Self:
        self.apply()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(60)
        if error is None:
            assert self._failure is None, self._failure
            self.apply()

    def apply(self) -> None:
        """Apply it now."""
        self._cluster.kubectl(*self._command, stdin=self._text)
        self.rounds += 1

    def _run(self) -> None:
        try:
            while not self._stop.wait(EVERY_S):
                self.apply()
        except Exception as failure:  # noqa: BLE001  told by the thread that waits
            self._failure = failure
