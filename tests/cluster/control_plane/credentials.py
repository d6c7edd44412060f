"""Kubeconfig files: written for the local control plane, read from wherever a person points us.

The reader understands what kind, kubeadm and this package write (certificates and tokens, inline or in
files). A kubeconfig that runs a cloud's login program is refused with a way out, as the tests need one
identity that does not change while they run.
"""

import base64
import ssl
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


class KubeconfigError(ValueError):
    """A kubeconfig that cannot be used; the message says what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """One server and one identity, as a kubeconfig's current context names them."""

    server: str
    authority: bytes | None = None
    """PEM of the certificate authority; None trusts the system's."""
    token: str | None = None
    certificate: bytes | None = None
    key: bytes | None = None

    def with_token(self, token: str) -> "Credentials":
        """Return the same server with another identity."""
        return Credentials(server=self.server, authority=self.authority, token=token)

    def at(self, server: str) -> "Credentials":
        """Return the same identity at another server of the same authority."""
        return replace(self, server=server)

    @property
    def host(self) -> str:
        return urlsplit(self.server).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.server).port or 443

    def ssl_context(self) -> ssl.SSLContext:
        """TLS settings that verify the server and present the client certificate, if there is one."""
        cadata = None if self.authority is None else self.authority.decode()
        context = ssl.create_default_context(cadata=cadata)
        if self.certificate is not None and self.key is not None:
            # The ssl module loads a key pair from files only.
            with tempfile.TemporaryDirectory() as folder:
                pair = Path(folder, "client.pem")
                pair.touch(mode=0o600)
                pair.write_bytes(self.certificate + b"\n" + self.key)
                context.load_cert_chain(pair)
        return context


def write_kubeconfig(path: Path, credentials: Credentials, *, user: str, namespace: str = "default") -> Path:
    """Write a kubeconfig of one context, readable by the owner only."""
    cluster: dict[str, str] = {"server": credentials.server}
    if credentials.authority is not None:
        cluster["certificate-authority-data"] = base64.b64encode(credentials.authority).decode()
    identity: dict[str, str] = {}
    if credentials.token is not None:
        identity["token"] = credentials.token
    if credentials.certificate is not None and credentials.key is not None:
        identity["client-certificate-data"] = base64.b64encode(credentials.certificate).decode()
        identity["client-key-data"] = base64.b64encode(credentials.key).decode()
    name = "shardwright-test"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": user, "user": identity}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": namespace}}],
        "current-context": name,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def read_kubeconfig(path: Path) -> Credentials:
    """Read the current context. Raises KubeconfigError for what cannot be used."""
    config: dict[str, Any] = yaml.safe_load(path.read_text()) or {}
    context = _named(config, "contexts", config.get("current-context"), path)["context"]
    cluster = _named(config, "clusters", context.get("cluster"), path)["cluster"]
    user = _named(config, "users", context.get("user"), path)["user"] or {}
    if "exec" in user or "auth-provider" in user:
        raise KubeconfigError(
            f"{path}: user {context.get('user')!r} logs in by a program; give a kubeconfig with a token or a"
            " client certificate, for example of a ServiceAccount with cluster-admin"
        )
    folder = path.parent
    token_file = user.get("tokenFile")
    return Credentials(
        server=cluster["server"],
        authority=_material(cluster, "certificate-authority", folder),
        token=user.get("token") or (token_file and (folder / token_file).read_text().strip()),
        certificate=_material(user, "client-certificate", folder),
        key=_material(user, "client-key", folder),
    )


def _named(config: dict[str, Any], section: str, name: object, path: Path) -> dict[str, Any]:
    for entry in config.get(section) or ():
        if entry.get("name") == name:
            return dict(entry)
    raise KubeconfigError(f"{path}: no entry {name!r} under {section}")


def _material(section: dict[str, Any], key: str, folder: Path) -> bytes | None:
    inline = section.get(f"{key}-data")
    if inline is not None:
        return base64.b64decode(inline)
    name = section.get(key)
    return None if name is None else (folder / name).read_bytes()
