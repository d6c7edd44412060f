"""Certificates by which a node's programs are known to the API server, and their kubeconfigs."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

from control_plane.credentials import Credentials, write_kubeconfig

VALID_DAYS = "30"
SERVER_NAME = "kubernetes"
"""In the API server's certificate, which knows nothing of the address at which nodes reach it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """The control plane's certificate authority, and where its API server is for nodes."""

    certificate: Path
    key: Path
    server: str

    def kubeconfig(self, folder: Path, *, user: str, group: str) -> Path:
        """A kubeconfig in ``folder`` whose certificate names this user and group."""
        folder.mkdir(parents=True, exist_ok=True)
        name = user.replace(":", "-")
        key, request, certificate = (folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(key))
        subject = f"/O={group}/CN={user}"
        _openssl("req", "-new", "-key", str(key), "-subj", subject, "-out", str(request))
        signer = ("-CA", str(self.certificate), "-CAkey", str(self.key), "-CAcreateserial")
        signing = ("x509", "-req", "-in", str(request), *signer, "-days", VALID_DAYS)
        _openssl(*signing, "-out", str(certificate))
        credentials = Credentials(
            server=self.server,
            authority=self.certificate.read_bytes(),
            certificate=certificate.read_bytes(),
            key=key.read_bytes(),
        )
        path = write_kubeconfig(folder / f"{name}.kubeconfig", credentials, user=user)
        content = yaml.safe_load(path.read_text())
        content["clusters"][0]["cluster"]["tls-server-name"] = SERVER_NAME
        path.write_text(yaml.safe_dump(content))
        return path


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
