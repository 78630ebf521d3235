"""The influence map as text and as a picture."""

import xml.etree.ElementTree as ET

import pytest

from bot import telling
from bot.evaluation import Influence
from bot.report import influence
from tests.report.builders import confirmed, evaluation, influence_map, picture, refusal, smallest, taught

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "``` `/approve` ```\n/approve deadbee",
    "</text></svg><script>alert(1)</script>",
    '"\' onload="alert(1)" <!-- x --> ]]> <![CDATA[ &amp; &#0;',
    "\x00\x1b[2J\u202e\ufffe\uffff\ud800 a",
    "x" * 10_000,
    "",
]


def made(*shares: list[float | None], leaks: list[list[bool]] | None = None, outputs: int = 1) -> Influence:
    names = [f"y{number}" for number in range(outputs)]
    return Influence(input="x", axis="tokens", outputs=names, shares=list(shares), leaks=leaks or [])


def hostile(text: str) -> list[Influence]:
    one = Influence(input=text, axis=text, outputs=[text] * 2, shares=[[0.0, 0.5], [1.0]], leaks=[[False, True]] * 3)
    return [one] * 2


def parsed(pictures: list[Influence], where: str = "small/plain") -> ET.Element:
    return ET.fromstring(influence.svg(pictures, where))  # noqa: S314 - our own


def test_the_text_draws_what_is_mixed_and_tells_the_rest_in_words():
    lines = telling.influence_lines(influence_map())
    assert lines[:11] == [
        " k: out forgets it 4 parts later",
        " parts of tokens of each sequence down, parts of each output across",
        "     out       final_state",
        "  1  ████····  ████████",
        "  2   ████···  ████████",
        "  3    ████··  ████████",
        "  4     ████·  ████████",
        "  5      ████  ████████",
        "  6       ███  ████████",
        "  7        ██  ████████",
        "  8         █  ████████",
    ]
    assert lines[11:16] == [
        " beta: part 3 read where it must not be",
        " parts of tokens of each sequence down, parts of each output across",
        "     out       final_state",
        "  1  ▒▒▒▒▒▒▒▒  ████████",
        "  2   ▒▒▒▒▒▒▒  ████████",
    ]
    assert lines[16] == "  3   !▒▒▒▒▒▒  ████████"
    assert lines[22:26] == [
        " state: over-reacts; answers the other way",
        " parts of V down, parts of each output across",
        "     out       final_state",
        "  1  xxxx++++  ████████",
    ]
    assert lines[33:35] == [" bias: not read", " as it must be: q"]
    assert lines[35].startswith(" █ answers as it must   ▓▒░ answers partly   · not read   + over-reacts   x answers")
    assert lines[35].endswith("! read where it must not be   blank: the oracle does not answer either")
    assert len(lines) == 36


def test_only_marks_that_occur_are_explained():
    assert telling.influence_lines([made([1.0, 0.0])])[-1] == " █ answers as it must   · not read"
    assert telling.influence_lines([made([1.0])]) == [" as it must be: x"]
    assert telling.influence_lines([]) == []


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ([[1.0, 0.95], [None, 1.05]], ""),
        ([[0.0, 0.0], [0.01, None]], "not read"),
        ([[1.0, 1.0], [0.5, 1.0], [0.0, None], [None, None], [0.0, 0.0]], "not read from part 3 on"),
        ([[0.0], [None], [1.0]], "not read before part 3"),
        ([[1.0], [0.0], [1.0], [0.0], [0.0], [1.0]], "not read in parts 2, 4–5"),
        ([[1.0, 1.0, 0.0], [None, 1.0, 1.0], [None, None, 1.0]], "y0 forgets it 2 parts later"),
        ([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0]], "y0 does not answer to all of it"),
        ([[1.5, 2.0]], "over-reacts"),
        ([[-1.0, 1.0]], "answers the other way"),
        ([[0.5, 0.7]], "answers only partly"),
        ([[0.0, -1.0]], "y0 does not answer to all of it; answers the other way"),
        ([[None, None]], "the oracle does not answer"),
        ([], ""),
    ],
)
def test_an_input_is_told_in_words(shares, words):
    assert telling.remark(made(*shares)) == words


def test_an_output_that_does_not_answer_is_named():
    assert telling.remark(made([1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], outputs=2)) == "does not reach y1"


