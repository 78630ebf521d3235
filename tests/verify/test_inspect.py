"""What the verifier reads from a candidate's machine code, and what it makes of files that are wrong or hostile."""

from collections import Counter
from collections.abc import Iterator

import pytest

from bot import cli
from bot.errors import Problem
from bot.evaluation import Build, Inspected
from bot.verify.artefacts import Declared
from bot.verify.reader import declared, instructions, kind_of, usage
from bot.verify.resources import Needs, exceeded, read_resources
from tests.inspecting import ROOT, Look, looking

TRITON = """
import os
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, out_ptr, N: tl.constexpr):
    place = tl.arange(0, N)
    x = tl.load(x_ptr + place).to(tl.float32)
    tl.store(out_ptr + place, (x * tl.sum(x)).to(tl.bfloat16))

def run(hidden_states, weight, output):
    assert hidden_states.is_cuda and hidden_states.device.type == "cuda"
    scale[(1,)](hidden_states, output, N=1024, num_warps=4{more})
"""
PLAIN = TRITON.replace("{more}", "")
SPILLS = TRITON.replace("N=1024", "N=32768").replace("{more}", ", maxnreg=24")
DOT = """
import triton
import triton.language as tl

@triton.jit
def product(x_ptr, out_ptr):
    i, j = tl.arange(0, 128), tl.arange(0, 128)
    x = tl.load(x_ptr + i[:, None] * 128 + j[None, :])
    tl.store(out_ptr + i[:, None] * 128 + j[None, :], tl.dot(x, x).to(tl.bfloat16))

def run(hidden_states, weight, output):
    product[(1,)](hidden_states, output, num_warps=4)
"""
CUTE = """
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def copy(x: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    shared = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.BFloat16, cute.make_layout(512))
    shared[thread] = x[thread]
    cute.arch.sync_threads()
    out[thread] = shared[127 - thread]

@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    copy(x, out).launch(grid=(1, 1, 1), block=(128, 1, 1))

def run(hidden_states, weight, output):
    launch(from_dlpack(weight), from_dlpack(torch.empty_like(weight)))
"""
NOISE = """
import os
print("x" * 100000)
for fd in range(3, 64):
    try:
        os.write(fd, b"{nonsense")
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def look() -> Iterator[Look]:
    with looking() as found:
        yield found


@pytest.mark.sandbox
def test_two_builds_of_one_source_are_the_same(look):
    found = look(PLAIN)
    assert (found.refusals, found.differences, found.notes) == ([], [], [])
    (build,) = found.builds
    assert build.kernel == "scale"
    assert build.spill_bytes == build.stack_bytes == 0
    assert 8 <= build.registers <= 64
    assert build.shared_bytes == 16
    assert build.instructions == {"ldg.128": 1, "stg.128": 1}


@pytest.mark.sandbox
def test_builds_that_depend_on_chance_are_reported_and_not_refused(look):
    found = look(
        PLAIN.replace("N=1024", "N=1024 if not os.path.exists('/tmp/seen') and open('/tmp/seen', 'w') else 2048")
    )
    assert found.refusals == []
    assert [line.partition(":")[0] for line in found.differences] == ["sm_90a"]


@pytest.mark.sandbox
def test_spills_are_counted_and_held_against_the_declaration(look):
    found = look(SPILLS + 'RESOURCES = {"sm_90a": {"spills": 0, "registers": 16}}\n')
    (build,) = found.builds
    assert build.spill_bytes > 0
    assert build.stack_bytes > 0
    assert found.refusals == [
        "sm_90a: scale takes 24 registers, and declares at most 16",
        f"sm_90a: scale takes {build.spill_bytes} bytes of spills, and declares at most 0",
    ]


@pytest.mark.sandbox
def test_matrix_instructions_are_found_and_missed(look):
    wants = 'RESOURCES = {"sm_90a": {"instructions": ["wgmma"]}, "sm_100a": {"instructions": ["wgmma", "tcgen05"]}}\n'
    found = look(DOT + wants, "sm_90a", "sm_100a")
    assert [b.instructions.get("wgmma", 0) > 0 for b in found.builds] == [True, False]
    assert [b.instructions.get("tcgen05", 0) > 0 for b in found.builds] == [False, True]
    assert found.refusals == ["sm_100a: declares wgmma, and no kernel has such an instruction"]


@pytest.mark.sandbox
def test_cute_kernels_are_seen_with_the_shared_memory_of_their_launch(look):
    found = look(CUTE)
    (build,) = found.builds
    assert found.refusals == []
    assert build.shared_bytes == 1024
    assert build.instructions == {"ldg.16": 1, "stg.16": 1}


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("source", "refusal"),
    [
        ("def run(x, w, out):\n    out.copy_(x * w)\n", "sm_90a: nothing compiled"),
        ("def run(x, w, out):\n    raise KeyError('k')\n", "sm_90a: nothing compiled: KeyError: 'k' (line 2)"),
        ("import os\nos._exit(3)\n", "sm_90a: the process ended, exit status 3 while it was compiling"),
        ("import os\nos.kill(os.getpid(), 11)\n", "sm_90a: the process was killed by signal 11 while it was compiling"),
        (PLAIN.replace("tl.sum(x)", "x.nonsense"), "sm_90a: does not compile: CompilationError"),
        (PLAIN.replace("N=1024", "N=1000"), "sm_90a: does not compile: CompilationError"),
    ],
)
def test_a_file_that_yields_no_kernel_is_refused_with_the_reason(look, source, refusal):
    found = look(source)
    assert len(found.refusals) == 1
    assert found.refusals[0].startswith(refusal)
    assert found.builds == []


@pytest.mark.sandbox
def test_what_a_candidate_prints_or_writes_changes_nothing(look):
    found = look(NOISE + PLAIN)
    assert found.refusals in ([], ["sm_90a: sent a message that is none of the protocol's"])


@pytest.mark.sandbox
def test_a_forged_binary_is_refused_and_breaks_nothing(look):
    forged = """
