"""An operator's upgrade and its way back, with groups that serve: no pod is touched, and few words are lost.

The next version is a process of its own, with the chart's rights, between two runs of this one. Each story is
played once and asked several questions.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import pytest

from control_plane import audit
from control_plane.client import Client, Json
from control_plane.cluster import Cluster
from control_plane.nodes import delete_nodes, make_nodes
from control_plane.waiting import wait_for
from deployed import LLAMA_8B, LLAMA_405B, Deployed
from next_version import IMMUTABLE, INNER, PLAN_FIELD, SETS, Change, next_version
from operator_process import MDEP, OperatorAccount, crd, operator_account, operator_process, running_operator

__all__ = ["crd", "operator_account"]

pytestmark = pytest.mark.cluster

QUIET_S = 1.5
"""Without a write for so long, a version has done what it wanted to do."""
LISTS = 5
"""At its start a version lists three times, and then each second: by the fifth it has looked twice at all."""
LEASE = {"lease_duration_s": 4.0, "lease_renew_deadline_s": 3.0, "lease_retry_s": 0.5}

DEBUG: Json = {"env": [{"name": "NCCL_DEBUG", "value": "INFO"}]}


@dataclass
class Story:
    """What was seen at each step, by the step's name."""

    writes: dict[str, list[str]] = field(default_factory=dict)
    uids: dict[str, dict[str, str]] = field(default_factory=dict)
    status: dict[str, dict[str, Json]] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


class Versions:
    """Runs this version and next ones in a namespace, and notes what they do."""

    def __init__(
        self, cluster: Cluster, api: Client, account: OperatorAccount, folder: Path, *, gpu_nodes: int
    ) -> None:
        assert cluster.audit_log is not None
        self._cluster = cluster
        self._log = cluster.audit_log
        self._account = account
        self._folder = folder
        self._api = api
        self._gpu_nodes = gpu_nodes
        self.namespace = f"versions-{folder.name.replace('_', '-').lower()}"
        self.story = Story()
        self.models: dict[str, Deployed] = {}

    def __enter__(self) -> Self:
        self._api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}})
        self._nodes = make_nodes(self._api, "H100-SXM-80GB", self._gpu_nodes)
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.models:
            self._api.delete(MDEP, name, self.namespace)
        delete_nodes(self._api, self._nodes)
        self._api.delete("namespaces", self.namespace)

    def create(self, name: str, spec: Json) -> Deployed:
        """Make a resource; it is not waited for."""
        self.models[name] = Deployed(self._api, self.namespace, spec, name=name).create()
        return self.models[name]

    def wait_ready(self) -> None:
        for model in self.models.values():
            model.wait_ready()

    def note(self, step: str, since: datetime) -> None:
        """Wait until nothing more is written, and note what stands and what was written since."""

        def quiet() -> bool:
            before = len(self._writes(since))
            time.sleep(QUIET_S)
            return len(self._writes(since)) == before

        wait_for(quiet, "it is quiet", timeout_s=15, detail=lambda: self._writes(since)[-20:])
        self.story.writes[step] = sorted(self._writes(since))
        self.story.uids[step] = {n: uid for m in self.models.values() for n, uid in m.uids().items()}
        self.story.status[step] = {name: model.status for name, model in self.models.items()}

    @contextlib.contextmanager
    def this(self) -> Iterator[datetime]:
        """This version; gives the moment of its start."""
        since = audit.now()
        with running_operator(self._cluster, version="1.0.0", **self._settings("v0.32.0")):
            self._wait_at_work(since)
            yield since

    @contextlib.contextmanager
    def next(self, *changes: Change) -> Iterator[datetime]:
        """A next version, with another number, another default image and these changes."""
        since = audit.now()
        sources = next_version(self._folder, changes)
        settings = self._settings("v0.33.0")
        with operator_process(self._cluster, version="2.0.0", sources=sources, **settings) as process:
            self._wait_at_work(since)
            yield since
            assert process.stop() == 0, process.log.read_text()[-2000:]

    def _settings(self, tag: str) -> dict[str, Any]:
        image = f"vllm/vllm-openai:{tag}"
        given = {"kubeconfig": self._account.kubeconfig, "default_image": image, "resync_interval_s": 1.0}
        return {**given, **LEASE, **self._account.lease}

    def _wait_at_work(self, since: datetime) -> None:
        def lists() -> int:
            return len(self._read(since, verbs={"list"}, resource="statefulsets"))

        wait_for(lambda: lists() >= LISTS, "the version is at work")

    def _writes(self, since: datetime) -> list[str]:
        found = self._read(since, namespace=self.namespace, verbs=audit.WRITE_VERBS, leases=False)
        return [f"{event.verb} {event.full_resource} {event.name}" for event in found]

    def _read(self, since: datetime, **filters: Any) -> list[audit.AuditEvent]:
        return audit.read_audit(self._log, user=self._account.user, since=since, **filters)


def grace_s(model: Deployed) -> set[int]:
    """How long leaders may take to end: rendered into their template from a constant of the version."""
    return {
        pod["spec"]["terminationGracePeriodSeconds"]
        for pod in model.pods()
        if pod["metadata"]["labels"]["shardwright.dev/role"] == "leader"
    }


