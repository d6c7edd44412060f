"""Names of the children: the one place that makes them, so that no two references can differ.

Lengths: the CRD refuses names of more than ``MAX_NAME_LENGTH`` characters and replicas of more than three
digits, hence every name below fits its kind's limit and nothing is ever truncated or hashed.
"""

from shardwright_operator.api.constants import Role


def client_service(name: str) -> str:
    """The Service that clients use: rank 0 of all groups, ready ones only."""
    return name


def group(name: str, index: int) -> str:
    """Name of a group, and of its NetworkPolicy and PodDisruptionBudget."""
    return f"{name}-{index}"


def stateful_set(name: str, index: int | str, role: Role) -> str:
    """Name of a group's set; ``index`` may be an unexpanded ``$(GROUP_INDEX)``."""
    return f"{name}-{index}-{role}"


def ranks_service(name: str, index: int | str) -> str:
    """The group's headless Service: gives each rank its DNS name, ready or not."""
    return f"{name}-{index}-ranks"


def pod(name: str, index: int, node_rank: int) -> str:
    """Name of the pod with this node rank: the pod's own index is its rank (``spec.ordinals.start``)."""
    role = Role.LEADER if node_rank == 0 else Role.WORKER
    return f"{stateful_set(name, index, role)}-{node_rank}"


def leader_address(name: str, index: int | str, namespace: str) -> str:
    """DNS name of rank 0. Not fully qualified: the cluster's domain is not ours to know."""
    return f"{stateful_set(name, index, Role.LEADER)}-0.{ranks_service(name, index)}.{namespace}.svc"


def launcher_config(name: str, digest: str) -> str:
    """Name of the ConfigMap that holds the launcher of this content."""
    return f"{name}-launcher-{digest}"


def download_job(name: str, digest: str) -> str:
    """Name of the Job that downloads this model to this place."""
    return f"{name}-download-{digest}"


def reference_check(name: str, digest: str) -> str:
    """Name of the Job that shows whether these Secrets and ConfigMaps are there."""
    return f"{name}-check-{digest}"


def revision(name: str, digest: str) -> str:
    """Name of the ControllerRevision that holds a plan and its pod templates."""
    return f"{name}-{digest}"
