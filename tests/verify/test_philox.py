"""The generator against an independent plain-Python one, and its known answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.verify.philox import Stream, _philox, normal_table, silu_table


def plain_philox(key: tuple[int, int], counter: tuple[int, int, int, int]) -> list[int]:
    """Philox-4x32-10 as the paper writes it, one block, Python integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [
            (second >> 32) ^ c[1] ^ k[0],
            second & 0xFFFFFFFF,
            (first >> 32) ^ c[3] ^ k[1],
            first & 0xFFFFFFFF,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_known_answers_of_the_published_test_vectors() -> None:
    # Random123's kat_vectors: philox4x32-10 with all zeros, and with all ones.
    assert plain_philox((0, 0), (0, 0, 0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert plain_philox((ones, ones), (ones,) * 4) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@given(
    identity=st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4),
    start=st.integers(0, 2**34),
    count=st.integers(1, 5),
)
@settings(max_examples=50, deadline=None)
def test_blocks_equal_the_plain_implementation(identity: list[int], start: int, count: int) -> None:
    out = np.empty((count, 4), dtype=np.uint32)
    _philox(np.array(identity, dtype=np.uint32), start, count, out)
    for row in range(count):
        at = start + row
        counter = (at & 0xFFFFFFFF, at >> 32, identity[2], identity[3])
        assert out[row].tolist() == plain_philox((identity[0], identity[1]), counter)


def test_a_prefix_of_a_stream_does_not_depend_on_how_much_is_drawn() -> None:
    stream = Stream.from_salt(b"s" * 32, "a")
    assert stream.words(70_000)[:11].tolist() == stream.words(11).tolist()


def test_streams_differ_by_salt_and_by_label() -> None:
    first = Stream.from_salt(b"s" * 32, "a")
    others = [Stream.from_salt(b"t" * 32, "a"), Stream.from_salt(b"s" * 32, "b"), first.child("a"), first.child("b")]
    drawn = [tuple(s.words(4).tolist()) for s in (first, *others)]
    assert len(set(drawn)) == len(drawn)


def test_labels_are_not_confused_by_joining() -> None:
    root = Stream.from_salt(b"s" * 32)
    assert root.child("ab", "c").secret != root.child("a", "bc").secret


@pytest.mark.parametrize("count", [0, 1, 2, 7, 40])
def test_shuffled_is_a_permutation(count: int) -> None:
    assert sorted(Stream.from_salt(b"s" * 32, str(count)).shuffled(count)) == list(range(count))


def test_below_covers_its_range_evenly() -> None:
    drawn = Stream.from_salt(b"s" * 32, "below").below(7, 70_000)
    counts = np.bincount(drawn, minlength=7)
    assert counts.min() > 9_600
    assert counts.max() < 10_400


def test_normal_table_is_symmetric_with_unit_variance() -> None:
    table = normal_table().astype(np.float64) / 65536
    assert np.array_equal(table, -table[::-1])
    assert abs(table.std() - 1) < 1e-4


def test_silu_table_is_what_it_says() -> None:
    points = (np.arange(65536) - 32768) * 8 / 32768
    assert np.abs(silu_table() / 65536 - points / (1 + np.exp(-1.5 * points))).max() < 1e-5
