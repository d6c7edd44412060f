"""Checks of the pod before the engine starts. What they find costs minutes of loading when the engine finds
it, or a group that hangs without a word.

A check fails with a ``LauncherError``. One that cannot be made here (no GPU in a test, no cgroup) is
skipped and says so; ``SHARDWRIGHT_SKIP`` in the environment, such as ``gpus,memory``, skips by name.
"""

from __future__ import annotations

import ipaddress
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from shardwright_operator.launcher import interfaces, reasons
from shardwright_operator.launcher.reasons import LauncherError

SKIP = "SHARDWRIGHT_SKIP"
NCCL_INTERFACE = "NCCL_SOCKET_IFNAME"
NCCL_FAMILY = "NCCL_SOCKET_FAMILY"
GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"
OWN_ADDRESS = "VLLM_HOST_IP"
TOKEN = "HF_TOKEN"  # noqa: S105 - the name of a variable
_NO_TOKEN = frozenset({"", "none", "null", "<no value>"})
GIB = 1024**3
MEMORY_PATIENCE_S = 60.0
"""How long memory may be missing at the start: a pod of an older group may still be giving its own back."""
RESOLVE_PERIOD_S = 2.0
SAY_PERIOD_S = 30.0


def say(text: str) -> None:
    """One line into the container's log."""
    sys.stderr.write(f"shardwright: {text}\n")
    sys.stderr.flush()


def skipped(environment: Mapping[str, str]) -> frozenset[str]:
    """Names of the checks and watches that the environment turns off."""
    return frozenset(word.strip() for word in environment.get(SKIP, "").split(",") if word.strip())


