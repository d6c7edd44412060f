"""Real Kubernetes nodes on this machine: kubelets whose pods run, without a container engine or a registry.

Simulated nodes cannot show what a container does: whether ranks find each other, what a dead one leaves
hanging, how long a stop takes. Here each node is a set of Linux namespaces with its own containerd and
kubelet, in a network that exists for the tests alone, and every pod sees this machine's programs read-only,
so that an image is no more than a name.
"""

from real_nodes.cluster import RealCluster
from real_nodes.images import Image
from real_nodes.node import Node
from real_nodes.programs import NodeSetupError, Programs, ensure_programs

__all__ = ["Image", "Node", "NodeSetupError", "Programs", "RealCluster", "ensure_programs"]
