"""Names that are part of the API: group and kind, labels, annotations, condition types and reasons.

They are kept in one place because each of them is a promise: users select by the labels, alert on the
reasons, and an older operator's objects must still be found by a newer one.
"""

from enum import StrEnum

GROUP = "shardwright.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "ModelDeployment"
PLURAL = "modeldeployments"
SINGULAR = "modeldeployment"
SHORT_NAME = "mdep"
CATEGORY = "shardwright"

FIELD_MANAGER = "shardwright"
STATUS_FIELD_MANAGER = "shardwright-status"

GPU_RESOURCE = "nvidia.com/gpu"

MAX_NAME_LENGTH = 40
"""Longest name of a ModelDeployment: a StatefulSet's name may have 52 characters (63 less the 11 of the
``controller-revision-hash`` label's suffix), and ``-999-leader`` takes 11; one is kept in reserve."""

MAX_REPLICAS = 999
MAX_GROUP_INDEX = 999


class Label:
    """Labels of the children; the first three are Kubernetes' recommended ones."""

    MANAGED_BY = "app.kubernetes.io/managed-by"
    NAME = "app.kubernetes.io/name"
    COMPONENT = "app.kubernetes.io/component"
    DEPLOYMENT = f"{GROUP}/model-deployment"
    GROUP_INDEX = f"{GROUP}/group-index"
    ROLE = f"{GROUP}/role"
    PODS = f"{GROUP}/pods"
    """Hash of the templates a pod was made from: pods with different values never form a group."""
    POD_INDEX = "apps.kubernetes.io/pod-index"


MANAGED_BY_VALUE = "shardwright"
MANAGED_BY_SELECTOR = f"{Label.MANAGED_BY}={MANAGED_BY_VALUE}"


class Role(StrEnum):
    """Which set of a group a pod belongs to. Kept open: prefill and decode may each have both one day."""

    LEADER = "leader"
    WORKER = "worker"


class Annotation:
    """Annotations of a group's leader set: what must survive a restart, an upgrade or a lost status."""

    REVISION = f"{GROUP}/revision"
    """Name of the ControllerRevision whose templates the set holds."""
    MEMBERS = f"{GROUP}/members"
    """UIDs of the pods that formed the group, in node-rank order, comma separated; a member with another
    UID was replaced behind our back. Empty while the group forms."""
    ATTEMPT = f"{GROUP}/attempt"
    """How often the group was started again after a failure of its revision's pods."""
    RESTARTS = f"{GROUP}/restarts"
    """Restarts in place of a group of one that the attempts already count."""
    NOT_BEFORE = f"{GROUP}/not-before"
    """RFC 3339 time before which the group is not started again."""
    CAUSE = f"{GROUP}/cause"
    """Why the group was last taken down (a Reason)."""
    EVIDENCE = f"{GROUP}/first-failure"
    """JSON record of the first failure: rank, pod, node, container exit code, reason, message, time."""
    STARTED = f"{GROUP}/started"
    """RFC 3339 time of the first start since the group last served, or since its revision changed."""
    CONTENT = f"{GROUP}/content"
    """Of a download's Job: hash of the spec that it was made from."""
    PORT_BLOCK = f"{GROUP}/port-block"
    """Of pods on the nodes' network: number of the block of ports that their resource has."""
    RETRY = f"{GROUP}/retry"
    """Set by a person on the ModelDeployment; a new value gives a failed group a fresh start."""


class ConditionType(StrEnum):
    """Types of the resource's conditions, in the order in which they are written."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    AVAILABLE = "Available"
    PLAN_ACCEPTED = "PlanAccepted"
    SLO_PREDICTED = "SLOPredicted"
    MODEL_DOWNLOADED = "ModelDownloaded"
    PLAN_VERIFIED = "PlanVerified"
    FIELDS_OVERRIDDEN = "FieldsOverridden"


class Reason(StrEnum):
    """Reasons of conditions, events and group phases. Users alert on them: never rename one."""

    # the plan
    PLANNED = "Planned"
    DOES_NOT_FIT = "DoesNotFit"
    SLO_MISSED = "SLOMissed"
    SLO_MET = "SLOMet"
    INVALID_SPEC = "InvalidSpec"
    UNKNOWN_MODEL = "UnknownModel"
    UNKNOWN_GPU = "UnknownGPU"
    NO_GPU_NODES = "NoGPUNodes"
    # the world around
    NAME_CONFLICT = "NameConflict"
    WRITE_REFUSED = "WriteRefused"
    VOLUME_NOT_SHARED = "VolumeNotShared"
    WAITING_FOR_VOLUME = "WaitingForVolume"
    WAITING_FOR_CAPACITY = "WaitingForCapacity"
    GANG_UNAVAILABLE = "GangUnavailable"
    FIELD_OVERRIDDEN = "FieldOverridden"
    NETWORK_WARNING = "NetworkWarning"
    # what the pods name
    CHECKING_REFERENCES = "CheckingReferences"
    # the model's files
    DOWNLOADING = "Downloading"
    DOWNLOADED = "Downloaded"
    DOWNLOAD_FAILED = "DownloadFailed"
    # the plan against the running engine
    AS_PLANNED = "AsPlanned"
    DIFFERS_FROM_PLAN = "DiffersFromPlan"
    NO_CHAT_TEMPLATE = "NoChatTemplate"
    # a group's way up and down
    STARTING = "Starting"
    GROUPS_READY = "GroupsReady"
    SCALED_TO_ZERO = "ScaledToZero"
    PAUSED = "Paused"
    ROLLING_OUT = "RollingOut"
    SCALING_DOWN = "ScalingDown"
    DRAINING = "Draining"
    FORMING = "Forming"
    IMAGES_DIFFER = "ImagesDiffer"
    GROUP_READY = "GroupReady"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    BACKING_OFF = "BackingOff"
    GROUP_DEGRADED = "GroupDegraded"
    RESTART_LIMIT = "RestartLimit"
    # failures of a member
    MEMBER_LOST = "MemberLost"
    CONTAINER_RESTARTED = "ContainerRestarted"
    OUT_OF_MEMORY = "OutOfMemory"
    EVICTED = "Evicted"
    PREEMPTED = "Preempted"
    IMAGE_PULL = "ImagePull"
    SECRET_MISSING = "SecretMissing"  # noqa: S105 - a reason, not a secret
    CONFIG_REJECTED = "ConfigRejected"
    NODE_LOST = "NodeLost"
    # what the launcher in the pod, or the download, says in its termination message
    ACCESS_DENIED = "AccessDenied"
    MODEL_NOT_FOUND = "ModelNotFound"
    GPU_LOST = "GpuLost"
    RENDEZVOUS_TIMEOUT = "RendezvousTimeout"
    STARTUP_TIMEOUT = "StartupTimeout"
    PEER_LOST = "PeerLost"
    ENGINE_STALLED = "EngineStalled"
    UNKNOWN = "Unknown"


class GroupPhase(StrEnum):
    """Where a group stands."""

    PENDING = "Pending"
    STARTING = "Starting"
    FORMING = "Forming"
    READY = "Ready"
    DEGRADED = "Degraded"
    RESTARTING = "Restarting"
    FAILED = "Failed"
    TERMINATING = "Terminating"


MINIMUM_KUBERNETES = (1, 32)
"""Oldest Kubernetes (major, minor) on which everything in use is generally available: the pod-index label
since 1.32 (feature PodIndexLabel), ``ordinals.start`` and ``unhealthyPodEvictionPolicy`` since 1.31, CEL
rules in CRDs since 1.29 (kubernetes/pkg/features/kube_features.go). Before that each hangs on a gate."""
