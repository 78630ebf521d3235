"""Make a machine without a GPU look to a candidate like one with an H200 or a B200, so that `run` reaches its launches.

Which of a kernel's specialisations are compiled is only known from a call, so `run` is called. Tensors are real ones in
the CPU's memory that say they are on the device: torch operations before and after a launch work, and so do `data_ptr`,
DLPack and a look at small integers. A launch compiles as it always does, its binary is kept, and nothing is launched.
Runs in the sandbox beside the candidate; the versions it fits are triton 3.6 and CuTe-DSL 4.8.
"""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from typing_extensions import override

GPUS = {
    "sm_90a": {"name": "NVIDIA H200", "major": 9, "minor": 0, "multi_processor_count": 132, "L2_cache_size": 50 << 20},
    "sm_100a": {
        "name": "NVIDIA B200",
        "major": 10,
        "minor": 0,
        "multi_processor_count": 148,
        "L2_cache_size": 126 << 20,
    },
}
SHARED_OPTIN = 232_448
"""Bytes of shared memory that a block may ask for, on both."""
_LIMITS = {
    "total_memory": 141 << 30,
    "warp_size": 32,
    "max_threads_per_multi_processor": 2048,
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": SHARED_OPTIN,
    "shared_memory_per_multiprocessor": 233_472,
    "is_integrated": 0,
}
CACHE = "/tmp/build"  # noqa: S108 - a tmpfs of the sandbox
ENVIRONMENT = {
    "TRITON_CACHE_DIR": CACHE,
    # Line tables name the compiler's temporary files, which no two builds share.
    "TRITON_DISABLE_LINE_INFO": "1",
    "CUTE_DSL_KEEP": "cubin",
    "CUTE_DSL_DUMP_DIR": "/tmp",  # noqa: S108 - a tmpfs of the sandbox
    "CUTE_DSL_DISABLE_FILE_CACHING": "1",
}
"""What both compilers must find in the environment when they are imported."""
Keep = Callable[[bytes, dict[str, int]], None]
"""Takes a cubin, and by kernel the shared memory that its launch adds."""


def put_on(architecture: str, keep: Keep) -> None:
    """Disguise this process for good, with what of the compilers has been imported."""
    _dress_torch(architecture)
    if "triton" in sys.modules:
        _dress_triton(architecture, keep)
    if "cutlass" in sys.modules:
        _dress_cute(architecture, keep)


class DeviceTensor(torch.Tensor):
    """A tensor in the CPU's memory that says it is on the GPU, and so do results computed from it."""

    @property
    @override
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    @property
    @override
    def is_cpu(self) -> bool:  # type: ignore[override]
        return False

    @property
    @override
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", 0)

    @override
    def get_device(self) -> int:
        return 0

    @override
    def cuda(self, *_: object, **__: object) -> "DeviceTensor":
        return self

    @override
    def record_stream(self, _: object) -> None:
        """Nothing is ever freed too early here."""

    @override
    def __dlpack__(self, **_: object) -> Any:
        return _plain(self).__dlpack__()

    @override
    def __dlpack_device__(self) -> Any:
        return _plain(self).__dlpack_device__()


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction():  # noqa: SLF001 - its only name
        return tensor.as_subclass(torch.Tensor)


class _Devices(TorchFunctionMode):
    """Whatever is asked for on the GPU is made on the CPU, and disguised."""

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        given = {name: value for name, value in (kwargs or {}).items() if name != "pin_memory"}
        asked = any(_on_gpu(value) for value in (*args, *given.values()))
        args = tuple("cpu" if _on_gpu(value) else value for value in args)
        given = {name: "cpu" if _on_gpu(value) else value for name, value in given.items()}
        made = func(*args, **given)
        return made.as_subclass(DeviceTensor) if asked and type(made) is torch.Tensor else made


