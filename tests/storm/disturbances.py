"""What each disturbance does. Each returns what it has done in words, for the storm's journal."""

import random
import time
from collections.abc import Callable, Mapping

from control_plane.client import Json
from control_plane.faults import play
from control_plane.nodes import cordon, lose_node
from deployed import CHILD_RESOURCES
from grounds import IN_GIT, SPECS, Grounds, manifest
from operator_process import MDEP
from weather import Kind

MOST_NODES_AWAY = 4
RECOVERY_S = 8.0
"""After a foul way the operator may need this to know all again: it has backed off, and has to LIST."""

Disturbance = Callable[[Grounds, random.Random], str]

NOTHING = "there was nothing to strike"


def strike(kind: Kind, grounds: Grounds, rng: random.Random) -> str:
    """Let a disturbance happen."""
    return _ALL[kind](grounds, rng)


def _restart_api_server(grounds: Grounds, rng: random.Random) -> str:
    down_s, patience_s = rng.uniform(0.0, 3.0), rng.choice((0.05, 3.0))
    began = time.time()
    grounds.plane.restart("kube-apiserver", down_s=down_s, patience_s=patience_s)
    grounds.outages.append((began, time.time() + RECOVERY_S))
    return f"down for {time.time() - began:.1f} s"


def _restart_controllers(grounds: Grounds, rng: random.Random) -> str:
    down_s = rng.uniform(0.0, 3.0)
    grounds.plane.restart("kube-controller-manager", down_s=down_s)
    return f"down for {down_s:.1f} s"


def _foul(fault: Callable[[Grounds, float], None], longest_s: float) -> Disturbance:
    """A fault of the way to the API server that lasts for a time."""

    def begin(grounds: Grounds, rng: random.Random) -> str:
        for_s = rng.uniform(1.0, longest_s)
        fault(grounds, for_s)
        now = time.time()
        grounds.outages.append((now, now + for_s + RECOVERY_S))
        return f"for {for_s:.1f} s"

    return begin


def _delete_one_of(*resources: str, grace_s: tuple[int | None, ...] = (None,)) -> Disturbance:
    def delete(grounds: Grounds, rng: random.Random) -> str:
        resource = rng.choice(resources)
        found = grounds.pick(rng, resource)
        if found is None:
            return NOTHING
        name, grace = found["metadata"]["name"], rng.choice(grace_s)
        grounds.api.delete(resource, name, grounds.namespace, grace_s=grace, propagation="Background")
        return f"{resource} {name}"

    return delete


def _play_on_a_pod(**courses: tuple[str, ...]) -> Disturbance:
    def begin(grounds: Grounds, rng: random.Random) -> str:
        pod = grounds.pick(rng, "pods")
        if pod is None:
            return NOTHING
        course: dict[str, str | None] = {name: rng.choice(values) for name, values in courses.items()}
        play(grounds.api, grounds.namespace, pod["metadata"]["name"], **course)
        return f"{pod['metadata']['name']}: {course}"

    return begin


def _scale_a_set(grounds: Grounds, rng: random.Random) -> str:
    found = grounds.pick(rng, "statefulsets.apps")
    if found is None:
        return NOTHING
    name = found["metadata"]["name"]
    grounds.cluster.kubectl("scale", "statefulset", name, "-n", grounds.namespace, "--replicas=0")
    return f"{name}"


def _cordon(grounds: Grounds, rng: random.Random) -> str:
    if grounds.away >= MOST_NODES_AWAY:
        return NOTHING
    name = rng.choice(grounds.nodes())
    cordon(grounds.api, name)
    grounds.cordoned.append(name)
    return name


def _lose(grounds: Grounds, rng: random.Random) -> str:
    if grounds.away >= MOST_NODES_AWAY:
        return NOTHING
    name = rng.choice(grounds.nodes())
    grounds.lost.append(name)
    lose_node(grounds.api, name, ready=rng.choice(("False", "Unknown")))
    return name


def _delete_node(grounds: Grounds, rng: random.Random) -> str:
    if grounds.away >= MOST_NODES_AWAY:
        return NOTHING
    name = rng.choice(grounds.nodes())
    grounds.api.delete("nodes", name)
    grounds.deleted += 1
    return name


def _nodes_back(grounds: Grounds, rng: random.Random) -> str:
    return grounds.bring_nodes_back()


def _edit(*choices: Callable[[random.Random], Json]) -> Disturbance:
    """A person's edit of any resource, or sometimes a commit that changes the one in Git."""

    def edit(grounds: Grounds, rng: random.Random) -> str:
        spec = rng.choice(choices)(rng)
        name = rng.choice(sorted(SPECS))
        if name == IN_GIT and rng.random() < 0.5:
            grounds.git.commit(**spec)
            return f"Git: {spec}"
        grounds.edit(name, spec)
        return f"{name}: {spec}"

    return edit


