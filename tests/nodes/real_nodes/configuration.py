"""Configuration files of a node's programs. Without any of these settings something was seen to fail.

Settings that decide how fast Kubernetes notices a loss are left at their defaults: the tests measure them.
"""

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from real_nodes.images import PAUSE
from real_nodes.network import GATEWAY, POD_NETWORK, node_address, pod_subnet
from real_nodes.programs import NETWORK_PLUGINS

RUNTIME_SOCKET = "/run/containerd/containerd.sock"
"""In the node's own /run."""
RUNTIME = "mounted"
CLUSTER_DOMAIN = "cluster.local"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFiles:
    """Where a node's configuration and data lie; all below one folder."""

    folder: Path
    containerd: Path
    kubelet: Path
    kube_proxy: Path

    @property
    def kubelet_root(self) -> Path:
        """Where the kubelet mounts volumes."""
        return self.folder / "kubelet"


def write_node_files(
    folder: Path, *, name: str, index: int, mounts: Mapping[Path, str], proxy_kubeconfig: Path
) -> NodeFiles:
    """Write everything that the node's programs read at their start.

    ``mounts`` are folders of this machine and where every container sees them, read-only.
    """
    for part in ("containerd", "kubelet", "network", "plugins"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "resolv.conf").touch()
    (folder / "network" / "10-bridge.conflist").write_text(json.dumps(_pod_network(folder, index)))
    (folder / "base-spec.json").write_text(json.dumps(_base_spec(mounts)))
    files = NodeFiles(
        folder=folder,
        containerd=folder / "containerd.toml",
        kubelet=folder / "kubelet.yaml",
        kube_proxy=folder / "kube-proxy.yaml",
    )
    files.containerd.write_text(_containerd(folder))
    files.kubelet.write_text(yaml.safe_dump(_kubelet(folder)))
    files.kube_proxy.write_text(yaml.safe_dump(_kube_proxy(name, proxy_kubeconfig)))
    return files


def kubelet_arguments(files: NodeFiles, *, name: str, index: int, kubeconfig: Path) -> tuple[str, ...]:
    """What the kubelet's file cannot say."""
    return (
        f"--config={files.kubelet}",
        f"--kubeconfig={kubeconfig}",
        f"--root-dir={files.kubelet_root}",
        f"--cert-dir={files.kubelet_root / 'pki'}",
        f"--hostname-override={name}",
        f"--node-ip={node_address(index)}",
    )


def _pod_network(folder: Path, index: int) -> dict[str, Any]:
    addresses = {
        "type": "host-local",
        "dataDir": str(folder / "addresses"),
        "ranges": [[{"subnet": pod_subnet(index)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipMasq": False, "hairpinMode": True}
    plugins = [bridge | {"ipam": addresses}, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": plugins}


def _base_spec(mounts: Mapping[Path, str]) -> dict[str, Any]:
    """The container that all others start from: containerd's own with this machine's folders mounted."""
    made = subprocess.run(["ctr", "oci", "spec"], capture_output=True, text=True, check=True, timeout=30)
    spec: dict[str, Any] = json.loads(made.stdout)
    options = ["rbind", "rprivate", "ro", "nosuid"]
    spec["mounts"] += [
        {"destination": destination, "type": "bind", "source": str(source), "options": options}
        for source, destination in mounts.items()
    ]
    return spec


def _containerd(folder: Path) -> str:
    # Version 2 is read by containerd 1.6, 1.7 and 2. Without restrict_oom_score_adj no pod starts under a
    # root that lacks CAP_SYS_RESOURCE ("failed to update /proc/self/oom_score_adj").
    return f"""\
version = 2
root = "{folder / "containerd" / "root"}"
state = "/run/containerd/state"
[grpc]
  address = "{RUNTIME_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder / "containerd" / "opt"}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "{RUNTIME}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{RUNTIME}]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = "{folder / "base-spec.json"}"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{RUNTIME}.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{NETWORK_PLUGINS}"
    conf_dir = "{folder / "network"}"
"""


def _kubelet(folder: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{RUNTIME_SOCKET}",
        "cgroupDriver": "cgroupfs",
        # From 1.35 on a kubelet refuses to start on hierarchies of version 1 unless told otherwise.
        "failCgroupV1": False,
        "failSwapOn": False,
        # Only the network of the tests reaches it, and the API server needs no certificate of its own then.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "clusterDomain": CLUSTER_DOMAIN,
        "clusterDNS": [GATEWAY],
        "resolvConf": str(folder / "resolv.conf"),
        # Images cannot be pulled again, and this machine's disk is none of the tests' business.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        # A negative one needs CAP_SYS_RESOURCE.
        "oomScoreAdj": 0,
        "podPidsLimit": 4096,
        "enforceNodeAllocatable": ["pods"],
        "volumePluginDir": str(folder / "plugins"),
        "podLogsDir": str(folder / "pod-logs"),
    }


def _kube_proxy(name: str, kubeconfig: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        # The tests' own packages come from outside of this range and are masqueraded, so that answers of pods
        # on other nodes find back through this one.
        "clusterCIDR": POD_NETWORK,
        "hostnameOverride": name,
        "oomScoreAdj": 0,
        # These are the machine's and not the node's.
        "conntrack": {"maxPerCore": 0, "min": 0},
        "metricsBindAddress": "127.0.0.1:10249",
        "healthzBindAddress": "127.0.0.1:10256",
    }


def programs_of(files: NodeFiles, kubelet: Sequence[str], kube_proxy: Path) -> list[list[str]]:
    """Command lines of the node's servers in the order of their start, the container runtime first."""
    return [
        ["containerd", "--config", str(files.containerd)],
        list(kubelet),
        [str(kube_proxy), f"--config={files.kube_proxy}"],
    ]
