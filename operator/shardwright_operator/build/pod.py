"""The pods of a group: one template for leaders, one for workers.

A template serves every group of its revision, so it holds nothing of a group's index; the set builder adds
the labels. Both are complete: a pod made from them passes the ``restricted`` Pod Security Standard, runs with
a read-only root under any user id, holds no credentials for the Kubernetes API, and sees no other Service of
the namespace in its environment (a Service named ``vllm`` would set ``VLLM_PORT`` to a URL and end the
engine).
"""

from dataclasses import dataclass

from shardwright_operator.api.constants import Annotation, Role
from shardwright_operator.api.quantities import format_bytes
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.command import DRAIN_S, EVERY_ADDRESS, LEADER_ADDRESS, engine_command
from shardwright_operator.build.environment import HOME, environment, identity
from shardwright_operator.build.launcher import launcher_mount, launcher_volume, launcher_words
from shardwright_operator.build.model_files import model_mounts, model_volumes
from shardwright_operator.build.network import GroupNetwork
from shardwright_operator.build.owner import Manifest, Owner
from shardwright_operator.build.pool import PoolSelection
from shardwright_operator.build.ports import Ports
from shardwright_operator.build.resources import (
    TEMPORARY_BYTES,
    cache_limit_bytes,
    container_resources,
    shared_memory_bytes,
    uses_ray,
)
from shardwright_operator.build.scheduling import placement
from shardwright_operator.build.service import API_PORT_NAME
from shardwright_operator.build.startup import leader_probes
from shardwright_planner.plan import Plan

CONTAINER = "engine"
ENDPOINTS_S = 5
"""Time that proxies take to drop a stopping leader from the Service; until then it must still answer."""
WORKER_STOP_S = 20
"""Time that a running worker takes to end by itself; 12.7 s were seen on vLLM 0.32."""

_SIDECARS_OFF = {"linkerd.io/inject": "disabled", "sidecar.istio.io/inject": "false"}
"""A mesh's proxy breaks the direct connections between ranks. Istio reads a label, once an annotation."""

