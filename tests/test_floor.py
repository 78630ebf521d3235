"""Least bytes, least operations, least time."""

import pytest

from bot.contract.schema import Contract
from bot.evaluation import Gpu, GpuState
from bot.floor import Ceilings, LeastTime, LeastWork, least_time, least_work, percent_of_floor, roofline_ns
from tests.report.builders import cell


def contract(**fields) -> Contract:
    document = {
        "name": "packed_norm",
        "version": 1,
        "summary": "a packed norm",
        "axes": {
            "lengths": {"ragged": True, "max_length": 100},
            "T": {"total_of": "lengths"},
            "N": {"count_of": "lengths"},
            "H": {"max": 64},
            "D": {"const": 8},
        },
        "inputs": {
            "x": {"shape": ["T", "H", "D"], "dtype": "bfloat16"},
            "initial": {"shape": ["N", "H"], "dtype": "float32", "optional": True},
            "offsets": {"shape": ["N+1"], "dtype": "int64", "offsets_of": "lengths"},
            "eps": {"dtype": "float", "value": 1e-6},
        },
        "outputs": {"out": {"shape": ["T", "H", "D"], "dtype": "bfloat16"}},
        "compute": {"operands": "bfloat16", "accumulate": "float32"},
        "limits": {},
        "regimes": {"fast": {"doc": "plain"}},
        "workloads": [{"name": "w", "device": ["cpu"], "axes": {"lengths": [3, 5], "H": 2}}],
        "work": {"operations": [6, "T", "H", "D"]},
    }
    return Contract.model_validate(document | fields)


AXES: dict[str, int | list[int]] = {"lengths": [3, 5], "H": 2}


def test_bytes_are_every_tensor_once_and_operations_the_product():
    assert least_work(contract(), AXES) == LeastWork(
        bytes=2 * (2 * 8 * 2 * 8) + 4 * 4 + 8 * 3, written=2 * 8 * 2 * 8, operations=768
    )


def test_an_absent_input_is_not_read():
    assert least_work(contract(), AXES).bytes - least_work(contract(), AXES, {"initial"}).bytes == 16


def test_a_contract_without_work_has_no_operations():
    assert least_work(contract(work=None), AXES).operations == 0


def test_a_ragged_axis_is_no_factor():
    with pytest.raises(TypeError, match="ragged"):
        least_work(contract(work={"operations": ["lengths"]}), AXES)


@pytest.mark.parametrize(("bandwidth", "rate", "expected"), [(1e9, 1e15, 1000), (1e15, 1e9, 4000), (3e9, 1e15, 334)])
def test_the_floor_is_the_slower_of_moving_and_computing_rounded_up(bandwidth, rate, expected):
    ceilings = Ceilings(bytes_per_second=bandwidth, operations_per_second=rate)
    assert least_time(LeastWork(bytes=1000, operations=4000), ceilings).ns == expected


def test_percent_of_floor():
    assert percent_of_floor(None, 5) is None
    assert percent_of_floor(310, 1000) == pytest.approx(31)
    with pytest.raises(ValueError, match="not a time"):
        percent_of_floor(310, 0)


def test_what_is_written_may_stay_in_the_cache():
    ceilings = Ceilings(bytes_per_second=1e9, operations_per_second=1e12, cache_bytes=300)
    assert least_time(LeastWork(bytes=1000, written=500, operations=0), ceilings) == LeastTime(700, 0)
    assert least_time(LeastWork(bytes=1000, written=200, operations=0), ceilings) == LeastTime(800, 0)


def gpu(before: int, after: int, ceilings: int | None = 2000) -> Gpu:
    states = [GpuState(sm_mhz=mhz, celsius=40, throttled=[], foreign_processes=0) for mhz in (before, after)]
    return Gpu(
        capability="sm_100",
        driver="580.1",
        cuda="13.0",
        memory_bytes=1,
        cache_bytes=1,
        bytes_per_second=1.0,
        operations_per_second=1.0,
        ceilings_sm_mhz=ceilings,
        before=states[0],
        after=states[1],
    )


@pytest.mark.parametrize(
    ("moving", "computing", "device", "expected"),
    [
        (100, 900, gpu(1500, 1700), 1125.0),  # a slower clock computes more slowly …
        (900, 100, gpu(1500, 1700), 900.0),  # … and moves as fast
        (800, 900, gpu(2400, 2600), 800.0),  # at a faster one the bytes are what is left
        (100, 900, gpu(2000, 2000), 900.0),
        (100, 900, gpu(1500, 1700, ceilings=None), 900.0),
        (100, 900, gpu(0, 0), 900.0),  # a clock of zero is one that the driver does not tell
        (100, 900, None, 900.0),
    ],
)
def test_only_operations_go_with_the_clock(moving: int, computing: int, device: Gpu | None, expected: float):
    timed = cell(floor_ns=max(moving, computing), moving_ns=moving, computing_ns=computing)
    assert roofline_ns(timed, device) == pytest.approx(expected)


def test_without_its_parts_a_floor_is_as_it_was_recorded():
    assert roofline_ns(cell(floor_ns=900), gpu(1000, 1000)) == 900
    assert roofline_ns(cell(), gpu(1000, 1000)) is None


def test_the_clock_sampled_after_a_cells_rounds_counts_before_that_around_all():
    timed = cell(floor_ns=900, moving_ns=100, computing_ns=900, clocks_mhz=[1400, 1600])
    assert roofline_ns(timed, gpu(2000, 2000)) == pytest.approx(1200.0)
