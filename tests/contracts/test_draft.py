"""The draft of a contract that a definition gives: what follows is written down, what a person decides is refused."""

import copy
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot import cli
from bot.contract.interchange.draft import WORKLOADS, draft, suggested_name
from bot.contract.interchange.flashinfer_bench import DEFINITION_LIMIT, read_definition, read_workloads
from bot.contract.load import dump_yaml, load_contract, parse_yaml
from bot.contract.mistakes import Undecided
from bot.contract.new import NAME, write_new
from bot.errors import DataError
from tests.contracts.definitions import PUBLIC, RAGGED, Json, changed, line, text
from tests.verify.conftest import CENTER
from tests.verify.test_appraise import drawn_and_asked

SCALE = {"scale": {"type": "scalar", "value": 0.5}}
LINES = "\n".join(
    [
        line(inputs=SCALE, tokens=100, seqs=3, len_offsets=4),
        line(inputs={"scale": {"type": "scalar", "value": 2}}, tokens=7, seqs=1, len_offsets=2),
        line(inputs=SCALE, tokens=7, seqs=1, len_offsets=2),
    ]
)


def drafted(document: Json, lines: str = "", name: str = "toy") -> dict[str, str]:
    definition = read_definition(text(document), "definition.json")
    return draft(definition, read_workloads(lines.encode(), definition, "w.jsonl") if lines else [], name)


def contract(document: Json, lines: str = "") -> Json:
    found: Json = parse_yaml(drafted(document, lines)["contract.yaml"], "contract.yaml")
    return found


def undecided(folder: Path) -> list[str]:
    """Paths at which the contract of a folder says that something is to be decided; nothing else is wrong with it."""
    with pytest.raises(DataError) as caught:
        load_contract(folder.parent, folder.name)
    wrong = [problem for problem in caught.value.problems if not problem.reason.startswith("to be decided: ")]
    assert wrong == []
    return [problem.path for problem in caught.value.problems]


PEOPLES = ["compute", "limits", "regimes", "hidden", "probes", "baselines", "controls", "faithful", "work"]


def test_packed_sequences_are_found_in_the_constraints():
    found = contract(RAGGED, LINES)
    assert found["axes"]["lengths"]["ragged"] is True
    assert {name: axis for name, axis in found["axes"].items() if name != "lengths"} == {
        "tokens": {"total_of": "lengths"},
        "seqs": {"count_of": "lengths"},
        "width": {"const": 64},
    }
    assert list(found["inputs"]) == ["x", "bias", "offsets", "scale"]
    assert found["inputs"]["offsets"] == {
        "shape": ["seqs+1"],
        "dtype": "int64",
        "lifetime": "metadata",
        "offsets_of": "lengths",
    }
    assert found["inputs"]["x"] == {"shape": ["tokens", "width"], "dtype": "bfloat16", "doc": "rows"}
    assert found["inputs"]["bias"]["optional"] is True
    assert found["outputs"] == {"y": {"shape": ["tokens", "width"], "dtype": "bfloat16"}}
    assert "public name ragged_scale_d64 (flashinfer-bench)" in found["summary"]
    assert "#   width % 2 == 0\n" in drafted(RAGGED)["contract.yaml"], "what we do not understand is there to read"


def test_workloads_give_sizes_once_each_and_what_was_seen_of_numbers():
    found = contract(RAGGED, LINES)
    assert found["workloads"] == [
        {"name": "tokens7_seqs1", "device": ["cuda"], "axes": {"lengths": [7]}},
        {"name": "tokens100_seqs3", "device": ["cuda"], "axes": {"lengths": [34, 33, 33]}},
    ]
    assert found["inputs"]["scale"]["value"] == 0.5
    assert found["inputs"]["scale"]["high"] == Undecided("the largest legal value; seen: 0.5 to 2")
    assert "sums seen: 7 to 100" in found["axes"]["lengths"]["max_length"].text


def test_of_many_sizes_some_are_taken_from_the_smallest_to_the_largest():
    lines = "\n".join(line(tokens=n, seqs=1, len_offsets=2) for n in range(1, 101))
    found = [workload["axes"]["lengths"][0] for workload in contract(RAGGED, lines)["workloads"]]
    assert len(found) == WORKLOADS
    assert (found[0], found[-1]) == (1, 100)
    assert "16 of the 100 sizes that 100 workloads" in drafted(RAGGED, lines)["contract.yaml"]


def test_what_only_people_can_decide_is_refused_and_nothing_else(tmp_path: Path):
    folder = write_new(tmp_path, "toy", drafted(RAGGED, LINES))
    assert undecided(folder) == ["axes.lengths.max_length", "inputs.scale.low", "inputs.scale.high", *PEOPLES]