_WAIT = """\
import socket, sys, time
host, port = sys.argv[1], int(sys.argv[2])
while True:
    try:
        if port:
            socket.create_connection((host, port), timeout=5).close()
        else:
            socket.getaddrinfo(host, None)
        break
    except OSError as error:
        print(f"waiting for {host}: {error}", flush=True)
        time.sleep(2)
"""
"""Waits for a name, or for a port behind it. Ray gives up at once on a name that does not resolve yet, and a
container that exits counts as a broken group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodInputs:
    """What the pods of both roles are made from."""

    spec: ModelDeploymentSpec
    plan: Plan
    pool: PoolSelection
    owner: Owner
    image: str
    network: GroupNetwork
    ports: Ports
    startup_s: int
    user_id: int | None
    """None leaves user and group to the cluster."""
    api_host: str = EVERY_ADDRESS
    """Address that the API listens on."""

    @property
    def ray(self) -> bool:
        """Whether Ray starts the ranks."""
        return uses_ray(self.spec, self.plan)


def pod_template(inputs: PodInputs, role: Role) -> Manifest:
    """The template of one role, less the labels that name its group."""
    spec, network = inputs.spec, inputs.network
    delay_s, grace_s = _stop(inputs, role)
    pod: Manifest = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s,
        "securityContext": pod_security(inputs.user_id),
        **({"initContainers": [_waiting(inputs, role)]} if inputs.ray else {}),
        "containers": [_container(inputs, role, delay_s=delay_s)],
        "volumes": _volumes(inputs),
        **placement(spec.scheduling, inputs.pool, inputs.owner, members=inputs.plan.nodes),
    }
    if spec.engine.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret.name} for secret in spec.engine.image_pull_secrets]
    if network.host:
        pod["hostNetwork"] = True
        # Without it a pod on the node's network asks the node's resolver, which knows no Services.
        pod["dnsPolicy"] = "ClusterFirstWithHostNet"
    labels = {"sidecar.istio.io/inject": _SIDECARS_OFF["sidecar.istio.io/inject"]}
    annotations = dict(_SIDECARS_OFF)
    if inputs.ports.block is not None:
        annotations[Annotation.PORT_BLOCK] = str(inputs.ports.block)
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod}


def _container(inputs: PodInputs, role: Role, *, delay_s: int) -> Manifest:
    spec, plan, network = inputs.spec, inputs.plan, inputs.network
    startup_s, ports = inputs.startup_s, inputs.ports
    words = engine_command(spec, plan, role, startup_s=startup_s, ports=ports, api_host=inputs.api_host)
    if spec.engine.uses_launcher:
        own = launcher_words(
            spec, plan, role, startup_s=startup_s, ports=ports, resolve_interface=network.resolve_interface
        )
        words = [*own, *words]
    found: Manifest = {
        "name": CONTAINER,
        "image": inputs.image,
        "command": words[:2],
        "args": words[2:],
        "env": environment(
            spec, plan, inputs.owner, role, network=network.environment, startup_s=startup_s, ports=ports
        ),
        "resources": container_resources(spec, plan, network.devices),
        "securityContext": container_security(network.capabilities),
        "volumeMounts": _mounts(inputs),
        "lifecycle": {"preStop": {"sleep": {"seconds": delay_s}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if spec.engine.image_pull_policy:
        found["imagePullPolicy"] = spec.engine.image_pull_policy.value
    if declared := _declared_ports(inputs, role):
        found["ports"] = declared
    if role is Role.LEADER:
        found |= leader_probes(startup_s)
    return found


def _waiting(inputs: PodInputs, role: Role) -> Manifest:
    port = "0" if role is Role.LEADER else str(inputs.ports.ray)
    found: Manifest = {
        "name": "wait-for-leader",
        "image": inputs.image,
        "command": ["python3", "-c", _WAIT, LEADER_ADDRESS, port],
        "env": identity(inputs.plan, inputs.owner),
        "securityContext": container_security(),
    }
    if inputs.spec.engine.image_pull_policy:
        found["imagePullPolicy"] = inputs.spec.engine.image_pull_policy.value
    return found


def _stop(inputs: PodInputs, role: Role) -> tuple[int, int]:
    """Seconds before the stop signal, and the whole grace period in seconds.

    A leader first disappears from the Service, then finishes its running requests. Workers must outlive that,
    so they get their signal when the leader has ended. Ray's launcher is process 1 and handles no signal:
    there the delay itself is the time for running requests, and the end comes by force.
    """
    workers = inputs.plan.nodes > 1
    if role is Role.WORKER:
        delay_s = ENDPOINTS_S + DRAIN_S + 5
        return delay_s, delay_s + (5 if inputs.ray else WORKER_STOP_S)
    if inputs.ray and workers:
        return ENDPOINTS_S + DRAIN_S, ENDPOINTS_S + DRAIN_S + 5
    return ENDPOINTS_S, ENDPOINTS_S + DRAIN_S + 10


def _declared_ports(inputs: PodInputs, role: Role) -> list[Manifest]:
    """The API's port; on a node's network every port with a number, for the scheduler to see conflicts."""
    ports, leads = inputs.ports, role is Role.LEADER
    listened = [(API_PORT_NAME, ports.api)] if leads else []
    if inputs.network.host:
        if leads and inputs.plan.nodes > 1:
            listened.append(("ray", ports.ray) if inputs.ray else ("master", ports.master))
            if inputs.plan.data_parallel > 1:
                listened.append(("data-parallel", ports.data_parallel))
            if inputs.spec.engine.uses_launcher:
                listened.append(("peers", ports.peers))
        listened += [(f"nixl-{index}", port) for index, port in enumerate(ports.side_channels)]
    found: list[Manifest] = [
        {"name": name, "containerPort": port, "protocol": "TCP"} for name, port in listened
    ]
    if inputs.network.host:
        for port in found:
            port["hostPort"] = port["containerPort"]
    return found


def pod_security(user_id: int | None) -> Manifest:
    """What the ``restricted`` profile asks of a pod; user None leaves user and group to the cluster."""
    found: Manifest = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    if user_id is not None:
        # The image's own user is root, which the kubelet refuses to start as non-root without a number.
        found |= {"runAsUser": user_id, "runAsGroup": user_id, "fsGroup": user_id}
        # Without it the kubelet would walk over every file of a model's volume at each start of a pod.
        found["fsGroupChangePolicy"] = "OnRootMismatch"
    return found


def container_security(capabilities: tuple[str, ...] = ()) -> Manifest:
    """What the profile asks of a container, plus capabilities that it does not grant."""
    rights: Manifest = {"drop": ["ALL"]}
    if capabilities:
        rights["add"] = list(capabilities)
    return {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": rights}


def _volumes(inputs: PodInputs) -> list[Manifest]:
    spec, plan = inputs.spec, inputs.plan
    shared = {"medium": "Memory", "sizeLimit": format_bytes(shared_memory_bytes(spec, plan))}
    found: list[Manifest] = [
        {"name": "shm", "emptyDir": shared},
        {"name": "home", "emptyDir": {"sizeLimit": format_bytes(cache_limit_bytes(spec, plan))}},
        {"name": "tmp", "emptyDir": {"sizeLimit": format_bytes(TEMPORARY_BYTES)}},
    ]
    if spec.engine.uses_launcher:
        found.append(launcher_volume(inputs.owner))
    return [*found, *model_volumes(spec)]


def _mounts(inputs: PodInputs) -> list[Manifest]:
    found: list[Manifest] = [
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108 - a volume of the pod's own
        {"name": "home", "mountPath": HOME},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - likewise
    ]
    if inputs.spec.engine.uses_launcher:
        found.append(launcher_mount())
    return [*found, *model_mounts(inputs.spec)]
