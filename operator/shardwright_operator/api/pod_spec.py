"""``spec.network``, ``spec.storage`` and ``spec.scheduling``: what the pods need around them."""

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from shardwright_operator.api.constants import GPU_RESOURCE
from shardwright_operator.api.errors import Described, SpecError
from shardwright_operator.api.fields import (
    INTERFACE_PATTERN,
    OBJECT_NAME_PATTERN,
    PATH_PATTERN,
    ApiRecord,
    Flag,
    Int,
    LabelKey,
    LabelValue,
    ObjectName,
    VolumeSize,
    rule,
    rules,
)
from shardwright_operator.api.gang import Gang


class NetworkProfile(StrEnum):
    """How the ranks of a group reach each other over nodes."""

    AUTO = "auto"
    TCP = "tcp"
    ROCE = "roce"
    INFINIBAND = "infiniband"
    EFA = "efa"
    CUSTOM = "custom"


class LabelSelector(ApiRecord):
    """Objects that carry all of these labels; all objects when there are none."""

    match_labels: Annotated[dict[str, LabelValue], Field(max_length=16)] | None = Field(
        default=None, description="Labels that the object must have."
    )


class Client(ApiRecord):
    """Pods that may reach the API port."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.namespaceSelector) || has(self.podSelector)",
                "give namespaceSelector, podSelector or both",
            )
        )
    )

    namespace_selector: LabelSelector | None = Field(
        default=None, description="Namespaces of the clients; the resource's own when absent."
    )
    pod_selector: LabelSelector | None = Field(
        default=None, description="Pods in these namespaces; all of them when absent."
    )

    @model_validator(mode="after")
    def _says_who(self) -> "Client":
        if self.namespace_selector is None and self.pod_selector is None:
            raise SpecError(
                field="",
                value=Described("empty"),
                limit="a client is chosen by labels",
                remedy="give namespaceSelector, podSelector or both",
            )
        return self


class NetworkSpec(ApiRecord):
    """The network between the members of a group, and who may call the API."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("!has(self.rdmaCount) || has(self.rdmaResource)", "rdmaCount needs rdmaResource"),
            rule(
                f"!has(self.rdmaResource) || (self.rdmaResource.contains('/')"
                f" && self.rdmaResource != '{GPU_RESOURCE}')",
                f"rdmaResource is an extended resource DOMAIN/NAME other than {GPU_RESOURCE}",
            ),
        )
    )

    profile: NetworkProfile | None = Field(
        default=None,
        description="auto (when absent) lets NCCL, and UCX where KV caches are passed on, choose; "
        "tcp keeps both off RDMA devices; roce, infiniband and efa add what these need; custom sets nothing.",
    )
    socket_interface: (
        Annotated[str, Field(min_length=1, max_length=128, pattern=INTERFACE_PATTERN)] | None
    ) = Field(
        default=None, description="Network interface of NCCL and Gloo, such as eth0; found when absent."
    )
    rdma_resource: LabelKey | None = Field(
        default=None, description="Extended resource of the RDMA devices, such as rdma/hca_shared_devices_a."
    )
    rdma_count: Annotated[Int, Field(ge=1, le=64)] | None = Field(
        default=None, description="RDMA devices of each pod; 1 when absent."
    )
    host_network: Flag | None = Field(
        default=None,
        description="Run the pods in the node's network namespace, on ports of the resource's own.",
    )
    node_bandwidth_gbps: Annotated[Int, Field(ge=1, le=12_800)] | None = Field(
        default=None,
        description="Network rate of a node one way in Gbit/s, all NICs together; used by predictions.",
    )
    clients: Annotated[tuple[Client, ...], Field(max_length=16)] | None = Field(
        default=None, description="Who may reach the API port; everybody when absent."
    )

    @model_validator(mode="after")
    def _resource_of_devices(self) -> "NetworkSpec":
        # As a resource of the pod it would take the place of the planned GPUs, or of the CPU and memory.
        resource = self.rdma_resource
        if resource is not None and ("/" not in resource or resource == GPU_RESOURCE):
            raise SpecError(
                field="rdmaResource",
                value=resource,
                limit=f"it is an extended resource DOMAIN/NAME other than {GPU_RESOURCE}",
                remedy="name the resource of the RDMA devices, such as rdma/hca_shared_devices_a",
            )
        return self

    @model_validator(mode="after")
    def _count_of_something(self) -> "NetworkSpec":
        if self.rdma_count is not None and self.rdma_resource is None:
            raise SpecError(
                field="rdmaCount",
                value=self.rdma_count,
                limit="rdmaResource is not given",
                remedy="name the extended resource of the RDMA devices, or leave rdmaCount out",
            )
        return self


class ModelCache(ApiRecord):
    """A claim that all pods share. One Job downloads the model to it, and only then do the ranks start."""

    claim_name: ObjectName = Field(
        description="Name of the PersistentVolumeClaim in the resource's namespace; groups of several pods "
        "need access mode ReadWriteMany."
    )
    sub_path: Annotated[str, Field(min_length=1, max_length=512, pattern=PATH_PATTERN)] | None = Field(
        default=None, description="Folder of the volume for models; the whole volume when absent."
    )


