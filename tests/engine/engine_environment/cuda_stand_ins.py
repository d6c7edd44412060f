"""Stand-ins for the CUDA libraries that torch's wheel is linked against.

The package index has torch only with CUDA, whose libraries are 2.8 GB that never run on a machine without a
GPU: torch merely has to be loaded. A stand-in has the name that the loader looks for and every function that
torch refers to; calling one ends the process. The CUDA runtime itself is small and really called (how many
GPUs are there?), so that it stays real.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

REAL = ("libcudart.so", "libcupti.so", "libcufile.so")
"""Installed as packages; the others are stood in for."""
DRIVER = "libcuda.so"
"""Comes with the driver; torch looks for it when a GPU is first used."""

_CUDA_LIBRARY = re.compile(r"^lib(cu|nv|nccl)\w*\.so")
_CUDA_FUNCTION = re.compile(r"^(cublas|cudnn|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvshmem)\w+$")


def tools_are_there() -> bool:
    """Whether the compiler and the tools that read libraries are on this machine."""
    return all(shutil.which(tool) for tool in ("gcc", "nm", "objdump"))


def write_stand_ins(packages: Path, scratch: Path) -> int:
    """Write the stand-ins into ``packages`` (a site-packages folder); how many there are now.

    Raises:
        subprocess.CalledProcessError: a tool failed.
    """
    libraries = sorted((packages / "torch" / "lib").glob("*.so*"))
    headers = "".join(_output("objdump", "-p", library) for library in libraries)
    names = {name for name in re.findall(r"NEEDED\s+(\S+)", headers) if _CUDA_LIBRARY.match(name)}
    names = {name for name in names if not name.startswith((*REAL, DRIVER))}
    owners = _owners(headers)
    functions = {function for library in libraries for function in _undefined(library)}
    # Torch's libraries look here, beside themselves in the tree of packages (their RPATH).
    target = packages / "nvidia" / "cu13" / "lib"
    target.mkdir(parents=True, exist_ok=True)
    unversioned = min(names)  # these are found in whichever library of the process has them
    for name in names:
        chosen = [f for f in functions if owners.get(f[1], unversioned) == name]
        _compile(target / name, sorted(chosen), scratch)
    return len(names)


def _owners(headers: str) -> dict[str, str]:
    """The library that each symbol version is required from."""
    owners = {}
    library = ""
    for line in headers.splitlines():
        if found := re.match(r"\s+required from (\S+):", line):
            library = found[1]
        elif found := re.match(r"\s+0x[0-9a-f]+ 0x[0-9a-f]+ \d+ (\S+)", line):
            owners[found[1]] = library
    return owners


def _compile(path: Path, functions: Sequence[tuple[str, str]], scratch: Path) -> None:
    source, versions = scratch / "stand_in.c", scratch / "stand_in.map"
    source.write_text("".join(f"void {name}(void) {{ __builtin_trap(); }}\n" for name, _ in functions))
    # The loader aborts where a symbol is asked for with a version and the library has none.
    script = ""
    for version in sorted({version for _, version in functions if version}):
        members = " ".join(f"{name};" for name, own in functions if own == version)
        script += f'"{version}" {{ global: {members} }};\n'
    versions.write_text(script)
    options = [f"-Wl,-soname,{path.name}", *([f"-Wl,--version-script={versions}"] if script else [])]
    command = ["gcc", "-shared", "-w", "-nostdlib", *options, "-o", str(path), str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


def _undefined(library: Path) -> Iterator[tuple[str, str]]:
    """(name, version or empty) of every CUDA function that a library refers to."""
    for line in _output("nm", "-D", "--undefined-only", library).splitlines():
        name, _, version = line.split()[-1].partition("@")
        if _CUDA_FUNCTION.match(name):
            yield name, version.lstrip("@")


def _output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
