"""An issue with a definition of flashinfer-bench: the contract that follows it is meant, or what lacks is said."""

import re
import shutil

import pytest

from bot.contract.interchange.draft import draft
from bot.contract.interchange.flashinfer_bench import read_definition
from bot.contract.new import write_new
from bot.handlers.asked import NEEDS_INFO
from tests.contracts.definitions import RAGGED, Json, changed, text
from tests.handlers.conftest import Town
from tests.handlers.street import Street
from tests.handlers.test_optimize import row

CENTER: Json = {
    "name": "center_h4_d64",
    "op_type": "toy",
    "axes": {
        "rows": {"type": "var"},
        "sequences": {"type": "var"},
        "offsets": {"type": "var"},
        "heads": {"type": "const", "value": 4},
        "width": {"type": "const", "value": 64},
    },
    "inputs": {
        "x": {"shape": ["rows", "heads", "width"], "dtype": "bfloat16"},
        "offset": {"shape": ["sequences", "width"], "dtype": "float32", "optional": True},
        "scale": {"shape": None, "dtype": "float32"},
        "cu_seqlens": {"shape": ["offsets"], "dtype": "int64"},
    },
    "outputs": {"y": {"shape": ["rows", "heads", "width"], "dtype": "bfloat16"}},
    "reference": "def run(x, offset, scale, cu_seqlens):\n    raise SystemExit(7)\n",
}
"""What the small contract covers."""


def form(definition: str, contract: str = "_No response_") -> str:
    attached = f"### Definition\n\n```json\n{definition}\n```"
    return f"### Contract\n\n{contract}\n\n{attached}\n\n### What matters\n\nLong rows.\n"


def follow(town: Town, name: str = "center_h4_d64", contract: str = "center") -> None:
    """Let a contract say that it follows a public definition."""
    path = town.project.contracts / contract / "contract.yaml"
    said = path.read_text(encoding="utf-8")
    said = re.sub("^summary: ", f"summary: public name {name} (flashinfer-bench). ", said, flags=re.MULTILINE)
    path.write_text(said, encoding="utf-8")


def refused(street: Street, body: str) -> str:
    """The answer to a request that is not carried out, which is labelled."""
    issue = street.town.open_issue(body)
    passed, run = street.town.label(issue)
    assert not passed.go
    assert not run.path.exists()
    assert NEEDS_INFO in [label.name for label in street.town.github.issue(issue).labels]
    (said,) = street.town.said(issue)
    return said


def test_a_definition_of_which_there_is_no_contract_is_understood_and_the_command_given(street: Street) -> None:
    said = refused(street, form(text(RAGGED)))
    assert said.startswith("Not started. `E_DEFINITION_ALONE`: A definition is attached, and no contract here follows")
    digest = read_definition(text(RAGGED), "x").digest
    assert row(said, "definition") == f"`ragged_scale_d64`, of type `toy`, `{digest[:7]}`"
    assert row(said, "axes") == "`tokens varies`, `seqs varies`, `len_offsets varies`, `width = 64`"
    assert row(said, "inputs") == (
        "`x: bfloat16 [tokens, width]`, `bias: float32 [seqs, width], may be absent`, "
        "`offsets: int64 [len_offsets]`, `scale: float32 by value`"
    )
    assert row(said, "outputs") == "`y: bfloat16 [tokens, width]`"
    for key in ("regimes", "limits", "probes", "controls"):
        assert f"`{key}`" in said
    assert "```\nproctor contract import definition.json --name ragged_scale_d64\n```" in said


def test_the_contract_of_that_public_name_is_meant(street: Street) -> None:
    follow(street.town)
    issue = street.town.open_issue(form(text(CENTER)))
    passed, run = street.town.label(issue)
    assert (passed.go, run.order().contract) == (True, "center")
    (said,) = street.town.said(issue)
    assert said.startswith("Working on `center`")
    assert row(said, "definition").startswith("`center_h4_d64`, `")
    assert row(said, "definition").endswith(": the contract covers its axes, inputs and outputs")


def test_a_hint_is_for_the_contract_that_the_definition_means(street: Street) -> None:
    follow(street.town)
    issue = street.town.open_issue(form(text(CENTER)))
    assert street.refused(issue, "/focus nowhere") == "E_UNKNOWN_WORKLOAD"
    assert street.refused(street.town.open_issue(form(text(RAGGED))), "/hint Quick.") == "E_DEFINITION_ALONE"


def test_what_that_contract_does_not_cover_is_listed(street: Street) -> None:
    follow(street.town)
    said = refused(
        street,
        form(text(changed(CENTER, ("inputs.x.dtype", "float16"), ("axes.heads.value", 9), ("inputs.scale", ...)))),
    )
    assert "`E_DEFINITION_DIFFERS`: The attached definition `center_h4_d64` asks for what the contract center" in said
    assert "- `inputs.x.dtype: is float16, in the contract bfloat16`" in said
    assert "- `inputs.x.shape[1]: heads is 9, in the contract H from 1 to 8`" in said
    assert "- `inputs: the contract has scale, which the definition has not`" in said
    assert "write center into “Contract”" in said


def test_a_contract_that_is_named_decides_and_differences_are_shown(street: Street) -> None:
    issue = street.town.open_issue(form(text(changed(CENTER, ("inputs.x.dtype", "float16"))), "center"))
    assert street.town.label(issue)[0].go
    (said,) = street.town.said(issue)
    assert row(said, "definition").endswith(
        "the contract decides, and does not cover `inputs.x.dtype: is float16, in the contract bfloat16`"
    )


def test_a_draft_is_no_contract_yet(street: Street) -> None:
    definition = read_definition(text(RAGGED), "x")
    write_new(street.town.project.contracts, "toy", draft(definition, [], "toy"))
    assert "`E_CONTRACT_BROKEN`: The contract `toy` of the default branch has mistakes" in refused(
        street, form(text(RAGGED))
    )


def test_two_contracts_that_cover_it_are_named(street: Street) -> None:
    contracts = street.town.project.contracts
    follow(street.town)
    shutil.copytree(contracts / "center", contracts / "other")
    path = contracts / "other" / "contract.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("name: center", "name: other"), encoding="utf-8")
    said = refused(street, form(text(CENTER)))
    assert "`E_DEFINITION_SHARED`: More than one contract here follows the attached definition `center_h4_d64`" in said
    assert "label the issue again: center, other." in said


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("{", "“Definition”, `(root)`: `not JSON: Expecting property name"),
        ('{"name": "a", "name": "b"}', "“Definition”, `name`: `stands twice`"),
        (
            text(changed(CENTER, ("inputs.x.dtype", "<img src=x> @maintainer"))),
            "“Definition”, `inputs.x.dtype`: `'<img src=x> @maintainer' is no type that a contract can hold",
        ),
        (text(changed(CENTER, ("name", "a`\n@maintainer"))), "“Definition”, `name`: `String should match"),
        (text(CENTER | {"`x`\n\n@maintainer": 10**40}), "“Definition”, `'x' @maintainer`: `is no number"),
    ],
    ids=["no JSON", "a key twice", "a tag as a type", "a name of two lines", "a key of several lines"],
)
@pytest.mark.parametrize("contract", ["_No response_", "center"])
def test_a_definition_that_cannot_be_read_is_said_with_its_path(
    street: Street, definition: str, said: str, contract: str
) -> None:
    answer = refused(street, form(definition, contract))
    assert answer.startswith("Not started. `E_REQUEST_FORM`")
    assert said in answer
    assert len(answer) < 10_000
