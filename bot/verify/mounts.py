"""What a sandbox sees: an allow-list of read-only mounts, an environment, limits, a command line. Starts nothing."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from bot.verify.packages import entries, places, site_packages
from bot.verify.protocol import MODULES


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes and counts for one sandbox; 0 means none. Address space is limited on the CPU only: CUDA maps terabytes."""

    address_space: int = 12 << 30
    resident: int = 6 << 30
    processes: int = 256
    files: int = 512
    file_size: int = 256 << 20
    tmp: int = 256 << 20
    shm: int = 256 << 20


GPU_LIMITS = Limits(
    address_space=0, resident=24 << 30, processes=1024, files=1024, file_size=1 << 30, tmp=2 << 30, shm=256 << 20
)
"""CUDA maps terabytes of addresses; compilers use threads, and keep what they make in /tmp."""


@dataclass(frozen=True, slots=True)
class GpuAccess:
    """What of a GPU a sandbox can see: the device's nodes, the folder that holds the driver's libraries, for a kernel
    of ours alone a folder in which compilers keep what they made (a library that tunes itself takes minutes), and,
    where a kernel is watched and not examined, the folder of compute-sanitizer.
    """

    uuid: str
    nodes: tuple[str, ...]
    driver: str
    cache: str | None = None
    sanitizer: str | None = None


def _import_paths() -> list[Path]:
    """Where packages are found. CuTe-DSL is reached through a .pth file, which Python does not read under -S."""
    site = site_packages()
    return [site, *(p for p in (site / "nvidia_cutlass_dsl" / "dsl_packages",) if p.is_dir())]


def root_of_ours() -> Path:
    """The folder that holds `bot/`."""
    return Path(__file__).resolve().parents[2]


_CACHE = "/cache"
SANITIZER = "/sanitizer"
_EMPTY_BYTES = "262144"
"""What a folder that only holds mounts may take."""
_COMPILER = ("/usr/bin", "/usr/libexec", "/usr/include", "/etc/alternatives")
"""Triton builds a launcher for each kernel with the system's C compiler."""


def mounts_of(
    gpu: GpuAccess | None, modules: tuple[str, ...] = MODULES, packages: frozenset[str] = frozenset()
) -> list[tuple[str, str]]:
    """The allow-list in its order, (source, destination): Python, the system's libraries, for a GPU its driver and a C
    compiler; then nothing (an empty source) where packages would be, those that may be seen, and the worker's modules.
    """
    prefix = Path(sys.base_prefix)
    seen = [Path("/usr/lib"), Path("/usr/lib64"), Path("/etc/ld.so.cache")]
    if prefix == Path("/usr"):
        seen.append(Path(os.path.realpath(sys.executable)))
    else:
        seen.append(prefix)
    seen += [p for p in (Path("/lib"), Path("/lib64")) if p.is_dir() and not p.is_symlink()]
    if gpu is not None:
        seen += [p for p in (Path(gpu.driver), *map(Path, _COMPILER)) if not any(p.is_relative_to(q) for q in seen)]
    cache = [(gpu.cache, _CACHE)] if gpu is not None and gpu.cache is not None else []
    mounts = [(str(p), str(p)) for p in seen if p.exists()] + cache
    mounts += [("", str(place)) for place in places()]
    mounts += [(str(entry), str(entry)) for entry in entries(packages)]
    mounts += [(gpu.sanitizer, SANITIZER)] if gpu is not None and gpu.sanitizer is not None else []
    return mounts + [(str(root_of_ours() / module), f"/proctor/{module}") for module in modules]


def environment(gpu: GpuAccess | None) -> dict[str, str]:
    """All that a worker finds in its environment. Compilers keep what they make in the sandbox's own /tmp."""
    found = {"HOME": "/tmp", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin"}  # noqa: S108 - a tmpfs of the sandbox
    if gpu is not None:
        found |= {
            # Caches are named after whoever runs, and this uid has no name.
            "USER": "worker",
            "CC": "/usr/bin/gcc",
            "CUDA_VISIBLE_DEVICES": gpu.uuid,
            "LD_LIBRARY_PATH": gpu.driver,
            "TRITON_LIBCUDA_PATH": gpu.driver,
        }
        if gpu.cache is not None:
            found |= {
                "TRITON_CACHE_DIR": f"{_CACHE}/triton",
                "TRITON_CACHE_AUTOTUNING": "1",
                "TORCHINDUCTOR_CACHE_DIR": f"{_CACHE}/inductor",
            }
    return found


def bwrap_arguments(
    bwrap: str, mounts: list[tuple[str, str]], limits: Limits, seccomp: int, gpu: GpuAccess | None
) -> list[str]:
    """Bubblewrap's command line up to the program. `STAGED:n`: where the stopper binds the nth mount; `seccomp`:
    the descriptor of the filter."""
    arguments = [
        *(bwrap, "--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--new-session"),
        *("--die-with-parent", "--clearenv", "--seccomp", str(seccomp), "--proc", "/proc", "--dev", "/dev"),
        *("--size", str(limits.shm), "--tmpfs", "/dev/shm", "--size", str(limits.tmp), "--tmpfs", "/tmp"),  # noqa: S108
        # Without root the stopper's user namespace calls us 0; no program inside is to believe that it is root.
        *([] if os.geteuid() == 0 else ["--uid", str(os.geteuid()), "--gid", str(os.getegid())]),
        *(word for name, value in environment(gpu).items() for word in ("--setenv", name, value)),
        *(word for node in (gpu.nodes if gpu else ()) for word in ("--dev-bind", node, node)),
    ]
    number = 0
    for source, destination in mounts:
        if source:
            arguments += ["--bind" if destination == _CACHE else "--ro-bind", f"STAGED:{number}", destination]
            number += 1
        else:
            arguments += ["--size", _EMPTY_BYTES, "--tmpfs", destination]
    arguments += [word for source, destination in mounts if not source for word in ("--remount-ro", destination)]
    for link in ("/lib", "/lib64"):
        if Path(link).is_symlink():
            arguments += ["--symlink", str(Path(link).readlink()), link]
    return [*arguments, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--"]  # noqa: S108


def worker_command(
    wire: int,
    limits: Limits,
    *,
    fork: bool,
    shared_uid: bool,
    gpu: bool = False,
    root: str = "/proctor",
    program: str = MODULES[-1],
) -> list[str]:
    """The worker's command line. A uid shared with others (no root) cannot have its processes counted."""
    module = program.removesuffix(".py").replace("/", ".")
    paths = [root, *map(str, _import_paths())]
    code = f"import sys; sys.path[:0] = {paths!r}; from {module} import main; main()"
    processes = 0 if shared_uid else limits.processes
    numbers = (wire, limits.address_space, processes, limits.files, limits.file_size)
    executable: str = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]  # noqa: SLF001
    return [executable, "-I", "-S", "-B", "-c", code, *map(str, numbers), *_flags(fork=fork, gpu=gpu)]


def _flags(*, fork: bool, gpu: bool) -> list[str]:
    return ["--fork"] if fork else ["--gpu"] if gpu else []
