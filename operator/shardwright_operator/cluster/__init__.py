"""The API server as the rest of the operator sees it: a small protocol of plain dicts and typed errors.

Nothing above this package knows which client library does the work, so that tests use a fake and the choice
stays reversible. Typed models are not used: importing them all takes seconds and tens of megabytes, and a
read through them drops fields that this release of the library does not know.
"""

from shardwright_operator.cluster.errors import (
    AlreadyExistsError,
    ClusterError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from shardwright_operator.cluster.kinds import KINDS, Kind, kind_named
from shardwright_operator.cluster.protocol import Cluster, Manifest, Page

__all__ = [
    "KINDS",
    "AlreadyExistsError",
    "Cluster",
    "ClusterError",
    "ConflictError",
    "ForbiddenError",
    "InvalidError",
    "Kind",
    "Manifest",
    "NotFoundError",
    "Page",
    "UnavailableError",
    "kind_named",
]
