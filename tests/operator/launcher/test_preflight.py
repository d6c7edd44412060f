"""Checks before the engine: each failure is one sentence with the value and what to do."""

from pathlib import Path

import pytest

from shardwright_operator.launcher import interfaces, preflight
from shardwright_operator.launcher.reasons import LauncherError

GIB = 1024**3


def test_gpus_are_counted_by_their_devices(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null"):
        (tmp_path / name).touch()
    preflight.check_gpus(3, tmp_path)

    with pytest.raises(
        LauncherError, match=r"counts on 4 GPUs .* 3 are there \(nvidia0, nvidia1, nvidia10\)"
    ) as caught:
        preflight.check_gpus(4, tmp_path)
    assert caught.value.reason == "GpuLost"


def test_shared_memory_is_emptied_and_measured(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("psm_1a2b", "nccl-x", "sem.mp"):
        (tmp_path / name).write_text("left by the start before")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    preflight.check_shared_memory(1, tmp_path)

    assert list(tmp_path.iterdir()) == []
    assert "removed 4 leftovers" in capfd.readouterr().err
    with pytest.raises(
        LauncherError, match=r"GiB, planned are 1073741824\.00 GiB; give more memory"
    ) as caught:
        preflight.check_shared_memory(2**60, tmp_path)
    assert caught.value.reason == "OutOfMemory"


def test_memory_is_waited_for(capfd: pytest.CaptureFixture[str]) -> None:
    seen = iter([2 * GIB, 3 * GIB, 9 * GIB])
    slept: list[float] = []
    preflight.check_memory(8 * GIB, available=lambda: next(seen), sleep=slept.append)

    assert len(slept) == 2
    assert "waiting for memory: 2.0 of 8.0 GiB are available" in capfd.readouterr().err


def test_memory_that_never_comes() -> None:
    slept: list[float] = []
    with pytest.raises(LauncherError, match=r"^2\.0 GiB of memory are available, .* need 8\.0 GiB") as caught:
        preflight.check_memory(8 * GIB, patience_s=20, available=lambda: 2 * GIB, sleep=slept.append)

    assert (caught.value.reason, sum(slept)) == ("OutOfMemory", 20)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        pytest.param({"meminfo": "MemAvailable:   4194304 kB\n"}, 4 * GIB, id="the node's"),
        pytest.param(
            {"meminfo": "MemAvailable: 8388608 kB\n", "memory.max": "max\n", "memory.current": "5\n"},
            8 * GIB,
            id="no limit",
        ),
        pytest.param(
            {
                "meminfo": "MemTotal: 9 kB\nMemAvailable: 8388608 kB\n",
                "memory.max": f"{3 * GIB}\n",
                "memory.current": f"{GIB}\n",
            },
            2 * GIB,
            id="what is left of the limit",
        ),
        pytest.param({}, None, id="not known"),
    ],
)
def test_available_memory(tmp_path: Path, files: dict[str, str], found: int | None) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    assert preflight.available_memory_bytes(tmp_path / "meminfo", tmp_path) == found


def test_leaders_name_is_waited_for_and_told_now_and_then(capfd: pytest.CaptureFixture[str]) -> None:
    now = [0.0]

    def resolve(name: str) -> list[str]:
        if now[0] < 70:
            raise OSError("Name or service not known")
        return ["10.1.2.3"]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    found = preflight.await_name(
        "n-0-leader-0", within_s=600, resolve=resolve, clock=lambda: now[0], sleep=sleep
    )

    assert found == "10.1.2.3"
    assert capfd.readouterr().err.count("waiting for the leader's name n-0-leader-0: Name or service") == 3


def test_name_that_never_resolves() -> None:
    now = iter(range(0, 10_000, 100))

    def resolve(name: str) -> list[str]:
        raise OSError("Name or service not known")

    with pytest.raises(LauncherError, match=r"name x does not resolve after 600 s \(Name or") as caught:
        preflight.await_name(
            "x", within_s=600, resolve=resolve, clock=lambda: next(now), sleep=lambda _: None
        )
    assert caught.value.reason == "RendezvousTimeout"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        pytest.param("", "is '' and no IP address", id="empty"),
        pytest.param("node-1", "is 'node-1' and no IP address", id="a name"),
        pytest.param("127.0.0.1", "at which peers would dial themselves", id="loopback"),
        pytest.param("0.0.0.0", "at which peers would dial themselves", id="any"),  # noqa: S104
        pytest.param("::1", "at which peers would dial themselves", id="loopback of IPv6"),
        pytest.param("192.0.2.77", "which no interface of this pod has", id="of another pod"),
    ],
)
def test_own_address(address: str, problem: str) -> None:
    with pytest.raises(LauncherError, match=problem) as caught:
        preflight.check_own_address({"VLLM_HOST_IP": address})
    assert caught.value.reason == "ConfigRejected"


