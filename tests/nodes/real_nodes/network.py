"""A network for the tests alone: a namespace that this process enters, with a bridge that nodes hang on.

The process moves, instead of naming a namespace and running commands in it: whatever it starts, the control
plane and the operator, is then in the network as well, on loopback ports as ever. The namespace has no name
and goes when its last process does, so that a killed test run leaves no interface behind.
"""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

CLONE_NEWNET = 0x40000000
BRIDGE = "nodes"
GATEWAY = "10.89.0.1"
"""The tests' own address on the bridge, where nodes reach the API server and DNS."""
POD_NETWORK = "10.88.0.0/16"
COMMAND_TIMEOUT_S = 120.0


def node_address(index: int) -> str:
    """Address of node ``index``, from 1 on."""
    return f"10.89.0.{10 + index}"


def pod_subnet(index: int) -> str:
    """Network of the pods of node ``index``."""
    return f"10.88.{index}.0/24"


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """Inside the block, this thread and what it starts are in a network of their own.

    Sockets that were open before stay where they were.
    """
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call("unshare", CLONE_NEWNET)
        try:
            _set_up()
            yield
        finally:
            _call("setns", before, CLONE_NEWNET)
    finally:
        os.close(before)


def _set_up() -> None:
    ip("link", "set", "lo", "up")
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def connect(name: str, index: int, pid: int) -> None:
    """Plug the network namespace of ``pid`` into the bridge, as ``eth0`` there."""
    port = port_of(name)
    ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
    ip("link", "set", port, "master", BRIDGE)
    ip("link", "set", port, "up")
    ip("route", "replace", pod_subnet(index), "via", node_address(index))


def disconnect(name: str) -> None:
    """Unplug a node, for good; nothing happens when its namespace has taken the cable along."""
    with contextlib.suppress(subprocess.CalledProcessError):
        ip("link", "delete", port_of(name))


def partition(name: str) -> None:
    """Let the bridge drop all frames from and to a node; its link stays up, as behind a broken switch."""
    port = port_of(name)
    nft(f"""
        table bridge cut-{name} {{
            chain incoming {{ type filter hook prerouting priority -300; iifname "{port}" drop; }}
            chain outgoing {{ type filter hook postrouting priority 300; oifname "{port}" drop; }}
        }}
    """)


def heal(name: str) -> None:
    """Let a partitioned node's frames pass again."""
    nft(f"delete table bridge cut-{name}")


@contextlib.contextmanager
def blocked_port(port: int) -> Iterator[None]:
    """Let the bridge drop what goes to a TCP port of any node or pod while the block runs."""
    table = f"block-{port}"
    nft(f"""
        table bridge {table} {{
            chain passing {{ type filter hook forward priority 0; tcp dport {port} drop; }}
        }}
    """)
    try:
        yield
    finally:
        nft(f"delete table bridge {table}")


def reach_services_by(address: str, services: str) -> None:
    """Send this process's packets for cluster IPs to a node, whose kube-proxy knows them."""
    ip("route", "replace", services, "via", address)


def port_of(name: str) -> str:
    """The bridge's port of a node; names of interfaces have 15 characters at most."""
    return f"to-{name}"[:15]


def ip(*arguments: str) -> None:
    """Run the ``ip`` command. Raises CalledProcessError."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=COMMAND_TIMEOUT_S)


def nft(commands: str) -> None:
    """Run ``nft`` commands. Raises CalledProcessError."""
    command = ["nft", "-f", "-"]
    subprocess.run(
        command, input=commands.encode(), check=True, capture_output=True, timeout=COMMAND_TIMEOUT_S
    )


def _call(name: str, *arguments: int) -> None:
    # In Python's own library from 3.12 on.
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