def edit(model: Deployed, engine: Json | None) -> None:
    before = model.pods()
    model.edit(engine=engine)
    model.wait_replaced(before)


@pytest.fixture(scope="module")
def inner(
    cluster: Cluster, api: Client, operator_account: OperatorAccount, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    """A version that renders pods and plans otherwise comes and goes; under it one of two specs is edited."""
    folder = tmp_path_factory.mktemp("inner")
    with Versions(cluster, api, operator_account, folder, gpu_nodes=5) as versions:
        story = versions.story
        with versions.this() as since:
            llama = versions.create("llama", LLAMA_405B)
            versions.create("small", {**LLAMA_8B, "replicas": 2})
            versions.wait_ready()
            versions.note("before", since)
        story.notes["grace before"] = grace_s(llama)
        with versions.next(*INNER) as since:
            versions.note("upgraded", since)
            edit(llama, DEBUG)
            versions.note("edited", since)
        story.notes["grace edited"] = grace_s(llama)
        with versions.this() as since:
            versions.note("back", since)
            edit(llama, None)
            versions.note("undone", since)
        yield story


@pytest.fixture(scope="module")
def outer(
    cluster: Cluster, api: Client, operator_account: OperatorAccount, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Story]:
    """A version comes and goes that has one more field of sets, and one of plans that the CRD lacks."""
    folder = tmp_path_factory.mktemp("outer")
    with Versions(cluster, api, operator_account, folder, gpu_nodes=3) as versions:
        with versions.this() as since:
            versions.create("llama", LLAMA_405B)
            versions.wait_ready()
            versions.note("before", since)
        with versions.next(SETS, PLAN_FIELD) as since:
            versions.note("upgraded", since)
            late = versions.create("late", LLAMA_8B)
            versions.wait_ready()
            versions.note("created", since)
        revisions = [c for c in late.children() if c["metadata"]["name"] == late.status["revision"]]
        versions.story.notes["plan"] = revisions[0]["data"]["plan"]
        with versions.this() as since:
            versions.note("back", since)
        yield versions.story


def test_the_next_version_writes_nothing(inner: Story) -> None:
    assert inner.writes["upgraded"] == []
    assert (inner.uids["upgraded"], inner.status["upgraded"]) == (
        inner.uids["before"],
        inner.status["before"],
    )


def test_an_edit_is_rendered_by_the_version_that_sees_it(inner: Story) -> None:
    (before,) = inner.notes["grace before"]
    assert inner.notes["grace edited"] == {before + 1}


def test_an_edit_touches_nobody_else(inner: Story) -> None:
    small = {name: uid for name, uid in inner.uids["before"].items() if name.startswith("small")}
    assert len(small) == 2
    assert small.items() <= inner.uids["undone"].items()


def test_the_way_back_writes_nothing(inner: Story) -> None:
    assert inner.writes["back"] == []
    assert inner.uids["back"] == inner.uids["edited"]
    assert inner.status["back"] == inner.status["edited"]


def test_undo_after_the_way_back_is_the_revision_of_before(inner: Story) -> None:
    assert inner.status["undone"]["llama"]["revision"] == inner.status["before"]["llama"]["revision"]


def test_a_field_of_the_sets_is_written_once_each_way(outer: Story) -> None:
    found = {step: [w for w in outer.writes[step] if "statefulsets" in w] for step in ("upgraded", "back")}
    sets = ["patch statefulsets llama-0-leader", "patch statefulsets llama-0-worker"]
    assert found == {"upgraded": sets, "back": ["patch statefulsets late-0-leader", *sets]}


def test_a_field_of_the_sets_restarts_no_pod(outer: Story) -> None:
    assert outer.uids["upgraded"] == outer.uids["before"]
    assert outer.uids["back"] == outer.uids["created"]


def test_a_status_that_the_installed_crd_cuts_is_written_once(outer: Story) -> None:
    found = [w for w in outer.writes["upgraded"] if "statefulsets" not in w]
    assert found == ["patch modeldeployments/status llama"]
    assert outer.status["upgraded"]["llama"] == outer.status["before"]["llama"]


def test_a_plan_with_a_field_that_is_unknown_here_is_kept(outer: Story) -> None:
    assert outer.notes["plan"]["omen"] == "good"
    assert [w for w in outer.writes["back"] if "statefulsets" not in w] == []


def test_a_field_that_cannot_be_changed_is_named_and_stops_nobody(
    cluster: Cluster, api: Client, operator_account: OperatorAccount, tmp_path: Path
) -> None:
    with Versions(cluster, api, operator_account, tmp_path, gpu_nodes=2) as versions:
        with versions.this() as since:
            llama = versions.create("llama", LLAMA_405B)
            versions.wait_ready()
            versions.note("before", since)
        with versions.next(IMMUTABLE) as since:
            versions.note("upgraded", since)
            refused, message = llama.condition("Ready"), llama.message("Ready")
        with versions.this() as since:
            versions.wait_ready()
            versions.note("back", since)
    story = versions.story
    assert refused == ("False", "WriteRefused")
    assert "StatefulSet llama-0-" in message
    assert "Forbidden: updates to statefulset spec" in message
    assert len([w for w in story.writes["upgraded"] if "statefulsets" in w]) <= 4
    assert story.uids["upgraded"] == story.uids["back"] == story.uids["before"]
