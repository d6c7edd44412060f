"""Settings of the operator's process: from the command line, else from the environment, else the default.

No client library is imported here, so that the command line's help costs nothing.
"""

import argparse
import os
from collections.abc import Mapping
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shardwright_operator.api.engine_image import DEFAULT_IMAGE
from shardwright_operator.api.gang import Gang
from shardwright_operator.build.template import USER_ID

ENVIRONMENT_PREFIX = "SHARDWRIGHT_"


class LogFormat(StrEnum):
    """How log lines look."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """From which level on lines are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def installed_version() -> str:
    """Version of the installed distribution."""
    try:
        return version("shardwright")
    except PackageNotFoundError:
        return "0.0.0"


Port = Annotated[int, Field(ge=0, le=65535)]


class Settings(BaseModel):
    """Everything that a deployment may choose. Each field is a flag and an environment variable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kubeconfig: str | None = Field(
        None, description="kubeconfig file; default: KUBECONFIG, else the pod's account"
    )
    namespaces: tuple[Annotated[str, Field(min_length=1, max_length=63)], ...] = Field(
        (), description="namespaces to serve, comma separated; default: the whole cluster, with its nodes"
    )
    gangs: tuple[Gang, ...] = Field(
        (),
        description="gang schedulers that resources may ask for, comma separated: Kubernetes, Volcano, "
        "Kueue; each needs rights that the chart grants with the same switch",
    )
    workers: int = Field(16, ge=1, le=256, description="reconciles that run at the same time")
    resync_interval_s: float = Field(
        300.0, ge=1, description="seconds between live lists that repair lost events"
    )
    measure_interval_s: float = Field(
        60.0,
        ge=0,
        description="seconds between looks at an engine's metrics and a download's progress; 0 never looks",
    )
    leader_election: bool = Field(True, description="take a Lease before doing anything")
    lease_name: str = Field("shardwright-operator", min_length=1, description="name of the Lease")
    lease_namespace: str = Field(
        "", description="namespace of the Lease; default: POD_NAMESPACE, else default"
    )
    lease_duration_s: float = Field(15.0, gt=0, description="seconds after which a silent leader is replaced")
    lease_renew_deadline_s: float = Field(
        10.0, gt=0, description="seconds after which a leader gives up renewing"
    )
    lease_retry_s: float = Field(2.0, gt=0, description="seconds between attempts to take or renew the Lease")
    identity: str = Field(
        "", description="holder's name in the Lease; default: POD_NAME, else host and a random part"
    )
    health_host: str = Field("0.0.0.0", description="address of the health and metrics ports")  # noqa: S104
    health_port: Port = Field(8080, description="port of /healthz and /readyz; 0 picks a free one")
    metrics_port: Port = Field(
        9090, description="port of /metrics; the health port's number serves both on one"
    )
    log_format: LogFormat = Field(LogFormat.JSON, description="json or text")
    log_level: LogLevel = Field(LogLevel.INFO, description="debug, info, warning or error")
    default_image: str = Field(
        DEFAULT_IMAGE,
        min_length=1,
        max_length=512,
        description="engine image of resources that name none",
    )
    check_image: str = Field(
        "",
        max_length=512,
        description="small image with the program 'true', for the pod that shows whether a model's Secrets "
        "and ConfigMaps are there before its first group takes GPUs; default: nobody looks",
    )
    engine_user: Annotated[int, Field(ge=1, le=2**31 - 1)] | Literal["namespace"] = Field(
        USER_ID,
        description="user and group id of the engines; 'namespace' leaves both to the cluster (OpenShift)",
    )
    ipv6: bool = Field(
        default_factory=lambda: ":" in os.environ.get("KUBERNETES_SERVICE_HOST", ""),
        description="pods have IPv6 addresses; default: whether the cluster's own Service has one",
    )
    operator_version: str = Field(
        default_factory=installed_version,
        min_length=1,
        max_length=63,
        description="version written into revisions",
    )

    @property
    def user_id(self) -> int | None:
        """User and group id of the engines; None leaves both to the cluster."""
        return None if self.engine_user == "namespace" else self.engine_user

    @property
    def cluster_wide(self) -> bool:
        """Whether all namespaces and the nodes are served."""
        return not self.namespaces


class SettingsError(ValueError):
    """A flag or variable has a value that cannot be used; the text names it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting; none has a default there, so that the environment can speak."""
    for name, field in Settings.model_fields.items():
        flag = "--" + name.removesuffix("_s").replace("_", "-")
        text = f"{field.description} [{_variable(name)}]"
        if field.annotation is bool:
            parser.add_argument(
                flag, dest=name, action=argparse.BooleanOptionalAction, default=None, help=text
            )
        else:
            parser.add_argument(flag, dest=name, default=None, help=text)


def settings_from(arguments: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from parsed arguments (those that are None do not count) and environment variables."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for name in Settings.model_fields:
        given = arguments.get(name)
        value = environment.get(_variable(name)) if given is None else given
        if value is None or value == "":
            continue
        if name in {"namespaces", "gangs"} and isinstance(value, str):
            value = tuple(part.strip() for part in value.split(",") if part.strip())
        values[name] = value
    values.setdefault("lease_namespace", environment.get("POD_NAMESPACE") or "default")
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        flag = "--" + name.removesuffix("_s").replace("_", "-")
        raise SettingsError(
            f"{flag} (or {_variable(name)}): {first['msg']}, got {first['input']!r}"
        ) from error


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.removesuffix("_s").upper()
