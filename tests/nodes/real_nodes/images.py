"""Images without a registry and without files: a name, an environment, an entry point and empty folders.

The programs come from this machine, mounted read-only into every container. So a pod that the operator wrote
runs unchanged, under the image name that it would have in production.
"""

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

FOLDERS = ("dev", "etc", "opt", "proc", "run", "sys", "tmp", "usr", "var/tmp")
LINKS = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PAUSE = "shardwright.test/pause:1"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_STICKY = 0o1777


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What an image says, beside what this machine's folders hold."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    entry_point: tuple[str, ...] = ()
    programs: Mapping[str, bytes] = field(default_factory=dict)
    """Executable files by path."""

    def reference(self) -> str:
        """Name in full, as a container runtime knows it."""
        first, _, rest = self.name.partition("/")
        if rest and ("." in first or ":" in first):
            return self.name
        return f"docker.io/{self.name}" if rest else f"docker.io/library/{self.name}"


def write_archive(image: Image, path: Path) -> Path:
    """Write an archive as ``docker save`` does, which containerd imports."""
    layer = _layer(image)
    digest = hashlib.sha256(layer).hexdigest()
    environment = {"PATH": SYSTEM_PATH} | dict(image.environment)
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Env": [f"{name}={value}" for name, value in environment.items()],
            "Entrypoint": list(image.entry_point) or None,
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    described = json.dumps(config, sort_keys=True).encode()
    config_name = f"{hashlib.sha256(described).hexdigest()}.json"
    layer_name = f"{digest}/layer.tar"
    entry = {"Config": config_name, "RepoTags": [image.reference()], "Layers": [layer_name]}
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        _add_file(archive, config_name, described)
        _add_file(archive, layer_name, layer)
        _add_file(archive, "manifest.json", json.dumps([entry]).encode())
    return path


def _layer(image: Image) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as layer:
        made: set[str] = set()
        for folder in FOLDERS:
            _add_folder(layer, folder, made)
        for name, target in LINKS.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            layer.addfile(link)
        for name, text in FILES.items():
            _add_file(layer, name, text.encode())
        for program, content in image.programs.items():
            relative = program.lstrip("/")
            _add_folder(layer, str(Path(relative).parent), made)
            _add_file(layer, relative, content, mode=0o755)
    return buffer.getvalue()


def _add_folder(layer: tarfile.TarFile, path: str, made: set[str]) -> None:
    for name in (*reversed([str(parent) for parent in Path(path).parents]), path):
        if name == "." or name in made:
            continue
        folder = tarfile.TarInfo(name)
        folder.type = tarfile.DIRTYPE
        folder.mode = _STICKY if name.endswith("tmp") else 0o755
        layer.addfile(folder)
        made.add(name)


def _add_file(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    file = tarfile.TarInfo(name)
    file.size, file.mode = len(content), mode
    archive.addfile(file, io.BytesIO(content))
