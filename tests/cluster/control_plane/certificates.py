"""Keys and certificates of one control plane.

The API server could sign its own certificate, but that one has no authority key identifier, which Python 3.13
and newer refuse by default, and it gives a kubelet nothing to be verified by. So each control plane gets a
certificate authority of its own, made by openssl in a few milliseconds and thrown away with the folder.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

VALID_DAYS = "30"
"""A kept cluster should outlive a fortnight's work; the authority guards nothing but a loopback port."""

SERVER_EXTENSIONS = """\
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""

SERVER_NAMES = (
    "IP:127.0.0.1",
    "IP:{service_address}",
    "DNS:localhost",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
)


class CertificateError(RuntimeError):
    """openssl is missing or refused a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Files of the certificate authority, the API server and the service-account signer."""

    authority: Path
    authority_key: Path
    server: Path
    server_key: Path
    account_key: Path
    account_public_key: Path


def make_certificates(folder: Path, *, service_address: str = "10.96.0.1") -> Certificates:
    """Make all keys in ``folder``; ``service_address`` is the cluster IP of the ``kubernetes`` Service."""
    folder.mkdir(parents=True, mode=0o700)
    made = Certificates(
        authority=folder / "ca.crt",
        authority_key=folder / "ca.key",
        server=folder / "server.crt",
        server_key=folder / "server.key",
        account_key=folder / "accounts.key",
        account_public_key=folder / "accounts.pub",
    )
    for key in (made.authority_key, made.server_key, made.account_key):
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", str(key))
    authority = ("-x509", "-key", str(made.authority_key), "-subj", "/CN=shardwright-test-authority")
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature")
    _openssl("req", *authority, *usage, "-days", VALID_DAYS, "-out", str(made.authority))

    request, extensions = folder / "server.csr", folder / "server.ext"
    names = ",".join(SERVER_NAMES).format(service_address=service_address)
    extensions.write_text(SERVER_EXTENSIONS.format(names=names))
    _openssl("req", "-new", "-key", str(made.server_key), "-subj", "/CN=kube-apiserver", "-out", str(request))
    signer = ("-CA", str(made.authority), "-CAkey", str(made.authority_key), "-CAcreateserial")
    signing = ("x509", "-req", "-in", str(request), *signer, "-days", VALID_DAYS)
    _openssl(*signing, "-extfile", str(extensions), "-out", str(made.server))
    _openssl("pkey", "-in", str(made.account_key), "-pubout", "-out", str(made.account_public_key))
    return made


def _openssl(*arguments: str) -> None:
    try:
        done = subprocess.run(
            ["openssl", *arguments], capture_output=True, text=True, check=False, timeout=60
        )
    except FileNotFoundError:
        raise CertificateError("openssl is not on PATH; it makes the local cluster's certificates") from None
    if done.returncode != 0:
        raise CertificateError(f"openssl {arguments[0]} failed: {done.stderr.strip()[-500:]}")
