"""How to reach the API server: from a kubeconfig file, or from inside a pod.

Both the operator's own requests and kopf's watches take their credentials from here, so that they can never
talk to two different clusters. A token from a pod's projected volume is read again when it has been rotated.
"""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.request import getproxies_environment

import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config
from kubernetes.aio.config.kube_config import KubeConfigLoader

POOL_SIZE = 64

DEFAULT_NAMESPACE = "default"

_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


_MALFORMED = (
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
    yaml.YAMLError,
)
"""What the client raises for a file that is empty, no YAML or no kubeconfig, and for certificates that are
none: it checks next to nothing, and a person met 40 lines of traceback."""


class NoClusterError(Exception):
    """No usable description of a cluster was found."""


@dataclass(slots=True, kw_only=True)
class Connection:
    """A loaded configuration and, for a kubeconfig, what renews its token."""

    configuration: Configuration
    loader: KubeConfigLoader | None = None

    @property
    def server(self) -> str:
        """Base URL of the API server."""
        return self.configuration.host

    @property
    def namespace(self) -> str:
        """The namespace that kubectl would take: of the kubeconfig's context, or the pod's own."""
        if self.loader is not None:
            context = self.loader.current_context.get("context") or {}
            return str(context.get("namespace") or DEFAULT_NAMESPACE)
        try:
            return _ACCOUNT_NAMESPACE.read_text().strip()
        except OSError:
            return DEFAULT_NAMESPACE

    async def authorization(self) -> str | None:
        """Value of the Authorization header now; None when a client certificate says who we are."""
        settings = await self.configuration.auth_settings()
        bearer = settings.get("BearerToken")
        value = bearer.get("value") if bearer else None
        return value if isinstance(value, str) else None

    async def renew(self) -> None:
        """Read the token or run the credential plugin again, after a 401."""
        if self.loader is not None:
            await self.loader.load_and_set(self.configuration)  # type: ignore[no-untyped-call]

    def ssl_context(self) -> ssl.SSLContext | None:
        """For kopf's session; None for plain HTTP."""
        if not self.server.startswith("https"):
            return None
        configuration = self.configuration
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


async def connect(kubeconfig: str | None = None) -> Connection:
    """Configuration of a kubeconfig file if one is named or ``KUBECONFIG`` is set; else that of the pod.

    Outside of a pod the file in the home directory is tried last, as kubectl does.
    """
    configuration = Configuration()
    configuration.connection_pool_maxsize = POOL_SIZE
    # The client would look into the proxy variables and ~/.netrc at every request; that takes a good part of
    # a request's CPU, so it is asked for only where a proxy is configured.
    configuration.client_session_kwargs = {"trust_env": bool(getproxies_environment())}
    path = _kubeconfig_path(kubeconfig)
    try:
        if path is None:
            load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
            return Connection(configuration=configuration)
        loader = await load_kube_config(  # type: ignore[no-untyped-call]
            config_file=path, client_configuration=configuration, persist_config=False
        )
        connection = Connection(configuration=configuration, loader=loader)
        connection.ssl_context()
    except ConfigException as error:
        raise NoClusterError(f"the cluster's configuration cannot be used: {error}") from error
    except _MALFORMED as error:
        why = " ".join(str(error).split())
        raise NoClusterError(
            f"the kubeconfig {path} cannot be used: {type(error).__name__}: {why}"
        ) from error
    if not connection.server.startswith(("http://", "https://")):
        raise NoClusterError(f"the kubeconfig {path} has no address of a server: {connection.server!r}")
    return connection


def _kubeconfig_path(named: str | None) -> str | None:
    """The file, or several joined as in ``KUBECONFIG``; None when the pod's own account is to be used."""
    path = named or os.environ.get("KUBECONFIG")
    if not path:
        if os.environ.get(_IN_CLUSTER):
            return None
        path = str(Path.home() / ".kube" / "config")
    if not any(Path(part).expanduser().is_file() for part in path.split(os.pathsep)):
        raise NoClusterError(
            f"no kubeconfig at {path}; give --kubeconfig, set KUBECONFIG, or run inside a pod"
        )
    return path
