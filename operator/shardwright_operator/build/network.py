"""A network profile as environment, devices and capabilities of the pods of a group.

NCCL and Gloo name interfaces each in a grammar of its own: NCCL takes prefixes, ``=`` for exact names,
``^`` to exclude, and lists (NVIDIA NCCL documentation, environment variables); Gloo takes the name of an
interface that exists. Where none is given the launcher asks the kernel, in the pod, which one reaches the
leader. Which HCA and which GID index to use is never guessed: NCCL finds both, and a wrong guess is a hang.
So are GPUDirect and topology: NCCL's own choice is right unless somebody measures otherwise, and then
``spec.engine.env`` says so.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from shardwright_operator.api.errors import SpecError
from shardwright_operator.api.pod_spec import NetworkProfile, NetworkSpec
from shardwright_operator.api.v1alpha1 import ModelDeploymentSpec
from shardwright_operator.build.nccl_variables import unknown_variables
from shardwright_operator.build.ports import has_side_channels
from shardwright_planner.plan import Plan

POD_INTERFACE = "eth0"
"""Name that container network plugins give a pod's own interface (CNI's convention, CNI_IFNAME)."""
EFA_RESOURCE = "vpc.amazonaws.com/efa"
NCCL_INTERFACE = "NCCL_SOCKET_IFNAME"
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"

_CONCRETE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,14}$")
_RDMA = (NetworkProfile.ROCE, NetworkProfile.INFINIBAND, NetworkProfile.EFA)
_RDMA_ONLY = (
    "without RDMA devices NCCL fails at once, instead of falling back to TCP unseen at a tenth of the speed"
)
_TRANSPORT: Mapping[NetworkProfile, Mapping[str, tuple[str, str]]] = {
    NetworkProfile.TCP: {"NCCL_NET": ("Socket", "no search for RDMA devices that are not for this pod")},
    NetworkProfile.ROCE: {"NCCL_NET": ("IB", _RDMA_ONLY)},
    NetworkProfile.INFINIBAND: {"NCCL_NET": ("IB", _RDMA_ONLY)},
    NetworkProfile.EFA: {"FI_PROVIDER": ("efa", "libfabric must not choose its TCP provider")},
}
"""Variables of a profile: value, and why. ``auto`` leaves it to NCCL, ``custom`` to the user."""
_CACHE_TRANSPORTS = {"UCX_TLS": "tcp,cuda_copy,cuda_ipc,sm,self"}
"""Of profile ``tcp``: what needs no RDMA device, and what reaches GPU memory at all (names of UCX's FAQ)."""
_CACHES_OVER_TCP = (
    "UCX passes KV caches on for NIXL, and fails with RDMA devices that a pod sees but cannot use "
    "instead of taking TCP (reported as ai-dynamo/dynamo issue 3724)"
)
_INTERFACE = {
    NCCL_INTERFACE: "all of NCCL's sockets on the network that reaches the other ranks, by exact name",
    GLOO_INTERFACE: "Gloo would resolve the host's name, which often is a loopback address",
}
_CACHES_SOMEHOW = (
    "UCX finds its own way to pass KV caches on, and fails where a pod sees RDMA devices that it cannot use: "
    "set spec.network.profile to tcp, or to roce or infiniband with spec.network.rdmaResource."
)
_NEAR = "the cluster's own names and this pod are not reached through a proxy that the environment may name"
IN_CLUSTER = "localhost,127.0.0.1,::1,.svc,.cluster.local,$(VLLM_HOST_IP)"
"""What no proxy is asked for: names of Services and of ranks end in ``.svc``."""
_NO_PROXY = ("NO_PROXY", "no_proxy")
"""Programs read one or the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNetwork:
    """What a network profile adds to each pod of a group.

    A pod without peers needs nothing but its API. Engines that pass KV caches on have peers in other groups.
    """

    environment: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Why each of these variables is set."""
    resolve_interface: bool = False
    """Whether the launcher is to find NCCL's and Gloo's interface in the pod."""
    devices: dict[str, int] = field(default_factory=dict)
    """Extended resources of each pod."""
    capabilities: tuple[str, ...] = ()
    """What the containers need beyond the ``restricted`` profile."""
    host: bool = False
    """Whether pods run in the node's network namespace."""
    warnings: tuple[str, ...] = ()


def group_network(spec: ModelDeploymentSpec, plan: Plan) -> GroupNetwork:
    """The network of the pods of one group.

    Raises:
        SpecError: the profile lacks something, two fields contradict each other, or an interface is not
            written in the grammar of the library that reads it.
    """
    network = spec.network
    own = {variable.name: variable.value for variable in spec.engine.env or ()}
    _check_gloo("spec.engine.env", own.get(GLOO_INTERFACE))
    host = bool(network.host_network)
    near = {} if own.keys() & set(_NO_PROXY) else dict.fromkeys(_NO_PROXY, IN_CLUSTER)
    passes_caches = has_side_channels(spec)
    if plan.nodes == 1 and not passes_caches:
        warnings = _warnings(host=host, devices={}, efa=False)
        return GroupNetwork(
            environment=near, reasons=dict.fromkeys(near, _NEAR), host=host, warnings=warnings
        )
    profile = network.profile or NetworkProfile.AUTO
    devices = _devices(network, profile)
    launcher = spec.engine.uses_launcher
    several = plan.nodes > 1
    interfaces = _interfaces(network, profile, own.keys(), launcher=launcher) if several else {}
    transport = dict(_TRANSPORT.get(profile, {})) if several else {}
    if passes_caches and profile is NetworkProfile.TCP:
        transport |= {name: (value, _CACHES_OVER_TCP) for name, value in _CACHE_TRANSPORTS.items()}
    why = {name: _INTERFACE[name] for name in interfaces} | {
        name: why for name, (_, why) in transport.items()
    }
    return GroupNetwork(
        environment={**interfaces, **{name: value for name, (value, _) in transport.items()}, **near},
        reasons={**why, **dict.fromkeys(near, _NEAR)},
        resolve_interface=launcher
        and several
        and network.socket_interface is None
        and profile is not NetworkProfile.CUSTOM,
        devices=devices,
        capabilities=("IPC_LOCK",) if devices else (),
        host=host,
        warnings=(
            *_warnings(host=host, devices=devices, efa=profile is NetworkProfile.EFA),
            *((_CACHES_SOMEHOW,) if passes_caches and profile is NetworkProfile.AUTO and not devices else ()),
            *unknown_variables(own),
        ),
    )


def _devices(network: NetworkSpec, profile: NetworkProfile) -> dict[str, int]:
    resource = network.rdma_resource
    if resource is None and profile is NetworkProfile.EFA:
        resource = EFA_RESOURCE
    if resource is None and profile in _RDMA:
        raise SpecError(
            field="spec.network.rdmaResource",
            value=None,
            limit=f"profile {profile} needs RDMA devices in every pod",
            remedy="name the extended resource that the nodes' device plugin offers, "
            "as `kubectl describe node` lists it under Allocatable",
        )
    if resource is not None and profile is NetworkProfile.TCP:
        raise SpecError(
            field="spec.network.rdmaResource",
            value=resource,
            limit="profile tcp uses no RDMA devices",
            remedy="leave it out, or choose profile roce or infiniband",
        )
    return {} if resource is None else {resource: network.rdma_count or 1}


def _interfaces(
    network: NetworkSpec, profile: NetworkProfile, own: Collection[str], *, launcher: bool
) -> dict[str, str]:
    given = network.socket_interface
    if given is None:
        if profile is NetworkProfile.CUSTOM:
            return {}
        if launcher:
            # It asks the kernel which interface reaches the leader, of whatever name.
            return {}
        if network.host_network and not {NCCL_INTERFACE, GLOO_INTERFACE} <= set(own):
            # Gloo would resolve the node's host name, which often is a loopback address: each rank then waits
            # for peers that dial themselves (reported for EKS, aws-do-eks pull requests 50 and 69).
            raise SpecError(
                field="spec.network.socketInterface",
                value=None,
                limit="with hostNetwork a node has several interfaces, and a wrong one hangs the group",
                remedy="name the interface that reaches the other nodes, as `ip route` on a node shows it, "
                "or leave spec.engine.launcher on",
            )
        given = POD_INTERFACE
    names = given.removeprefix("=").split(",")
    if given.startswith("^"):
        if GLOO_INTERFACE in own:
            return {NCCL_INTERFACE: given}
        raise SpecError(
            field="spec.network.socketInterface",
            value=given,
            limit="Gloo takes the name of one interface and cannot exclude any",
            remedy=f"name an interface, or set {GLOO_INTERFACE} in spec.engine.env besides",
        )
    for name in names:
        _check_gloo("spec.network.socketInterface", name)
    return {NCCL_INTERFACE: f"={','.join(names)}", GLOO_INTERFACE: names[0]}


def _check_gloo(where: str, interface: str | None) -> None:
    if interface is None:
        return
    if interface == "lo" or _CONCRETE.match(interface) is None:
        raise SpecError(
            field=where,
            value=interface,
            limit="Gloo takes the name of one interface of at most 15 characters that is not the loopback",
            remedy="name the interface that reaches the other nodes, such as eth0",
        )


def _warnings(*, host: bool, devices: dict[str, int], efa: bool) -> tuple[str, ...]:
    found = []
    if host:
        found.append(
            "With hostNetwork the NetworkPolicy does not hold: any pod that reaches the nodes reaches the "
            "engine's unauthenticated internal ports."
        )
    if devices:
        found.append(
            "IPC_LOCK does nothing for a container that does not run as root: raise the memlock limit of the "
            "nodes' container runtime, or NCCL cannot register memory with the RDMA devices."
        )
    if efa:
        found.append(
            "NCCL uses EFA only through the aws-ofi-nccl plugin, which the engine's image must contain: "
            "without it NCCL falls back to TCP. NCCL_DEBUG=INFO shows NET/OFI when it is in use."
        )
    return tuple(found)
