"""Network interfaces of the pod: which one reaches the leader, and which ones a pattern of NCCL means.

A guess over several interfaces may end at one that the peers cannot reach: Gloo resolves the host's name,
which often is a loopback address, and the ranks then dial themselves. The kernel's own routing decides
instead.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from pathlib import Path

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_SIOCGIFADDR = 0x8915
_IFF_LOOPBACK = 0x8
_PROBE_PORT = 9


def names() -> list[str]:
    """All interfaces, by name."""
    return [name for _, name in socket.if_nameindex()]


def is_loopback(name: str, sys_net: Path = Path("/sys/class/net")) -> bool:
    """Whether it only reaches the pod itself."""
    try:
        return bool(int((sys_net / name / "flags").read_text(), 16) & _IFF_LOOPBACK)
    except (OSError, ValueError):
        return name == "lo"


def local_address_to(address: str) -> str:
    """The own address from which the kernel would reach this one; no packet is sent.

    Raises:
        OSError: there is no route.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((address, _PROBE_PORT))
        return str(probe.getsockname()[0])


def is_own(address: str) -> bool:
    """Whether this pod has the address, on whichever interface and among however many."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def routed_interface(address: str, table: Path = Path("/proc/net/route")) -> str | None:
    """The interface of the most specific IPv4 route to the address; None without one, and for IPv6."""
    try:
        wanted = int(ipaddress.IPv4Address(address))
        lines = table.read_text().splitlines()[1:]
    except (ValueError, OSError):
        return None
    found: list[tuple[int, str]] = []
    for fields in (line.split() for line in lines):
        # Numbers are hexadecimal in the machine's own byte order.
        target, mask = (int.from_bytes(bytes.fromhex(fields[i])[::-1], "big") for i in (1, 7))
        if wanted & mask == target:
            found.append((mask, fields[0]))
    return max(found, default=(0, None))[1]


def interface_of(address: str) -> str | None:
    """The interface that has this address."""
    wanted = ipaddress.ip_address(address.partition("%")[0])
    return next((name for name in names() if wanted in addresses(name)), None)


def addresses(name: str, if_inet6: Path = Path("/proc/net/if_inet6")) -> set[Address]:
    """Addresses of an interface: its first of IPv4, and all of IPv6."""
    found: set[Address] = set()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            found.add(ipaddress.IPv4Address(answer[20:24]))
        except OSError:
            # An interface without an IPv4 address; its other ones follow.
            pass
    try:
        lines = if_inet6.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        fields = line.split()
        if len(fields) >= 6 and fields[5] == name:
            found.add(ipaddress.IPv6Address(bytes.fromhex(fields[0])))
    return found


def matching(pattern: str, existing: list[str]) -> list[str]:
    """Interfaces that a value of NCCL_SOCKET_IFNAME means, in NCCL's grammar.

    A list of prefixes; ``=`` makes them exact names, ``^`` excludes them (NCCL documentation, environment
    variables). Without a ``^`` the loopback counts only when it is named.
    """
    excluding = pattern.startswith("^")
    body = pattern[1:] if excluding else pattern
    exact = body.startswith("=")
    words = [word for word in (body[1:] if exact else body).split(",") if word]
    hit = [n for n in existing if any(n == w if exact else n.startswith(w) for w in words)]
    return [n for n in existing if n not in hit and n != "lo"] if excluding else hit