def _on_gpu(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and re.fullmatch(r"cuda(:\d+)?", value) is not None


class _Stream:
    """The only stream there is, and every event."""

    cuda_stream = 0

    def __init__(self, *_: object, **__: object) -> None:
        """Like any other."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return _nothing

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: object) -> None:
        """Leave it."""


def _nothing(*_: object, **__: object) -> None:
    """What a GPU would do."""


@contextlib.contextmanager
def _anywhere(*_: object, **__: object) -> Iterator[None]:
    yield


def _dress_torch(architecture: str) -> None:
    gpu = GPUS[architecture]
    properties = SimpleNamespace(**gpu, **_LIMITS)
    replaced = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": _nothing,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _nothing,
        "synchronize": _nothing,
        "get_device_name": lambda *_: gpu["name"],
        "get_device_capability": lambda *_: (gpu["major"], gpu["minor"]),
        "get_device_properties": lambda *_: properties,
        "current_stream": _Stream,
        "default_stream": _Stream,
        "Stream": _Stream,
        "Event": _Stream,
        "stream": _anywhere,
        "device": _anywhere,
    }
    for name, replacement in replaced.items():
        setattr(torch.cuda, name, replacement)
    _Devices().__enter__()  # type: ignore[no-untyped-call]


def _dress_triton(architecture: str, keep: Keep) -> None:
    """A driver that knows the target, takes every binary, and launches nothing. An autotuner finds all its
    configurations equally fast, and so compiles each of them."""
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415 - not installed everywhere
    from triton.backends.driver import DriverBase  # noqa: PLC0415
    from triton.runtime import driver  # noqa: PLC0415

    def load_binary(name: str, binary: bytes, shared: int, _device: int) -> tuple[None, None, int, int, int]:
        keep(binary, {name: shared})
        return None, None, 0, 0, 1024

    def benchmark(call: Callable[[], object], *, quantiles: Any = None, **_: object) -> Any:
        call()
        return [1.0] * len(quantiles) if quantiles else 1.0

    gpu = GPUS[architecture]
    known = {
        "max_shared_mem": SHARED_OPTIN,
        "max_num_regs": 65536,
        "multiprocessor_count": gpu["multi_processor_count"],
        "warpSize": 32,
        "sm_clock_rate": 1_980_000,
        "mem_clock_rate": 3_201_000,
        "mem_bus_width": 6144,
    }

    class Driver(DriverBase):  # type: ignore[misc, unused-ignore]
        utils = SimpleNamespace(
            load_binary=load_binary,
            get_device_properties=lambda _: known,
            set_printf_fifo_size=_nothing,
            fill_tma_descriptor=_nothing,
        )
        launcher_cls = staticmethod(lambda _source, _metadata: _nothing)
        get_device_interface = staticmethod(lambda: torch.cuda)
        get_current_stream = staticmethod(lambda _=0: 0)
        get_current_device = staticmethod(lambda: 0)
        set_current_device = staticmethod(_nothing)
        get_device_capability = staticmethod(lambda *_: (gpu["major"], gpu["minor"]))
        get_empty_cache_for_benchmark = staticmethod(_nothing)
        clear_cache = staticmethod(_nothing)

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            return ty

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", int(str(gpu["major"]) + str(gpu["minor"])), 32)

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cuda", 0)

        def get_benchmarker(self) -> Any:
            return benchmark

    driver.set_active(Driver())


def _dress_cute(architecture: str, keep: Keep) -> None:
    """Take each binary when its host function has been made, and let that function end where it would launch."""
    from cutlass.base_dsl import env_manager  # noqa: PLC0415 - not installed everywhere
    from cutlass.base_dsl.jit_executor import JitCompiledFunction, JitExecutor  # noqa: PLC0415

    original = JitCompiledFunction.__init__

    def made(self: Any, ir_module: Any, *arguments: Any, **options: Any) -> None:
        original(self, ir_module, *arguments, **options)
        binary = self.artifacts.CUBIN if self.artifacts else None
        if isinstance(binary, bytes):
            keep(binary, dict(zip(self.kernel_info, launched_shared(str(ir_module)), strict=False)))

    for owner, name, replacement in (
        (env_manager, "detect_gpu_arch", lambda *_: architecture),
        (JitCompiledFunction, "__init__", made),
        (JitCompiledFunction, "to", lambda self, _=None: self),
        (JitCompiledFunction, "run_compiled_program", _nothing),
        (JitExecutor, "run_compiled_program", _nothing),
    ):
        setattr(owner, name, replacement)


_CONFIGURATION = r"!llvm\.struct<\(array<3 x i32>, array<3 x i32>, i64, "
"""Where CuTe-DSL's host code builds a cudaLaunchConfig_t: grid, block, bytes of dynamic shared memory, …"""


def launched_shared(host_code: str) -> list[int]:
    """Bytes of dynamic shared memory of each launch, in order, from a module's LLVM code as MLIR writes it."""
    constants = dict(re.findall(r"(%\w+) = llvm\.mlir\.constant\((\d+) : i64\)", host_code))
    places = re.findall(rf"(%\w+) = llvm\.getelementptr %\w+\[0, 2\] .*{_CONFIGURATION}", host_code)
    stored = {place: value for value, place in re.findall(r"llvm\.store (%\w+), (%\w+) : i64", host_code)}
    return [int(constants.get(stored.get(place, ""), 0)) for place in places]
