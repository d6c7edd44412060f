"""A cluster to test against: the local control plane, or any other that a person names.

Tests see only this: an administrator's kubeconfig, kubectl and a client. What a given cluster cannot have
(simulated faults, an audit log in a file) is visible as a value, so that a test can ask for it.
"""

import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from control_plane.client import Client, Json
from control_plane.credentials import Credentials, read_kubeconfig, write_kubeconfig

GIVEN_KUBECONFIG = "SHARDWRIGHT_TEST_KUBECONFIG"
"""Environment variable that points the tests and the demo at another cluster."""

GIVEN_HAS_KWOK = "SHARDWRIGHT_TEST_KWOK"
"""Set to 1 when kwok runs in that cluster with the stages of this folder (kind.yaml says how)."""


class CommandError(RuntimeError):
    """kubectl or helm ended with another code than 0; the message is what it wrote to stderr."""

    def __init__(self, command: Sequence[str], code: int, stdout: str, stderr: str) -> None:
        super().__init__(f"{' '.join(command)} ended with {code}: {stderr.strip() or stdout.strip()}")
        self.code = code
        self.stdout = stdout
        self.stderr = stderr


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """An API server and the tools to talk to it as its administrator."""

    kubeconfig: Path
    credentials: Credentials
    kubectl_path: Path
    helm_path: Path | None
    folder: Path
    """Where kubeconfigs of further identities are written."""
    audit_log: Path | None = None
    """The API server's audit log, one JSON event a line; None when it cannot be read here."""
    simulated: bool = False
    """Nodes and pods are kwok's: GPUs cost nothing and faults can be played, but no container runs."""

    @classmethod
    def given(cls, kubeconfig: Path, folder: Path) -> Self:
        """Use a cluster that exists already, with the kubectl and helm on PATH.

        A local control plane that was kept is recognised by the audit log beside its kubeconfig.
        """
        kubectl, helm = shutil.which("kubectl"), shutil.which("helm")
        if kubectl is None:
            raise FileNotFoundError(f"kubectl is not on PATH; a cluster given by {GIVEN_KUBECONFIG} needs it")
        audit_log = kubeconfig.parent / "audit.log"
        return cls(
            kubeconfig=kubeconfig,
            credentials=read_kubeconfig(kubeconfig),
            kubectl_path=Path(kubectl),
            helm_path=Path(helm) if helm else None,
            folder=folder,
            audit_log=audit_log if audit_log.exists() else None,
            simulated=audit_log.exists() or os.environ.get(GIVEN_HAS_KWOK) == "1",
        )

    def client(self, token: str | None = None) -> Client:
        """Return a client as the administrator, or as the owner of a token."""
        return Client(self.credentials if token is None else self.credentials.with_token(token))

    def kubeconfig_for(self, token: str, *, user: str = "token", namespace: str = "default") -> Path:
        """Write a kubeconfig for the owner of a token and return its path."""
        path = self.folder / f"{user}-{uuid.uuid4().hex[:8]}.kubeconfig"
        return write_kubeconfig(path, self.credentials.with_token(token), user=user, namespace=namespace)

    def kubectl(
        self,
        *arguments: str,
        stdin: str | None = None,
        kubeconfig: Path | None = None,
        timeout_s: float = 60.0,
    ) -> str:
        """Run kubectl and return its output. Raises CommandError with what it wrote to stderr."""
        return self._run(self.kubectl_path, arguments, stdin, kubeconfig, timeout_s)

    def helm(
        self,
        *arguments: str,
        stdin: str | None = None,
        kubeconfig: Path | None = None,
        timeout_s: float = 120.0,
    ) -> str:
        """Run helm as ``kubectl`` runs kubectl."""
        if self.helm_path is None:
            raise FileNotFoundError("helm is not on PATH")
        return self._run(self.helm_path, arguments, stdin, kubeconfig, timeout_s)

    def account_kubeconfig(self, namespace: str, account: str, *, lifetime_s: int = 86400) -> Path:
        """Write a kubeconfig that acts with exactly the rights of a ServiceAccount."""
        token = self.account_token(namespace, account, lifetime_s=lifetime_s)
        return self.kubeconfig_for(token, user=account, namespace=namespace)

    def account_token(self, namespace: str, account: str, *, lifetime_s: int = 86400) -> str:
        """Request a token of a ServiceAccount through its ``token`` subresource."""
        request: Json = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime_s},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        client = self.client()
        try:
            return str(client.request("POST", path, body=request)["status"]["token"])
        finally:
            client.close()

    def _run(
        self,
        program: Path,
        arguments: Sequence[str],
        stdin: str | None,
        kubeconfig: Path | None,
        timeout_s: float,
    ) -> str:
        # A person's own KUBECONFIG must never be what a test writes to, hence the variable and not a flag
        # that one call may forget; HOME keeps the discovery cache of other clusters out.
        env = os.environ | {"KUBECONFIG": str(kubeconfig or self.kubeconfig), "HOME": str(self.folder)}
        done = subprocess.run(
            [str(program), *arguments],
            input="" if stdin is None else stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
            env=env,
        )
        if done.returncode != 0:
            raise CommandError([program.name, *arguments], done.returncode, done.stdout, done.stderr)
        return done.stdout