class StorageSpec(ApiRecord):
    """Memory-backed and scratch volumes of the pods, and a shared one for the model."""

    shared_memory: VolumeSize | None = Field(
        default=None, description="Size of /dev/shm; planned from the ranks of a pod when absent."
    )
    cache_size: VolumeSize | None = Field(
        default=None,
        description="Size limit of the cache volume for downloads and compiled kernels; none when absent.",
    )
    model_cache: ModelCache | None = Field(
        default=None,
        description="Shared claim to which the model is downloaded once; each pod downloads its own copy "
        "when absent.",
    )


class TolerationOperator(StrEnum):
    """How a toleration compares a taint's value."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What a taint does."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(ApiRecord):
    """A taint that the pods tolerate, as in a pod."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!(has(self.operator) && self.operator == 'Exists' && has(self.value) && self.value != '')",
                "operator Exists takes no value",
            ),
            rule(
                "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
                "without a key the operator must be Exists",
            ),
            rule(
                "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
                "tolerationSeconds needs effect NoExecute",
            ),
        )
    )

    key: LabelKey | None = Field(default=None, description="Key of the taint; every taint when absent.")
    operator: TolerationOperator | None = Field(default=None, description="Equal (when absent) or Exists.")
    value: LabelValue | None = Field(default=None, description="Value of the taint, for operator Equal.")
    effect: TaintEffect | None = Field(
        default=None, description="Effect of the taint; all effects when absent."
    )
    toleration_seconds: Annotated[Int, Field(ge=0, le=604_800)] | None = Field(
        default=None, description="How long a NoExecute taint is tolerated; for ever when absent."
    )

    @model_validator(mode="after")
    def _as_in_a_pod(self) -> "Toleration":
        exists = self.operator is TolerationOperator.EXISTS
        if exists and self.value:
            raise SpecError(
                field="value",
                value=self.value,
                limit="operator Exists takes no value",
                remedy="leave value out",
            )
        if self.key is None and not exists:
            raise SpecError(
                field="key", value=None, limit="operator Equal needs a key", remedy="give the taint's key"
            )
        if self.toleration_seconds is not None and self.effect is not TaintEffect.NO_EXECUTE:
            raise SpecError(
                field="tolerationSeconds",
                value=self.toleration_seconds,
                limit="only NoExecute taints evict after a time",
                remedy="set effect to NoExecute or leave tolerationSeconds out",
            )
        return self


class Admission(StrEnum):
    """What happens to a group that does not fit while other groups wait for the same nodes."""

    HOLD = "Hold"
    CREATE = "Create"


class SchedulingSpec(ApiRecord):
    """Where the pods may run, besides the planned GPU pool, and who places a group as a whole."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.queueName) ? has(self.gang) && self.gang != 'Kubernetes' : "
                "!has(self.gang) || self.gang != 'Kueue'",
                "queueName names a queue of gang Volcano or Kueue, and Kueue needs one",
            ),
            rule(
                "!has(self.gang) || !has(self.admission)",
                "with gang its scheduler decides when a group starts: leave admission out",
            ),
        )
    )

    node_selector: Annotated[dict[str, LabelValue], Field(max_length=32)] | None = Field(
        default=None, description="Labels that a node must have; narrows the GPU pools that are planned with."
    )
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=32)] | None = Field(
        default=None, description="Taints that the pods tolerate besides the GPU taint."
    )
    priority_class_name: ObjectName | None = Field(default=None, description="PriorityClass of the pods.")
    scheduler_name: ObjectName | None = Field(default=None, description="Scheduler of the pods.")
    topology_key: LabelKey | None = Field(
        default=None,
        description="Node label whose value all members of a group must share, such as a rack or block.",
    )
    admission: Admission | None = Field(
        default=None,
        description="Hold (when absent) makes a group's pods only when all of them fit, as long as other "
        "groups wait for the same GPUs; Create makes them at once, for pools that grow with demand.",
    )
    gang: Gang | None = Field(
        default=None,
        description="Who starts all pods of a group together or none: Kubernetes' own scheduler, Volcano or "
        "Kueue. The operator then makes the object that stands for the group, and all pods at once; when "
        "absent, it holds groups back by its own account of free GPUs.",
    )
    queue_name: Annotated[str, Field(min_length=1, max_length=63, pattern=OBJECT_NAME_PATTERN)] | None = (
        Field(
            default=None,
            description="Kueue's LocalQueue, or Volcano's Queue (its default queue when absent).",
        )
    )

    @property
    def holds(self) -> bool:
        """Whether groups that compete for GPUs wait for each other before they are made."""
        return self.admission is not Admission.CREATE and self.gang is None

    @model_validator(mode="after")
    def _queue_of_the_gang(self) -> "SchedulingSpec":
        if self.gang is Gang.KUEUE and self.queue_name is None:
            raise SpecError(
                field="queueName",
                value=None,
                limit="Kueue admits a group through a LocalQueue",
                remedy="give the name of a LocalQueue of the namespace",
            )
        if self.queue_name is not None and self.gang in {None, Gang.KUBERNETES}:
            raise SpecError(
                field="queueName",
                value=self.queue_name,
                limit="only gang Volcano and Kueue have queues",
                remedy="set gang to Volcano or Kueue, or leave queueName out",
            )
        if self.gang is not None and self.admission is not None:
            raise SpecError(
                field="admission",
                value=str(self.admission),
                limit="with gang its scheduler decides when a group starts",
                remedy="leave admission out",
            )
        return self