def _replicas(rng: random.Random) -> Json:
    return {"replicas": rng.choice((0, 1, 1, 2, 2, 3))}


def _environment(rng: random.Random) -> Json:
    return {"engine": {"env": [{"name": "STORM", "value": str(rng.randint(1, 5))}]}}


def _image(rng: random.Random) -> Json:
    return {"engine": {"image": f"vllm/vllm-openai:v0.32.{rng.randint(0, 3)}"}}


def _context(rng: random.Random) -> Json:
    return {"workload": {"maxModelLength": rng.choice((4096, 8192))}}


def _surge(rng: random.Random) -> Json:
    return {"rollout": {"maxSurge": rng.choice((1, 2)), "maxUnavailable": rng.choice((0, 1))}}


def _pause(rng: random.Random) -> Json:
    return {"rollout": {"paused": rng.choice((True, False, False))}}


def _nonsense(rng: random.Random) -> Json:
    return {"parallelism": rng.choice(({"tensor": 3}, {"tensor": 5}, None, None))}


def _delete_resource(grounds: Grounds, rng: random.Random) -> str:
    name = rng.choice(sorted(SPECS))
    grounds.cluster.kubectl(
        "delete", "mdep", name, "-n", grounds.namespace, "--ignore-not-found", "--wait=false"
    )
    return name


def _recreate_resource(grounds: Grounds, rng: random.Random) -> str:
    name = rng.choice(sorted(SPECS))
    if grounds.api.find(MDEP, name, grounds.namespace) is not None:
        grounds.api.delete(MDEP, name, grounds.namespace)
    grounds.api.create(manifest(name, grounds.namespace, SPECS[name]))
    return name


_OTHER_CHILDREN = tuple(name for name in CHILD_RESOURCES if name not in {"statefulsets.apps", "jobs.batch"})

_ALL: Mapping[Kind, Disturbance] = {
    Kind.OPERATOR_DIES_AT_A_WRITE: lambda g, rng: g.keeper.die_at_a_write(rng.uniform(0.0, 3.0)),
    Kind.OPERATOR_KILLED: lambda g, rng: g.keeper.kill(rng.uniform(0.0, 6.0)),
    Kind.OPERATOR_STOPPED: lambda g, rng: g.keeper.stop(rng.uniform(0.0, 6.0)),
    Kind.OPERATOR_FROZEN: lambda g, rng: g.keeper.freeze_at_a_write(rng.uniform(5.0, 15.0)),
    Kind.API_SERVER_RESTARTED: _restart_api_server,
    Kind.CONTROLLERS_RESTARTED: _restart_controllers,
    Kind.WATCHES_CUT: _foul(lambda g, _: g.proxy.cut_watches(), 1.0),
    Kind.WATCH_GARBLED: _foul(lambda g, _: g.proxy.garble_a_watch(), 1.0),
    Kind.WATCHES_HELD: _foul(lambda g, for_s: g.proxy.hold_watches(for_s), 8.0),
    Kind.ANSWERS_SLOW: _foul(lambda g, for_s: g.proxy.slow(for_s), 8.0),
    Kind.ANSWERS_LOST: _foul(lambda g, for_s: g.proxy.lose_answers(for_s), 8.0),
    Kind.TOO_MANY_REQUESTS: _foul(lambda g, for_s: g.proxy.refuse(for_s), 6.0),
    Kind.SEVERED: _foul(lambda g, for_s: g.proxy.sever(for_s), 8.0),
    Kind.CHILD_DELETED: _delete_one_of(*_OTHER_CHILDREN),
    Kind.SET_DELETED: _delete_one_of("statefulsets.apps"),
    Kind.POD_DELETED: _delete_one_of("pods"),
    Kind.POD_DELETED_AT_ONCE: _delete_one_of("pods", grace_s=(0,)),
    Kind.CONTAINER_RESTARTED: _play_on_a_pod(restarts=("1", "2"), last_exit_code=("1", "137", "0")),
    Kind.CONTAINER_ENDED: _play_on_a_pod(exit_code=("1", "137")),
    Kind.POD_FAILED: _play_on_a_pod(fails=("Evicted", "NodeShutdown")),
    Kind.SET_SCALED_TO_NOTHING: _scale_a_set,
    Kind.NODE_CORDONED: _cordon,
    Kind.NODE_LOST: _lose,
    Kind.NODE_DELETED: _delete_node,
    Kind.NODES_BACK: _nodes_back,
    Kind.REPLICAS_EDITED: _edit(_replicas),
    Kind.ENVIRONMENT_EDITED: _edit(_environment, _environment, _context),
    Kind.IMAGE_EDITED: _edit(_image),
    Kind.SURGE_EDITED: _edit(_surge),
    Kind.PAUSED: _edit(_pause),
    Kind.NONSENSE_EDITED: _edit(_nonsense),
    Kind.RESOURCE_RECREATED: _recreate_resource,
    Kind.RESOURCE_DELETED: _delete_resource,
}