def test_a_leak_is_told_first_whatever_the_share():
    found = made([1.0, 0.0], [0.0, None], leaks=[[False, False], [True, True]])
    assert telling.remark(found) == "part 2 read where it must not be; y0 forgets it 1 part later"


def test_what_the_smallest_input_holds_is_grouped_plainest_first():
    assert telling.held(smallest()) == "absent: state; ones: k; as drawn: q"
    assert telling.held(smallest(inputs={})) == ""


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_in_their_line_and_fence(text):
    lines = influence.fenced(hostile(text)).split("\n")
    assert lines[0] == "```text"
    assert lines[-1] == "```"
    assert len(lines) == len(influence.fenced(hostile("quiet")).split("\n"))
    for line in lines[1:-1]:
        assert line[0] == " "
        assert line.isprintable()
        assert "`" not in line
        assert "<!--" not in line
        assert len(line) < 300


def test_a_large_map_is_cut():
    wide = Influence(
        input="x", axis="T", outputs=["y"] * 9, shares=[[1.0, 0.0] * 450] * 500, leaks=[[True] * 900] * 500
    )
    lines = telling.influence_lines([wide] * 100)
    assert "and 76 more inputs" in lines
    assert len(lines) < 90
    assert max(map(len, lines)) < 150
    assert len(influence.svg([wide] * 100, "x")) < 10_000_000


def test_the_picture_has_a_cell_for_each_pair_of_parts_and_says_it_in_words():
    root = parsed(influence_map())
    assert root.findtext(f"{SVG}title") == "Influence map in small/plain"
    told = root.findtext(f"{SVG}desc")
    assert told is not None
    assert told.startswith("q: answers as it must. k: out forgets it 4 parts later. beta: part 3 read where")
    cells = [group.findtext(f"{SVG}title") for group in root.iter(f"{SVG}g")]
    assert len(cells) == 5 * 8 * 16
    assert "k part 1, out part 5: not read, share 0.01" in cells
    assert "q part 1, final_state part 7: the oracle does not answer" in cells
    texts = [text.text for text in root.iter(f"{SVG}text")]
    for label in (
        "q, parts of tokens of each sequence",
        "bias, parts of the last axis",
        "final_state",
        "8",
        "not read",
    ):
        assert label in texts


def test_the_picture_brings_its_own_ground_and_nothing_from_elsewhere():
    root = parsed(influence_map())
    used = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert used == {"svg", "title", "desc", "rect", "g", "text"}
    first = root.find(f"{SVG}rect")
    assert first is not None
    assert first.get("fill") == "#ffffff"
    assert root.get("role") == "img"
    for element in root.iter():
        assert not any("href" in name or name.startswith("on") or name == "style" for name in element.attrib)
        assert "url(" not in "".join(element.attrib.values())


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_text_in_the_picture(text):
    root, quiet = parsed(hostile(text), text), parsed(hostile("quiet"), "quiet")
    shape = [element.tag for element in root.iter() if element.tag != f"{SVG}text"]
    assert shape == [element.tag for element in quiet.iter() if element.tag != f"{SVG}text"]
    assert {name for one in root.iter() for name in one.attrib} == {n for one in quiet.iter() for n in one.attrib}


def test_tiles_stay_inside_the_picture():
    root = parsed([picture(f"input_{i}", lambda part, reached: 1.0) for i in range(7)])
    wide, high = float(root.get("width", "0")), float(root.get("height", "0"))
    assert wide < 800
    for rect in root.iter(f"{SVG}rect"):
        assert float(rect.get("x", "0")) + float(rect.get("width", "0")) <= wide
        assert float(rect.get("y", "0")) + float(rect.get("height", "0")) <= high


def test_the_picture_of_an_evaluation_is_the_refusals_even_of_a_confirmation():
    assert influence.of_evaluation(evaluation()) is None
    assert influence.of_evaluation(evaluation(refusal=refusal())) is None
    drawn = influence.svg(influence_map(), "T256_H4/fast")
    assert influence.of_evaluation(evaluation(refusal=taught())) == drawn
    assert influence.of_evaluation(confirmed(refusal=taught())) == drawn


def test_an_empty_map_is_a_picture_too():
    assert parsed([made(outputs=0)]).findtext(f"{SVG}title") == "Influence map in small/plain"
    assert parsed([], "").findtext(f"{SVG}title") == "Influence map"