@pytest.mark.parametrize(("document", "name"), PUBLIC, ids=[name for _, name in PUBLIC])
def test_a_public_operator_becomes_a_draft_that_lacks_decisions_alone(tmp_path: Path, document: Json, name: str):
    definition = read_definition(text(document), "definition.json")
    suggested = suggested_name(definition)
    assert NAME.fullmatch(suggested)
    found = undecided(write_new(tmp_path, suggested, drafted(document, name=suggested)))
    assert set(found) >= {*PEOPLES, "workloads"}
    assert ("outputs.topk_indices.compare" in found) == (name == "dsa_topk_indexer"), "ids are not near to each other"


def test_a_draft_with_its_decisions_is_the_contract_that_people_would_have_written(tmp_path: Path):
    """The small contract that the verifier's tests are held with, described by a definition, and what that lacks."""
    document = changed(
        RAGGED,
        ("axes", {"T": {"type": "var"}, "N": {"type": "var"}, "L": {"type": "var"}, "H": {"type": "var"}}),
        ("axes.D", {"type": "const", "value": 64}),
        ("constraints", ["L == N + 1", "T == cu_seqlens[-1].item()"]),
        (
            "inputs",
            {
                "x": {"shape": ["T", "H", "D"], "dtype": "bfloat16"},
                "offset": {"shape": ["N", "D"], "dtype": "float32", "optional": True},
                "scale": {"shape": None, "dtype": "float32"},
                "cu_seqlens": {"shape": ["L"], "dtype": "int64"},
            },
        ),
        ("outputs.y", {"shape": ["T", "H", "D"], "dtype": "bfloat16"}),
    )
    wanted = load_contract(CENTER.parent, "center").contract
    written = parse_yaml((CENTER / "contract.yaml").read_text(encoding="utf-8"), "contract.yaml")
    found = contract(document, line(inputs={"scale": {"type": "scalar", "value": 1}}, T=512, N=3, L=4, H=4))
    found["axes"]["lengths"]["max_length"] = 4096
    found["axes"]["H"]["max"] = 8
    found["inputs"]["scale"] |= {"low": 0.5, "high": 2.0}
    found["outputs"]["y"]["groups"] = ["H"]
    decided = {key: written[key] for key in written if key not in {"axes", "inputs", "outputs"}}
    folder = shutil.copytree(CENTER, tmp_path / "center")
    held = {key: value for key, value in (found | decided).items() if not isinstance(value, Undecided)}
    (folder / "contract.yaml").write_text(dump_yaml(held, flow=True), encoding="utf-8")
    made = load_contract(tmp_path, "center").contract
    assert list(made.inputs) == list(wanted.inputs)
    assert made == wanted