import triton
def run(x, w, out):
    triton.runtime.driver.active.utils.load_binary("k", b"\\x7fELF" + bytes(4096), 0, 0)
"""
    found = look(forged)
    assert len(found.refusals) == 1
    assert "binary" in found.refusals[0]
    assert look(PLAIN).refusals == []


def test_mistakes_of_a_declaration_come_all_at_once_with_paths():
    source = (
        'RESOURCES = {"sm_90a": {"registers": "many", "spils": 0}, "sm_80": {}, "sm_100a": {"instructions": ["fma"]}}'
    )
    found = read_resources(declared(source))
    assert isinstance(found, list)
    assert [problem.path for problem in found] == [
        "RESOURCES.sm_90a.registers",
        "RESOURCES.sm_90a.spils",
        "RESOURCES.sm_80",
        "RESOURCES.sm_100a.instructions[0]",
    ]


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("RESOURCES = dict(sm_90a={})", "must be written out"),
        ("RESOURCES = {1j: 0}", "must be written out"),
        ("RESOURCES = {'sm_90a': {'registers': 1e999}}", "must be written out"),
        ("RESOURCES = {}\nRESOURCES: dict = {}", "is assigned 2 times, the last in line 2"),
        ("RESOURCES = " + "[" * 5000, "cannot be found"),
        ("RESOURCES = " + repr("x" * 20000), "is far too long"),
        ("def", "cannot be found"),
    ],
)
def test_a_declaration_that_is_no_literal_is_wrong(source, wrong):
    assert declared(source).wrong.startswith(wrong)
    assert read_resources(declared(source)) == [Problem("RESOURCES", declared(source).wrong)]


def test_a_declaration_is_found_only_in_the_module_itself():
    assert declared("def f():\n    RESOURCES = {}\n") == Declared()
    assert read_resources(declared("RESOURCES = {'sm_90a': {'registers': 168, 'instructions': ('wgmma',)}}")) == {
        "sm_90a": Needs(registers=168, instructions=["wgmma"])
    }


def test_what_is_declared_for_an_architecture_binds_there_alone():
    build = Build(
        kernel="k",
        architecture="sm_90a",
        registers=200,
        spill_bytes=8,
        stack_bytes=16,
        shared_bytes=1000,
        instructions={"wgmma": 4},
        cubin_sha256="0" * 64,
    )
    assert list(exceeded({"sm_100a": Needs(registers=1, instructions=["tcgen05"])}, [build])) == []
    assert list(
        exceeded({"sm_90a": Needs(registers=200, spills=8, shared_bytes=999, instructions=["wgmma"])}, [build])
    ) == ["sm_90a: k takes 1000 bytes of shared memory, and declares at most 999"]


@pytest.mark.parametrize(
    ("mnemonic", "kind"),
    [
        ("HGMMA.64x64x16.F32.BF16", "wgmma"),
        ("QGMMA.64x16x32.F32.E4M3.E4M3", "wgmma"),
        ("UTCHMMA", "tcgen05"),
        ("UTCQMMA.2CTA", "tcgen05"),
        ("HMMA.16816.F32.BF16", "mma"),
        ("UTMALDG.2D", "tma"),
        ("LDG.E.128", "ldg.128"),
        ("LDG.E.NA.U16", "ldg.16"),
        ("LDG.E.64.CONSTANT", "ldg.64"),
        ("STL", "stl.32"),
        ("STG.E", "stg.32"),
        ("LDGSTS.E.BYPASS.128", "ldgsts.128"),
        ("HFMA2.MMA", ""),
        ("FFMA", ""),
    ],
)
def test_instructions_are_counted_by_kind(mnemonic, kind):
    assert kind_of(mnemonic) == kind


def test_listings_are_read_kernel_by_kernel():
    listing = """
\t.section\t.text.first,"ax",@progbits
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/               UP0 UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8] ;
\t.section\t.text.second,"ax",@progbits
        /*0000*/                   STL.64 [R1], R2 ;
"""
    assert dict(instructions(listing)) == {"first": Counter({"ldg.128": 1}), "second": Counter({"stl.64": 1})}
    told = "Resource usage:\n Common:\n  GLOBAL:0\n Function first:\n  REG:8 STACK:16 SHARED:5120 LOCAL:0\n"
    assert list(usage(told)) == [("first", 8, 16, 5120)]


def test_the_command_ends_with_1_for_a_refusal_and_with_2_for_an_unknown_architecture(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(ROOT)
    (file := tmp_path / "triton_x.py").write_text(PLAIN)
    said = {"": 0, "sm_90a: nothing compiled": 1}
    for refusal, code in said.items():
        found = Inspected(workload="w", builds=[], refusals=[refusal] if refusal else [], seconds=0.1)
        monkeypatch.setattr("bot.launch.inspect", lambda _order, found=found: found)
        arguments = ["inspect", str(file), "--contract", "rmsnorm", "--json", str(tmp_path / "out.json")]
        assert cli.run(arguments) == code
        assert Inspected.model_validate_json((tmp_path / "out.json").read_bytes()) == found
    assert "refused before any launch" in capsys.readouterr().out
    assert cli.run(["inspect", str(file), "--contract", "rmsnorm", "--arch", "sm_80"]) == 2