def check_gpus(wanted: int, devices: Path = Path("/dev")) -> None:
    """As many GPUs as the plan counts on: with fewer, ranks end in the middle of the group's forming."""
    found = sorted(node.name for node in devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", node.name))
    if len(found) != wanted:
        raise LauncherError(
            reasons.GPU_LOST,
            f"the plan counts on {wanted} GPUs in this pod and {len(found)} are there "
            f"({', '.join(found) or f'no {devices}/nvidia[0-9]*'}); a GPU may have failed, or the "
            f"container runtime does not pass GPUs on. Where there are none on purpose, set {SKIP}=gpus",
        )


def check_shared_memory(wanted_bytes: int, folder: Path = Path("/dev/shm")) -> None:  # noqa: S108
    """Shared memory of the planned size, and empty: a restarted container finds what it left behind."""
    leftovers = 0
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
        leftovers += 1
    if leftovers:
        say(f"removed {leftovers} leftovers from {folder}")
    usage = shutil.disk_usage(folder)
    # A memory-backed volume is rounded to pages, and never larger than the memory that is allowed.
    if usage.total < wanted_bytes * 0.95:
        raise LauncherError(
            reasons.OUT_OF_MEMORY,
            f"{folder} has {usage.total / GIB:.2f} GiB, planned are {wanted_bytes / GIB:.2f} GiB; "
            "give more memory in spec.engine.resources, or a smaller spec.storage.sharedMemory",
        )


def check_memory(
    wanted_bytes: int,
    *,
    patience_s: float = MEMORY_PATIENCE_S,
    available: Callable[[], int | None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Memory for the engine's processes: a request is only a promise, and others may use more than theirs."""
    waited_s = 0.0
    while True:
        found = (available or available_memory_bytes)()
        if found is None:
            say("skipped memory: neither /proc/meminfo nor a cgroup can be read")
            return
        if found >= wanted_bytes:
            return
        if waited_s >= patience_s:
            raise LauncherError(
                reasons.OUT_OF_MEMORY,
                f"{found / GIB:.1f} GiB of memory are available, the engine's processes need "
                f"{wanted_bytes / GIB:.1f} GiB; other pods on this node use more than they asked for, or the "
                f"limit in spec.engine.resources is too low. {SKIP}=memory leaves this check out",
            )
        say(f"waiting for memory: {found / GIB:.1f} of {wanted_bytes / GIB:.1f} GiB are available")
        step_s = min(5.0, max(0.05, patience_s))
        sleep(step_s)
        waited_s += step_s


def available_memory_bytes(
    meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Memory that this container can still take: of the node, and up to its own limit. None: not known."""
    bounds = []
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
        if found:
            bounds.append(int(found.group(1)) * 1024)
    except OSError:
        # Not every sandbox shows it; a bound that is not known does not hold an engine up.
        pass
    try:
        limit, used = ((cgroup / name).read_text().strip() for name in ("memory.max", "memory.current"))
        if limit != "max":
            bounds.append(int(limit) - int(used))
    except (OSError, ValueError):
        # cgroups of version 1 have other files, and the root of version 2 has none.
        pass
    return min(bounds, default=None)


def await_name(
    name: str,
    *,
    within_s: float,
    resolve: Callable[[str], list[str]] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """The leader's address, as soon as its name resolves.

    Patient: the leader's node may still pull the image, and a resolver keeps a "no such name" for its time
    (30 s in a cluster made by kubeadm). An exit would count as a restart, which breaks the group.
    """
    began = said = clock()
    while True:
        try:
            return (resolve or addresses_of)(name)[0]
        except (OSError, IndexError) as error:
            problem = str(error)
        now = clock()
        if now - began > within_s:
            raise LauncherError(
                reasons.RENDEZVOUS_TIMEOUT,
                f"the leader's name {name} does not resolve after {within_s:.0f} s ({problem})",
            )
        if now == began or now - said >= SAY_PERIOD_S:
            say(f"waiting for the leader's name {name}: {problem}")
            said = now
        sleep(RESOLVE_PERIOD_S)


def addresses_of(name: str) -> list[str]:
    """Addresses of a name, as the engine will look it up."""
    return [str(found[4][0]) for found in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]


def check_own_address(environment: Mapping[str, str]) -> None:
    """The address that this rank will tell its peers: one of the pod's own, and not the loopback."""
    given = environment.get(OWN_ADDRESS, "")
    try:
        address = ipaddress.ip_address(given)
    except ValueError:
        raise LauncherError(
            reasons.CONFIG_REJECTED, f"{OWN_ADDRESS} is {given!r} and no IP address: peers could not dial it"
        ) from None
    if address.is_loopback or address.is_unspecified:
        raise LauncherError(
            reasons.CONFIG_REJECTED, f"{OWN_ADDRESS} is {given}, at which peers would dial themselves"
        )
    if not interfaces.is_own(given):
        raise LauncherError(
            reasons.CONFIG_REJECTED, f"{OWN_ADDRESS} is {given}, which no interface of this pod has"
        )


def resolved_interface(leader_address: str) -> str:
    """The interface from which the leader is reached; on the leader itself the one that has its address."""
    try:
        local = interfaces.local_address_to(leader_address)
    except OSError as error:
        raise LauncherError(
            reasons.CONFIG_REJECTED, f"there is no route to the leader at {leader_address}: {error}"
        ) from error
    # An interface may have several addresses, of which only the first is found by asking for it.
    found = interfaces.interface_of(local) or interfaces.routed_interface(leader_address)
    if found is None or interfaces.is_loopback(found):
        raise LauncherError(
            reasons.CONFIG_REJECTED,
            f"the leader at {leader_address} is reached from {local} on interface {found or 'none'}, "
            "over which no peer can dial back; give spec.network.socketInterface",
        )
    return found


def check_token(environment: Mapping[str, str]) -> None:
    """A Hub token, where there is one, is more than a templating tool's word for nothing."""
    token = environment.get(TOKEN)
    if token is not None and token.strip().lower() in _NO_TOKEN:
        raise LauncherError(
            reasons.ACCESS_DENIED,
            f"the Secret's token for the Hub is {token.strip()!r}; put the token itself into the Secret",
        )


def check_interfaces(environment: Mapping[str, str]) -> None:
    """Interfaces that are given exist here and are not the loopback, each in its library's grammar."""
    existing = interfaces.names()
    gloo, nccl = environment.get(GLOO_INTERFACE), environment.get(NCCL_INTERFACE)
    if gloo is not None and (gloo not in existing or interfaces.is_loopback(gloo)):
        raise LauncherError(reasons.CONFIG_REJECTED, _bad_interface(GLOO_INTERFACE, gloo, existing))
    if nccl is not None and not [
        name for name in interfaces.matching(nccl, existing) if not interfaces.is_loopback(name)
    ]:
        raise LauncherError(reasons.CONFIG_REJECTED, _bad_interface(NCCL_INTERFACE, nccl, existing))


def _bad_interface(variable: str, value: str, existing: list[str]) -> str:
    return f"{variable} is {value}, and this pod's interfaces are {', '.join(existing)}; name one but lo"
