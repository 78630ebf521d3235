"""What an exam of each contract costs on a GPU: `python -m tests.bench.contract_times [--only NAME ...] [--exams]`.

Of every cell: the draw of its inputs, and the float64 oracle with its noisy runs, each the second of two; the dearest
cell of a contract is told. With `--exams` a baseline of the contract that needs nothing but torch is examined as a
candidate. Each contract has a process of its own, and one that fails leaves the others alone; the table comes last, and
with `--out` is written there.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import torch

from bot.contract.load import load_contract
from bot.contract.schema import Contract
from bot.evaluation import Evaluation, Job
from bot.launch import launch
from bot.verdict import decide
from bot.verify.cases import cell_recipe, make_case
from bot.verify.exam import LARGE_RUNS
from bot.verify.oracle import expect, load_oracle
from bot.verify.philox import Stream
from bot.verify.start import drawer_for

ROOT = Path(__file__).parents[2]
CONTRACTS = ROOT / "contracts"
EXAM_SECONDS = 240
HEAD = (
    "| contract | dearest cell | draw, ms | float64, ms | GB at most | examined | exam, s | verdict |\n"
    "|---|---|--:|--:|--:|---|--:|---|"
)


def cells(name: str) -> list[dict[str, object]]:
    """Milliseconds of every cell of a contract, and the device's memory at its highest."""
    loaded, drawer = load_contract(CONTRACTS, name), drawer_for("cuda")
    contract, oracle, root = loaded.contract, load_oracle(loaded.folder), Stream.from_salt(b"s" * 32, "bench")
    rows: list[dict[str, object]] = []
    for workload in (w for w in contract.workloads if "cuda" in w.device):
        for regime in contract.regimes:
            recipe, taken = cell_recipe(contract, workload, regime), {}
            torch.cuda.reset_peak_memory_stats()
            for number in range(2):
                begun = time.perf_counter()
                case = make_case(contract, recipe, root.child(number), static=root, drawer=drawer)
                torch.cuda.synchronize()
                drawn = time.perf_counter()
                expect(contract, oracle, case, root.child("noise"), runs=LARGE_RUNS)
                torch.cuda.synchronize()
                taken = {"draw": 1e3 * (drawn - begun), "float64": 1e3 * (time.perf_counter() - drawn)}
            rows.append({"cell": recipe.name, **taken, "bytes": torch.cuda.max_memory_allocated()})
    return rows


def examined(contract: Contract, file: Path) -> tuple[str, Evaluation]:
    """An exam of one of the contract's baselines, with its verdict's kind."""
    job = Job(
        contracts_dir=str(CONTRACTS),
        contract=contract.name,
        candidate_name=file.name,
        source=file.read_text(encoding="utf-8"),
        mode="exam",
        device="cuda",
    )
    evaluation = launch(job)
    return decide([evaluation]).kind, evaluation


def baseline_of(name: str) -> Path:
    """The first baseline for a GPU that needs nothing but torch."""
    loaded = load_contract(CONTRACTS, name)
    found = next(b for b in loaded.contract.baselines if "cuda" in b.device and b.requires is None)
    return loaded.folder / found.file


def one(name: str, *, exams: bool, draws: bool) -> dict[str, object]:
    """The row of a contract."""
    found: dict[str, object] = {"contract": name}
    if exams:
        # First: afterwards this process has the device in use too.
        file, begun = baseline_of(name), time.monotonic()
        verdict, evaluation = examined(load_contract(CONTRACTS, name).contract, file)
        stages = {record.name: record.seconds for record in evaluation.stages}
        found |= {"examined": file.name, "seconds": time.monotonic() - begun, "verdict": verdict, "stages": stages}
        found["exam_seconds"] = [run.seconds for run in evaluation.runs]
        found["latency"] = [run.latency and run.latency.model_dump() for run in evaluation.runs]
        found["reasons"] = decide([evaluation]).reasons
        found["refusal"] = evaluation.refusal and evaluation.refusal.model_dump(exclude={"counterexample"})
    rows = cells(name) if draws else [{"cell": "not drawn", "draw": 0.0, "float64": 0.0, "bytes": 0}]
    return {**found, **max(rows, key=lambda row: float(str(row["float64"]))), "cells": rows}


def row_of(found: dict[str, object]) -> str:
    """One line of the table."""
    number = {key: f"{float(str(value)):.0f}" for key, value in found.items() if isinstance(value, float)}
    memory = f"{int(str(found['bytes'])) / 1e9:.0f}"
    exam = f"{found.get('examined', '')} | {number.get('seconds', '')} | {found.get('verdict', '')}"
    return f"| {found['contract']} | {found['cell']} | {number['draw']} | {number['float64']} | {memory} | {exam} |"


def main() -> int:
    """All contracts, one after the other; returns how many have no row."""
    names = sorted(path.parent.name for path in CONTRACTS.glob("*/contract.yaml"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--exams", action="store_true")
    parser.add_argument("--no-draws", action="store_true", help="leave the cells alone")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=int, default=EXAM_SECONDS, help="a contract may take")
    parser.add_argument("--here", action="store_true", help="in this process, as JSON: how a contract is run")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(one(options.only[0], exams=options.exams, draws=not options.no_draws)))
        return 0
    lines = [HEAD]
    for name in options.only:
        print(f"== {name}", flush=True)
        command = [sys.executable, "-m", __spec__.name, "--here", "--only", name, *["--exams"] * options.exams]
        command += ["--no-draws"] * options.no_draws
        try:
            done = subprocess.run(
                command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=options.seconds
            )
        except subprocess.TimeoutExpired:
            print(f"not done in {options.seconds} s", flush=True)
            continue
        if done.returncode != 0:
            print(done.stderr[-3000:], flush=True)
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        lines.append(row_of(found))
        print(lines[-1], *(found.get(key, "") for key in ("latency", "reasons", "refusal")), flush=True)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    table = "\n".join(lines)
    print(table)
    if options.out:
        (options.out / "table.md").write_text(table + "\n", encoding="utf-8")
    return len(options.only) - (len(lines) - 1)


if __name__ == "__main__":
    sys.exit(main())