def places(document: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of everything in a document."""
    for key in document if isinstance(document, dict) else range(len(document) if isinstance(document, list) else 0):
        yield (*path, key)
        yield from places(document[key], (*path, key))


NAMES = st.sampled_from(["tokens", "width", "seqs", "len_offsets", "on", "null", "yes", "lambda", "x", "é", "`a`\n#"])
PIECES = st.one_of(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | NAMES,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=6,
    ),
    st.sampled_from([{"type": "var"}, {"type": "const", "value": 3}, {"shape": ["width"], "dtype": "uint8"}]),
    st.sampled_from(["int32", "float16", "tokens == offsets[-1]", "seqs == len_offsets + 1", "width == seqs + 1"]),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(document=st.sampled_from([RAGGED, *(each for each, _ in PUBLIC)]), data=st.data())
def test_a_definition_with_anything_anywhere_is_refused_or_drafted(tmp_path: Path, document: Json, data: st.DataObject):
    path = data.draw(st.sampled_from(sorted(places(document), key=str)))
    spoilt = copy.deepcopy(document)
    held: Any = spoilt
    for key in path[:-1]:
        held = held[key]
    held[path[-1]] = data.draw(PIECES)
    try:
        definition = read_definition(text(spoilt), "definition.json")
    except DataError:
        return
    assert NAME.fullmatch(suggested_name(definition))
    folder = write_new(Path(tempfile.mkdtemp(dir=tmp_path)), "toy", draft(definition, [], "toy"))
    compile((folder / "oracle.py").read_text(encoding="utf-8"), "oracle.py", "exec")
    with pytest.raises(DataError) as caught:
        load_contract(folder.parent, folder.name)
    assert {problem.path for problem in caught.value.problems} >= set(PEOPLES)


CONSTRAINTS = {
    "no constraints": ([], "seqs"),
    "an axis made of itself": (["len_offsets == len_offsets + 1"], "len_offsets"),
    "two made of each other": (["len_offsets == seqs + 1", "seqs == len_offsets + 1"], "seqs"),
    "offsets of the wrong length": (["len_offsets == seqs + 2", "tokens == offsets[-1]"], "tokens"),
    "a sum that is fixed": (["len_offsets == seqs + 1", "width == offsets[-1]"], "tokens"),
    "the end of something else": (["len_offsets == seqs + 1", "tokens == x[-1]"], "tokens"),
    "the end of nothing": (["len_offsets == seqs + 1", "tokens == nothing[-1]"], "tokens"),
    "a program": (["__import__('os').system('true') == seqs + 1", "(" * 300], "seqs"),
}


@pytest.mark.parametrize(("constraints", "axis"), CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_a_constraint_that_says_something_else_is_kept_and_not_guessed(
    tmp_path: Path, constraints: list[str], axis: str
):
    document = changed(RAGGED, ("constraints", constraints))
    found = contract(document)
    assert isinstance(found["axes"][axis]["max"], Undecided)
    assert "offsets_of" not in found["inputs"]["offsets"]
    undecided(write_new(tmp_path, "toy", drafted(document)))


def test_our_name_for_lengths_is_not_taken_from_another_axis():
    document = changed(
        RAGGED, ("axes.lengths", {"type": "const", "value": 4}), ("axes.lengths_0", {"type": "const", "value": 5})
    )
    axes = contract(document)["axes"]
    assert axes["tokens"] == {"total_of": "lengths_1"}
    assert axes["lengths"] == {"const": 4}


def test_words_of_yaml_stay_names(tmp_path: Path):
    document = changed(
        RAGGED,
        ("axes.on", {"type": "const", "value": 2}),
        ("inputs.yes", {"shape": ["on"], "dtype": "float32", "description": '!decide "x": {a: b} # \'\n- &x'}),
        ("description", "a: b\n---\nname: other\u202e <!-- x -->"),
    )
    found = contract(document)
    assert found["axes"]["on"] == {"const": 2}
    assert found["inputs"]["yes"]["shape"] == ["on"]
    assert found["inputs"]["yes"]["doc"] == '!decide "x": {a: b} # \' - &x'
    assert found["name"] == "toy"
    assert "\u202e" not in drafted(document)["contract.yaml"]
    undecided(write_new(tmp_path, "toy", drafted(document)))


def test_nothing_of_a_reference_is_a_program_of_ours():
    document = changed(
        RAGGED,
        (
            "reference",
            'raise SystemExit(7)\ndef run(x):\r\n    """a"""\x0c\n    exit(1)\u2028exit(2)\u202e\rexit(3)\n{x} %s\n',
        ),
    )
    oracle = drafted(document)["oracle.py"]
    names: Json = {}
    exec(compile(oracle, "oracle.py", "exec"), names)  # noqa: S102 - that it does nothing is what is asked
    with pytest.raises(NotImplementedError, match="a draft"):
        names["oracle"](x=1, bias=None, offsets=None, scale=1.0, noise=None)
    assert names["__doc__"].startswith("DRAFT of the float64 reference of toy: it computes nothing yet.")
    assert "\u202e" not in oracle
    assert "# raise SystemExit(7)\n# def run(x):\n" in oracle


def test_a_contract_whose_oracle_is_still_a_draft_is_refused(tmp_path: Path):
    document = changed(
        RAGGED,
        ("inputs", {name: {"shape": None, "dtype": "float32"} for name in ("x", "offset", "scale", "cu_seqlens")}),
        ("constraints", []),
    )
    folder = shutil.copytree(CENTER, tmp_path / "contracts" / "center")
    (folder / "oracle.py").write_text(drafted(document)["oracle.py"], encoding="utf-8")
    assert drawn_and_asked(tmp_path / "contracts")["oracle.py"].startswith("NotImplementedError: a draft")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "contracts").mkdir()
    (tmp_path / "definition.json").write_text(text(RAGGED), encoding="utf-8")
    (tmp_path / "w.jsonl").write_text(LINES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def test_the_command_drafts_and_check_says_what_is_missing(project: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.run(["contract", "import", "definition.json", "--name", "toy", "--workloads", "w.jsonl"]) == 0
    assert "contracts/toy drafted: `proctor contract check toy`" in capsys.readouterr().out
    assert sorted(path.name for path in (project / "contracts" / "toy").iterdir()) == ["contract.yaml", "oracle.py"]
    assert cli.run(["contract", "check", "toy"]) == 1
    said = capsys.readouterr().out
    assert "✗ toy: 12 problems" in said
    assert "regimes: to be decided: how callers' values are spread" in said
    assert cli.run(["contract", "import", "definition.json", "--name", "toy"]) == 2, "nothing is overwritten"
    assert "contracts/toy exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["definition.json", "--name", "../toy"], "is no name for a contract"),
        (["definition.json", "--name", ""], "is no name for a contract"),
        (["nowhere.json", "--name", "toy"], "nowhere.json cannot be read: No such file"),
        (["contracts", "--name", "toy"], "contracts cannot be read: Is a directory"),
        (["w.jsonl", "--name", "toy"], "w.jsonl: 1 problem"),
        (["/dev/zero", "--name", "toy"], f"at most {DEFINITION_LIMIT} are read"),
        (["definition.json", "--name", "toy", "--workloads", "definition.json"], "definition.json: "),
        (["definition.json"], "Missing option '--name'"),
    ],
)
def test_a_wrong_command_writes_nothing(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
):
    assert cli.run(["contract", "import", *arguments]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err
    assert list((project / "contracts").iterdir()) == []
