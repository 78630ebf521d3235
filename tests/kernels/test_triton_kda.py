"""KDA's Triton kernel without a GPU: interpreted against the oracle, and compiled for both architectures."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton", reason="kernels in Triton need the package")
if triton.knobs.runtime.interpret:
    pytest.skip("interpreted kernels cannot be compiled", allow_module_level=True)

compiler = pytest.importorskip("triton.compiler")
backends = pytest.importorskip("triton.backends.compiler")

ROOT = Path(__file__).resolve().parents[2]
POINTERS = {
    **dict.fromkeys(("q", "k", "g", "beta", "reads", "writes", "solves", "out"), "*bf16"),
    **dict.fromkeys(("A_log", "dt_bias", "keeps", "initial_state", "final_state"), "*fp32"),
    "cu_seqlens": "*i64",
}
NUMBERS = {"scale": "fp32", "lower_bound": "fp32", "N": "i32", "H": "i32"}


@pytest.mark.parametrize("case", ["ragged", "stateless", "empty", "hard", "isolated"])
def test_errs_as_an_honest_bf16_kernel_does(case):
    errors = interpreted(case)
    changed = errors.pop("changed", [0, 0])
    for ours, faithful in errors.values():
        assert ours <= 1.5 * faithful + 1e-5
    assert changed == [0, 0], "another sequence's NaN was seen"


def test_is_right_as_it_stands_under_the_interpreter():
    """In fp32, with the interpreter's own bf16: only `out` is rounded, by cutting off, and log-decays in fp16."""
    errors = interpreted("exact")
    assert errors["out"][0] < 4e-3
    assert errors["final_state"][0] < 1e-4


@pytest.mark.parametrize("capability", [90, 100])
@pytest.mark.parametrize("phase", ["prepare", "chain"])
def test_compiles_without_spills(phase, capability, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    kernel = load()
    options = dict(kernel.CONFIGS[capability // 10][phase])
    constants = {name: options.pop(name) for name in ("SLICE", "BLOCK", "STAGES") if name in options}
    function = getattr(kernel, phase)
    types = POINTERS | NUMBERS
    if phase == "chain":
        types |= {
            "v": f"tensordesc<bf16[16, {constants['BLOCK']}]>",
            "reads": "tensordesc<bf16[32, 128]>",
            "writes": "tensordesc<bf16[16, 128]>",
            "solves": "tensordesc<bf16[32, 16]>",
            "keeps": "tensordesc<fp32[1, 128]>",
        }
    signature = {name: types.get(name, "constexpr") for name in function.arg_names}
    aligned = {(place,): [["tt.divisibility", 16]] for place, x in enumerate(signature.values()) if x.startswith("*")}
    source = compiler.ASTSource(function, signature, constants, aligned)
    compiled = triton.compile(source, target=backends.GPUTarget("cuda", capability, 32), options=options)

    registers, stack = resources(compiled.asm["cubin"], tmp_path / "kernel.cubin")
    assert stack == 0, "a register was spilled"
    assert registers <= 208
    assert compiled.metadata.shared <= 113 * 1024, "two programs no longer fit an SM"
    product = {("prepare", 90): "mma.sync", ("prepare", 100): "mma.sync", ("chain", 90): "wgmma.mma_async"}
    assert product.get((phase, capability), "tcgen05.mma") in compiled.asm["ptx"]


def interpreted(case):
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.kernels.interpreted", case]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def load():
    spec = importlib.util.spec_from_file_location("kda", ROOT / "kernels" / "kda_prefill" / "triton_two_phase.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def resources(cubin, path):
    """Registers and bytes of stack of a thread; what is spilled lies on the stack, and nothing else here does."""
    path.write_bytes(cubin)
    command = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", told)
    assert found is not None, told
    return int(found[1]), int(found[2])
