"""The life of a resource as everybody could watch it: each version that the API server ever held.

A tool that waits for a resource decides at the first version that looks settled, so one wrong version for a
tenth of a second lets a release through. Hence all of them count, and not what stands at the end of a step.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

from control_plane.client import Client, Json
from control_plane.faults import play, playing
from control_plane.waiting import wait_for
from deployed import LEADER, LLAMA_405B, WORKER, Deployed
from operator_process import MDEP

NAME = "llama"
SUBSYSTEM = "NCCL_DEBUG_SUBSYS"
PATIENT = {"backoff": "10s", "maxBackoff": "10s"}
"""On a busy machine the pods of a broken group take longer to go than a back-off of a second or two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What was seen from one step to the next, oldest first."""

    versions: tuple[Json, ...]

    @property
    def first(self) -> Json:
        return self.versions[0]

    @property
    def last(self) -> Json:
        return self.versions[-1]

    @property
    def on_the_way(self) -> tuple[Json, ...]:
        return self.versions[:-1]

    def reasons(self) -> list[str]:
        """Reasons of the condition Ready, repetitions left out."""
        found: list[str] = []
        for body in self.versions:
            conditions = body.get("status", {}).get("conditions") or ()
            reason = next((c["reason"] for c in conditions if c["type"] == "Ready"), "")
            if reason and found[-1:] != [reason]:
                found.append(reason)
        return found


class Life:
    """Lives through all stages once; ``stages`` has them by name."""

    def __init__(self, api: Client, namespace: str) -> None:
        self._api = api
        self._path = f"/apis/shardwright.dev/v1alpha1/namespaces/{namespace}/modeldeployments"
        self._llama = Deployed(api, namespace, LLAMA_405B, name=NAME)
        self._seen = str(api.request("GET", self._path)["metadata"]["resourceVersion"])
        self.stages: dict[str, Stage] = {}

    def live(self) -> dict[str, Stage]:
        llama = self._llama
        self._stage("created", self._create)
        self._stage("edited", lambda: self._edited("INIT"))
        self._stage("broken", self._broken)
        self._stage("given up", self._given_up)
        self._stage("tried again", self._tried_again)
        self._stage("infeasible", lambda: self._until("Stalled", "DoesNotFit", hardware={"maxNodes": 1}))
        self._stage("feasible again", lambda: self._until("Ready", "GroupsReady", hardware={"maxNodes": 2}))
        paused = {"engine": _subsystem("NET"), "rollout": {"paused": True}}
        self._stage("paused", lambda: self._until("Ready", "Paused", **paused))
        undone = {"engine": _subsystem("INIT")}
        self._stage("paused for nothing", lambda: self._until("Ready", "GroupsReady", **undone))
        self._stage("scaled to zero", lambda: self._scaled_in(0, "ScaledToZero"))
        self._stage("scaled up", lambda: self._until("Ready", "GroupsReady", replicas=2))
        self._stage("scaled in", lambda: self._scaled_in(1, "GroupsReady"))
        self._stage("deleted", self._deleted)
        assert llama.children() == []
        return self.stages

    def _stage(self, name: str, step: Callable[[], object]) -> None:
        step()
        query = {"watch": "true", "resourceVersion": self._seen, "timeoutSeconds": "1"}
        answer = self._api.request("GET", self._path, query=query)
        # One event is an object, several are lines; the client hands over what is no JSON as text.
        lines = answer.get("message", "").splitlines()
        events = [answer] if "type" in answer else [json.loads(line) for line in lines]
        versions = tuple(event["object"] for event in events if event["type"] != "DELETED")
        self._seen = str(versions[-1]["metadata"]["resourceVersion"])
        self.stages[name] = Stage(versions=versions)

    def _create(self) -> None:
        self._llama.create().wait_ready()

    def _until(self, type_: str, reason: str, **spec: Json | int) -> None:
        self._llama.edit(**spec)
        self._llama.wait(type_, {"Paused": "False"}.get(reason, "True"), reason)

    def _edited(self, value: str) -> None:
        before = self._llama.pods()
        self._llama.edit(engine=_subsystem(value), recovery=PATIENT)
        self._llama.wait_replaced(before)

    def _broken(self) -> None:
        before = self._llama.pods()
        play(self._api, self._llama.namespace, WORKER, exit_code="1")
        self._llama.wait_replaced(before)

    def _given_up(self) -> None:
        self._until("Ready", "GroupsReady", recovery={**LLAMA_405B["recovery"], "maxRestarts": 1})
        with playing(self._api, self._llama.namespace, exit_code="1"):
            play(self._api, self._llama.namespace, LEADER, exit_code="1")
            self._llama.wait("Stalled", "True", "RestartLimit")

    def _tried_again(self) -> None:
        self._api.annotate(MDEP, NAME, {"shardwright.dev/retry": "1"}, self._llama.namespace)
        self._llama.wait_ready()

    def _scaled_in(self, groups: int, reason: str) -> None:
        self._until("Ready", reason, replicas=groups)
        wait_for(lambda: self._llama.condition("Reconciling") == ("", ""), "the others are gone")
        assert len(self._llama.pods()) == 2 * groups

    def _deleted(self) -> None:
        namespace = self._llama.namespace
        self._api.delete(MDEP, NAME, namespace, propagation="Foreground")
        wait_for(lambda: self._api.find(MDEP, NAME, namespace) is None, "it is deleted", timeout_s=90)


def _subsystem(value: str) -> Json:
    return {"env": [{"name": SUBSYSTEM, "value": value}]}