def test_all_addresses_of_this_machine_are_its_own() -> None:
    assert [interfaces.is_own(a) for a in ("127.0.0.1", "127.0.0.99", "192.0.2.77")] == [True, True, False]


def test_most_specific_route_wins(tmp_path: Path) -> None:
    table = tmp_path / "route"
    table.write_text(
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "net1\t0000A8C0\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
        "net2\t0005A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    found = [
        interfaces.routed_interface(a, table) for a in ("10.1.2.3", "192.168.1.1", "192.168.5.9", "fd00::1")
    ]

    assert found == ["eth0", "net1", "net2", None]


@pytest.mark.parametrize("token", ["", "None", " null\n", "<no value>"])
def test_token_that_is_none(token: str) -> None:
    with pytest.raises(LauncherError, match="put the token itself into the Secret") as caught:
        preflight.check_token({"HF_TOKEN": token})
    assert caught.value.reason == "AccessDenied"


@pytest.mark.parametrize("environment", [{}, {"HF_TOKEN": "hf_abcdefgh"}], ids=["none", "one"])
def test_token_or_none_at_all(environment: dict[str, str]) -> None:
    preflight.check_token(environment)


def test_interface_that_only_reaches_the_pod_itself_is_refused() -> None:
    with pytest.raises(LauncherError, match=r"reached from 127\.0\.0\.1 on interface lo, over which no peer"):
        preflight.resolved_interface("127.0.0.1")


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        pytest.param(
            {"GLOO_SOCKET_IFNAME": "lo"}, "GLOO_SOCKET_IFNAME is lo, and", id="Gloo on the loopback"
        ),
        pytest.param(
            {"GLOO_SOCKET_IFNAME": "ens9f9"}, "GLOO_SOCKET_IFNAME is ens9f9, and", id="no such interface"
        ),
        pytest.param(
            {"NCCL_SOCKET_IFNAME": "=ens9f9"}, "NCCL_SOCKET_IFNAME is =ens9f9, and", id="NCCL, exact"
        ),
        pytest.param(
            {"NCCL_SOCKET_IFNAME": "=lo"}, "NCCL_SOCKET_IFNAME is =lo, and", id="NCCL on the loopback"
        ),
    ],
)
def test_given_interfaces_exist(environment: dict[str, str], problem: str) -> None:
    with pytest.raises(LauncherError, match=problem):
        preflight.check_interfaces(environment)


def test_no_interface_given_is_no_fault() -> None:
    preflight.check_interfaces({})


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        pytest.param("eth", ["eth0", "eth1"], id="prefix"),
        pytest.param("=eth1", ["eth1"], id="exact"),
        pytest.param("=eth", [], id="exact and absent"),
        pytest.param("eth1,ib", ["eth1", "ib0"], id="list"),
        pytest.param("^docker", ["eth0", "eth1", "ib0"], id="all but a prefix"),
        pytest.param("^=eth0", ["eth1", "ib0", "docker0"], id="all but one"),
    ],
)
def test_grammar_of_nccl(pattern: str, found: list[str]) -> None:
    assert interfaces.matching(pattern, ["lo", "eth0", "eth1", "ib0", "docker0"]) == found


def test_addresses_of_ipv6(tmp_path: Path) -> None:
    table = tmp_path / "if_inet6"
    table.write_text(
        "fd000000000000000000000000000007 02 40 00 80     eth7\n" + "0" * 31 + "1 01 80 10 80       lo\n"
    )

    assert {str(a) for a in interfaces.addresses("eth7", table)} == {"fd00::7"}


def test_loopback_by_its_flags(tmp_path: Path) -> None:
    for name, flags in (("a", "0x1003"), ("b", "0x9")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "flags").write_text(flags)

    assert [interfaces.is_loopback(name, tmp_path) for name in ("a", "b", "lo", "c")] == [
        False,
        True,
        True,
        False,
    ]
