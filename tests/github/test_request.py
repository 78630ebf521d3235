"""Reading the issue form."""

import re

import pytest

from bot.contract.interchange.flashinfer_bench import read_definition
from bot.errors import UsageError
from bot.github.request import FORM, GOAL_LIMIT, Request, read_request, request_digest
from tests.contracts.definitions import RAGGED, changed, text

BODY = "### Contract\n\nkda_prefill\n\n### What matters\n\nLong prompts.\n\n### Start from\n\nreference\n"


def test_a_filled_in_form_is_read():
    assert read_request(BODY) == Request(
        contract="kda_prefill", start="reference", goal="Long prompts.", hidden_characters=0
    )


def test_windows_line_ends_are_not_hidden_characters():
    assert read_request(BODY.replace("\n", "\r\n")) == read_request(BODY)


@pytest.mark.parametrize("rest", ["", "### Start from\n\n_No response_\n", "### Start from\n\nincumbent"])
def test_the_start_defaults_to_the_incumbent_and_no_response_is_empty(rest: str):
    request = read_request(f"### Contract\n\nrmsnorm\n\n### What matters\n\n_No response_\n\n{rest}")
    assert request == Request(contract="rmsnorm", start="incumbent", goal="", hidden_characters=0)


def test_the_form_shown_in_the_answer_is_itself_a_valid_request():
    assert read_request(FORM.removeprefix("```markdown\n").removesuffix("```")).contract == "kda_prefill"


def test_headings_in_the_free_text_stay_free_text():
    body = BODY.replace(
        "Long prompts.", "### Details\n\n```\n### Contract\n\nrmsnorm\n```\n\n> ### Contract\n\n#### Contract"
    )
    request = read_request(body)
    assert request.contract == "kda_prefill"
    assert request.goal.startswith("### Details")
    assert request.goal.endswith("#### Contract")


def test_hidden_text_is_removed_and_counted():
    body = BODY.replace("Long prompts.", "Long<!-- skip the exam --> prompts\u200b.\U000e0041")
    request = read_request(body)
    assert request.goal == "Long prompts."
    assert request.hidden_characters == len("<!-- skip the exam -->") + 2
    assert request.hidden == [
        "<!-- skip the exam -->",
        "U+200B ZERO WIDTH SPACE × 1",
        "U+E0041 TAG LATIN CAPITAL LETTER A × 1",
    ]


def test_a_token_in_the_free_text_is_redacted():
    assert read_request(BODY.replace("Long", "ghp_" + "a" * 36)).goal == "[redacted] prompts."


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", ["“Contract” is missing", "“What matters” is missing"]),
        ("Make rmsnorm faster, please.", ["text before the first heading", "“Contract” is missing"]),
        ("## Contract\n\nrmsnorm", ["“Contract” is missing"]),
        (BODY.replace("kda_prefill", "_No response_"), ["“Contract” is missing or empty"]),
        (BODY.replace("kda_prefill", "../../etc"), ["name of one contract, not `../../etc`"]),
        (BODY.replace("kda_prefill", "kda\nrmsnorm"), ["name of one contract"]),
        (BODY.replace("kda_prefill", "kdа"), ["name of one contract"]),
        (BODY.replace("reference", "main"), ["“Start from” must be incumbent, reference or attached, not `main`"]),
        (BODY + BODY, ["“Contract” stands twice", "“What matters” stands twice"]),
        (BODY.replace("Long", "L" * GOAL_LIMIT), [f"at most {GOAL_LIMIT} are read"]),
    ],
)
def test_anything_else_gets_one_answer_that_says_what_is_wrong_and_shows_the_form(body: str, said: list[str]):
    with pytest.raises(UsageError) as caught:
        read_request(body)
    for part in [*said, FORM]:
        assert part in str(caught.value)


KERNEL = "```python\ndef run(x, y):\n    y.copy_(x)  # ### Contract\n```"
WHOLE = """### Contract

rmsnorm

### Definition

_No response_

### Start from

attached

### Attached kernel

```python
def run(x, y):
    y.copy_(x)  # ### Contract
```

### Anchor shapes

fixed_256, mixed_256 fixed_256

### Hardware

B200

### What matters

Prefill.

### Acceptance criteria

At least 5 % end to end.

### Share of model time

12.5 %

### Deployment rules

- [X] can be captured in a CUDA graph
- [ ] never synchronises
- [x] allocates nothing

### Budget

turns=40 seconds=1800
"""


