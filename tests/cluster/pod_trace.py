"""What happened to a namespace's pods, to judge a sequence that polling would miss.

A pod that lives for a tenth of a second is enough for an old leader and a new worker to join, so what counts
is every event in its order and not what stands at the end. The API server remembers them: a watch from the
version at which the trace began brings all that came since.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from control_plane.client import Client, Json

PREFIX = "shardwright.dev"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """One event of a pod."""

    change: str
    """ADDED, MODIFIED or DELETED."""
    name: str
    uid: str
    group: str
    pods_hash: str


class PodTrace:
    """The pods of a namespace since this was made."""

    def __init__(self, api: Client, namespace: str) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        answer = api.request("GET", self._path, query={"limit": "500"})
        self._version = str(answer["metadata"]["resourceVersion"])
        self._before = [_pod_event("ADDED", pod) for pod in answer["items"]]

    def events(self) -> list[PodEvent]:
        """What happened since, in order."""
        query = {"watch": "true", "resourceVersion": self._version, "timeoutSeconds": "1"}
        answer = self._api.request("GET", self._path, query=query)
        # One event is an object, several are lines; the client hands over what is no JSON as text.
        raw = (
            [answer]
            if "type" in answer
            else [json.loads(line) for line in answer.get("message", "").splitlines()]
        )
        return [_pod_event(event["type"], event["object"]) for event in raw]

    def comings_and_goings(self) -> list[PodEvent]:
        """Pods that came and went, in order."""
        return [event for event in self.events() if event.change != "MODIFIED"]

    def lives(self, group: str = "0") -> list[set[str]]:
        """UIDs of the pods of a group that lived together, one set for each time that the group was whole.

        Raises an AssertionError when a pod came while one of another revision was still there, or after the
        group had begun to go down and before all of it was gone: this is the barrier.
        """
        alive = {e.uid: e for e in self._before if e.group == group}
        lives = [set(alive)] if alive else []
        going = False
        for event in (e for e in self.comings_and_goings() if e.group == group):
            if event.change == "ADDED":
                assert not (alive and going), f"{event} came while {list(alive.values())} were still there"
                assert {e.pods_hash for e in alive.values()} <= {event.pods_hash}, f"{event} met {alive}"
                if not alive:
                    lives.append(set())
                    going = False
                alive[event.uid] = event
                lives[-1].add(event.uid)
            else:
                del alive[event.uid]
                going = True
        return lives

    def generations(self) -> list[list[str]]:
        """UIDs of pods by the times between which none existed, in order of creation."""
        found: list[list[str]] = []
        alive: set[str] = set()
        for event in (*self._before, *self.comings_and_goings()):
            if event.change == "ADDED":
                if not alive:
                    found.append([])
                alive.add(event.uid)
                found[-1].append(event.uid)
            else:
                alive.discard(event.uid)
        return found

    def companions(self, uids: Iterable[str]) -> set[str]:
        """UIDs of all pods that existed at the same time as any of these, themselves left out."""
        wanted = set(uids)
        alive: set[str] = set()
        met: set[str] = set()
        for event in (*self._before, *self.comings_and_goings()):
            if event.change == "DELETED":
                alive.discard(event.uid)
            else:
                alive.add(event.uid)
            if alive & wanted:
                met |= alive - wanted
        return met


def _pod_event(change: str, pod: Json) -> PodEvent:
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    return PodEvent(
        change=change,
        name=metadata["name"],
        uid=metadata["uid"],
        group=labels.get(f"{PREFIX}/group-index", ""),
        pods_hash=labels.get(f"{PREFIX}/pods", ""),
    )