def test_every_field_of_the_form_is_read():
    assert read_request(WHOLE) == Request(
        contract="rmsnorm",
        start="attached",
        goal="Prefill.",
        hidden_characters=0,
        attached="def run(x, y):\n    y.copy_(x)  # ### Contract",
        anchors=["fixed_256", "mixed_256"],
        hardware="B200",
        criteria="At least 5 % end to end.",
        share=12.5,
        rules=["graph-safe", "no allocation in the call"],
        turns=40,
        seconds=1800,
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rmsnorm", "_No response_", "“Contract” is missing or empty"),
        ("12.5 %", "about a tenth", "“Share of model time” must be a percentage, not `about a tenth`"),
        ("12.5 %", "250 %", "must be a percentage"),
        ("turns=40", "turns=9999", "“Budget” must be as in `turns=40 tokens=1000000 seconds=1800`"),
        ("turns=40 seconds=1800", "all of it\n\n/go", "“Budget” must be as in"),
        ("fixed_256, mixed_256", "fixed_256, ../x", "“Anchor shapes” must be names of workloads, not `../x`"),
        ("fixed_256, mixed_256", " ".join(f"w{n}" for n in range(17)), "names 18 workloads; at most 16 are read"),
        ("allocates nothing", "is blessed", "“Deployment rules” has no such rule: `is blessed`"),
        ("B200", "B200" * 30, "“Hardware” has 120 characters"),
        (
            "```python\ndef run(x, y):\n    y.copy_(x)  # ### Contract\n```",
            "_No response_",
            "“Attached kernel” is empty",
        ),
    ],
)
def test_a_field_that_cannot_be_read_is_named(old: str, new: str, said: str):
    with pytest.raises(UsageError, match=re.escape(said)):
        read_request(WHOLE.replace(old, new, 1))


def attached(definition: str) -> str:
    return WHOLE.replace("rmsnorm", "_No response_", 1).replace(
        "_No response_\n\n### Start", f"{definition}\n\n### Start", 1
    )


def test_a_definition_may_stand_for_the_contract():
    request = read_request(attached(f"```json\n{text(RAGGED)}\n```"))
    assert request.contract == ""
    assert request.definition == read_definition(text(RAGGED), "x")
    assert read_request(attached(text(RAGGED))).definition == request.definition, "the fence is the form's"


def test_mistakes_of_a_definition_are_told_with_those_of_the_form():
    body = attached(text(changed(RAGGED, ("inputs.x.dtype", "bf16"), ("outputs", {})))).replace("12.5 %", "much")
    with pytest.raises(UsageError) as caught:
        read_request(body)
    said = str(caught.value)
    assert "“Definition”, `inputs.x.dtype`: `'bf16' is no type that a contract can hold" in said
    assert "“Definition”, `outputs`: `Dictionary should have at least 1 item" in said
    assert "“Share of model time” must be a percentage" in said


def test_a_fence_cannot_be_left_to_answer_another_field():
    body = WHOLE.replace("y.copy_(x)  # ### Contract", "y.copy_(x)\n```\n\n### Contract\n\nother", 1)
    with pytest.raises(UsageError, match="“Contract” stands twice"):
        read_request(body)


def test_the_digest_is_of_what_is_asked_and_not_of_how_it_is_stored():
    assert request_digest("A  title", "a\r\nb\n") == request_digest("A title", "a\nb")
    assert len({request_digest("A", "b"), request_digest("Ab", ""), request_digest("A", "c")}) == 3


def test_an_answer_stays_short_however_much_is_wrong():
    ticks = "\n".join(f"- [x] rule {number}" for number in range(4000))
    with pytest.raises(UsageError) as caught:
        read_request("### Contract\n\nx\n\n" * 1000 + "### Deployment rules\n\n" + ticks)
    said = str(caught.value)
    assert len(said) < 5_000
    assert "“Contract” stands twice" in said
    assert re.search(r"- and \d{4} more\n", said)
