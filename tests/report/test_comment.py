"""What the bot says, word for word and under attack."""
# ruff: noqa: E501 - the expected comments stand as they are

import re

import pytest
from inline_snapshot import snapshot
from markdown_it import MarkdownIt

from bot.evaluation import BaselineState, Environment, FailedProbe, Influence
from bot.report.comment import COMMENT_LIMIT, render_comment, render_issue_outcome, render_summary
from bot.verdict import Kind, decide
from tests.report.builders import (
    accuracy,
    agent_run,
    cell,
    cells,
    confirmed,
    counterexample,
    evaluation,
    grade,
    influence_map,
    refusal,
    refused,
    report_facts,
    smallest,
    taught,
)
from tests.report.test_tables import variant

DIGEST = "7c1e09ab" * 8


def first_line(text: str) -> str:
    return text.split("\n", 1)[0]


@pytest.mark.parametrize(
    ("needed", "said"),
    [
        (1, "needs one approval: `/approve 7c1e09ab7c1e09ab` or an approving review**"),
        (3, "needs 3 approvals, each by `/approve 7c1e09ab7c1e09ab` or an approving review**"),
    ],
)
def test_a_report_says_how_many_must_approve(needed: int, said: str):
    assert first_line(render_comment(report_facts(approval=DIGEST, needed=needed))).endswith(said)


def test_an_improved_candidate_as_the_reader_sees_it():
    tampered = refused(2, None, kind="tampered", reason="wrote into `weight`", counterexample=None, diagnosis=[])
    facts = report_facts(approval=DIGEST, issue=12, agent_run=agent_run(refused(1), tampered))
    assert render_comment(facts) == snapshot("""\
**✅ improved · 1.449x (1.445–1.452, n=160) over the bar token_loop, geometric mean of 4 cells · needs one approval: `/approve 7c1e09ab7c1e09ab` or an approving review**
run 1 of 1, confirmed with a second salt · 2 attempts, 2 refused on the way · cpu, x86_64 · kda_prefill@`4f2a000` · judge `9d31000` · candidate `torch_chunked` · for #12

- `the lower bound 1.445 is above 1.010`

| workload | regime | candidate, ms | bar: token_loop (reference) | chunked_fp32 (competitor) | bar ÷ candidate | | floor |
|---|---|--:|--:|--:|--:|---|--:|
| T256_H4 | slow | 2.67 | 3.99 | 5.19 | **1.497x (1.492–1.504, n=40)** | faster | – |
| mixed | slow | 2.86 | 4.01 | 5.18 | **1.400x (1.393–1.405, n=40)** | faster | – |

Of each workload the slowest regime against the bar. Times are medians of the verifier's clock; candidate and bar interleaved call by call in fresh workers, the bar never above its time alone; the other baselines alone. A/A floor 0.21 %, a call that does nothing 0 % of the bar's time: a gain must exceed both; measured again like this, the speedup comes out within ±0.38 % of this one 19 times of 20, as far as its rounds tell; n counts pairs of calls, intervals are 95 %.
Not compared: fla (official) is unavailable: `no module fla`.

| error against float64, noise units | median / limit | p99 / limit | max / limit | worst group | relative L2 | by token position, octaves |
|---|--:|--:|--:|---|--:|---|
| candidate · out | **1.0** / 1.8 | **3.1** / 6.0 | 5.0 / 16 | `H=3` | 0.0021 | 1.0 → 1.5 ▅▅▅▆▇ |
| token_loop · out | **0.95** / 1.8 | 2.9 / 6.0 | 4.8 / 16 | `H=3` | 0.0021 | 0.95 → 1.4 ▅▅▅▅▇ |

Bold: above half its limit. A full bar is the median's limit. Of several draws the worst; those of a confirmation were asked of the candidate alone.

**Exam** build ✓ 2/2 · smoke ✓ 2/2 · correctness ✓ 54/54 · probes ✓ 18/18 · influence ✓ 24/24 · relations ✓ 6/6 · integrity ✓ 8/8 · timing ✓ 160/160 · controls ✓ 9/9 · judge's grade: caught 2/2 controls (weakest margin 3.40x), accepted 1/1 honest variants

<details><summary>All 4 cells</summary>

| workload | regime | candidate, ms | bar: token_loop (reference) | chunked_fp32 (competitor) | bar ÷ candidate | | floor |
|---|---|--:|--:|--:|--:|---|--:|
| T256_H4 | fast | 2.66 | 3.99 | 5.19 | **1.499x (1.498–1.503, n=40)** | faster | – |
| T256_H4 | slow | 2.67 | 3.99 | 5.19 | **1.497x (1.492–1.504, n=40)** | faster | – |
| mixed | fast | 2.85 | 3.99 | 5.19 | **1.40x (1.39–1.41, n=40)** | faster | – |
| mixed | slow | 2.86 | 4.01 | 5.18 | **1.400x (1.393–1.405, n=40)** | faster | – |

</details>

<details><summary>Refused candidates (2)</summary>

| # | claimed | why | counterexample | probes it fails |
|--:|---|---|---|---|
| 1 | ~~3.74x~~ claimed, not a speedup | incorrect at probes: `out is 58 units from the oracle where 16 are allowed` | `out[3, 0, 17] (H=0) in probe scaled_queries with H=1, lengths=[16]`: candidate `0.812`, oracle `0.203`; `58 units, maximum limit 16` | scaled_queries (breaks `a norm replaced by a constant`) |
| 2 | – | tampered at probes: `wrote into 'weight'` | – | – |

</details>

<details><summary>Scope of the claim</summary>

Holds for cpu (x86_64), Python `3.11.9`, torch `2.13.0+cpu`, `Linux 6.8`, and the 4 scored cells of kda_prefill version 1.

Not checked: other devices and versions; sizes outside the contract's legal domain; gradients; the effect on a whole model; races that show only on other hardware.

</details>
<details><summary>Conditions</summary>

- cores 2, threads a worker 1, sandbox bubblewrap
- run of `2026-11-30T10:02:11Z`: mode exam, 46 s, 80 timed calls compared, evaluation `f916074`
- confirmation of `2026-11-30T10:03:00Z`: mode confirm, 21 s, 80 timed calls compared
- agent: model `replay`, 14 turns, 24000 tokens in and 5100 out, 62 s, stopped because `submitted`
- feedback to the agent took 3.0 s in the median, 3.1 s at most (n=3)

</details>
<details><summary>Reproduce</summary>

`proctor verify kernels/kda_prefill/torch_chunked.py --contract kda_prefill --device cpu --mode exam`

- salt `cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd`, whose SHA-256 `abababababababababababababababababababababababababababababababab` was in the job's log before candidate code was loaded
- salt `efefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefef` of the confirmation, whose SHA-256 `fefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefefe` was in the job's log before candidate code was loaded

</details>
""")


def test_a_refused_candidate_as_the_reader_sees_it():
    facts = report_facts(evaluation("quick", refusal=refusal()), previous=decide([evaluation()]))
    shown = render_comment(facts)
    assert shown[: shown.index("| error against")] == snapshot("""\
**❌ incorrect · nothing to do**
run 1 of 1 · cpu, x86_64 · kda_prefill@`4f2a000` · judge `9d31000` · candidate `torch_chunked` · before: improved 1.449x (1.445–1.452, n=160), so that an earlier approval is void

- `probes, probe scaled_queries: out is 58 units from the oracle where 16 are allowed`

Counterexample: `out[3, 0, 17] (H=0) in probe scaled_queries with H=1, lengths=[16]`: candidate `0.812`, oracle `0.203`; `58 units, maximum limit 16`
It fails scaled_queries (breaks `a norm replaced by a constant`)

Not compared: fla (official) is unavailable: `no module fla`.

""")


def test_what_a_refusal_teaches_stands_open_for_the_candidate_and_folded_for_those_before_it():
    facts = report_facts(
        evaluation("quick", refusal=taught()),
        agent_run=agent_run(refused(1), refused(2, smallest=smallest(), influence=influence_map())),
    )
    shown = render_comment(facts)
    assert shown[shown.index("Counterexample") : shown.index("Not compared")] == snapshot("""\
Counterexample: `out[3, 0, 17] (H=0) in probe scaled_queries with H=1, lengths=[16]`: candidate `0.812`, oracle `0.203`; `58 units, maximum limit 16`
The smallest found: `out[0, 0, 0] (H=0) in probe scaled_queries with H=1, lengths=[1]`: candidate `1.2`, oracle `0.203`; `61 units, maximum limit 16`; inputs `absent: state; ones: k; as drawn: q`; 9 smaller ones asked
It fails scaled_queries (breaks `a norm replaced by a constant`)

Influence in `T256_H4/fast`, how far each part of an output follows when one part of one input is changed:

```text
 k: out forgets it 4 parts later
 parts of tokens of each sequence down, parts of each output across
     out       final_state
  1  ████····  ████████
  2   ████···  ████████
  3    ████··  ████████
  4     ████·  ████████
  5      ████  ████████
  6       ███  ████████
  7        ██  ████████
  8         █  ████████
 beta: part 3 read where it must not be
 parts of tokens of each sequence down, parts of each output across
     out       final_state
  1  ▒▒▒▒▒▒▒▒  ████████
  2   ▒▒▒▒▒▒▒  ████████
  3   !▒▒▒▒▒▒  ████████
  4     ▒▒▒▒▒  ████████
  5      ▒▒▒▒  ████████
  6       ▒▒▒  ████████
  7        ▒▒  ████████
  8         ▒  ████████
 state: over-reacts; answers the other way
 parts of V down, parts of each output across
     out       final_state
  1  xxxx++++  ████████
  2  xxxx++++  ████████
  3  xxxx++++  ████████
  4  xxxx++++  ████████
  5  xxxx++++  ████████
  6  xxxx++++  ████████
  7  xxxx++++  ████████
  8  xxxx++++  ████████
 bias: not read
 as it must be: q
 █ answers as it must   ▓▒░ answers partly   · not read   + over-reacts   x answers the other way   ! read where it must not be   blank: the oracle does not answer either
```

""")
    folded = shown[shown.index("<details><summary>Attempt") : shown.index("<details><summary>Scope")]
    assert folded == snapshot("""\
<details><summary>Attempt 2: the smallest counterexample and what it reads</summary>

The smallest found: `out[0, 0, 0] (H=0) in probe scaled_queries with H=1, lengths=[1]`: candidate `1.2`, oracle `0.203`; `61 units, maximum limit 16`; inputs `absent: state; ones: k; as drawn: q`; 9 smaller ones asked

Influence, how far each part of an output follows when one part of one input is changed:

```text
 k: out forgets it 4 parts later
 parts of tokens of each sequence down, parts of each output across
     out       final_state
  1  ████····  ████████
  2   ████···  ████████
  3    ████··  ████████
  4     ████·  ████████
  5      ████  ████████
  6       ███  ████████
  7        ██  ████████
  8         █  ████████
 beta: part 3 read where it must not be
 parts of tokens of each sequence down, parts of each output across
     out       final_state
  1  ▒▒▒▒▒▒▒▒  ████████
  2   ▒▒▒▒▒▒▒  ████████
  3   !▒▒▒▒▒▒  ████████
  4     ▒▒▒▒▒  ████████
  5      ▒▒▒▒  ████████
  6       ▒▒▒  ████████
  7        ▒▒  ████████
  8         ▒  ████████
 state: over-reacts; answers the other way
 parts of V down, parts of each output across
     out       final_state
  1  xxxx++++  ████████
  2  xxxx++++  ████████
  3  xxxx++++  ████████
  4  xxxx++++  ████████
  5  xxxx++++  ████████
  6  xxxx++++  ████████
  7  xxxx++++  ████████
  8  xxxx++++  ████████
 bias: not read
 as it must be: q
 █ answers as it must   ▓▒░ answers partly   · not read   + over-reacts   x answers the other way   ! read where it must not be   blank: the oracle does not answer either
```

</details>

</details>

""")


@pytest.mark.parametrize(
    ("statistic", "words"),
    [
        ("bar", "bar `0.203`; `58 units from the bar, limit 16`"),
        ("leak", "itself before `0.203`"),
        ("relation", "itself asked otherwise `0.203`"),
        ("set", "the cut `0.203`"),
    ],
)
def test_no_other_answer_is_called_the_oracles(statistic, words):
    found = counterexample(statistic=statistic)
    bad = refusal(reason="x", counterexample=found, smallest=smallest(counterexample=found))
    facts = report_facts(evaluation("quick", refusal=bad), agent_run=agent_run(refused(1, counterexample=found)))
    for shown in (render_comment(facts), render_issue_outcome(facts)):
        assert shown.count(words) == 3
        assert ", oracle `" not in shown


def test_a_confirmation_is_a_run_with_a_salt_of_its_own():
    shown = render_comment(report_facts())
    assert "\nrun 1 of 1, confirmed with a second salt · cpu" in shown
    assert "correctness ✓ 54/54" in shown
    assert f"- salt `{'cd' * 32}`, whose SHA-256" in shown
    assert f"- salt `{'ef' * 32}` of the confirmation, whose SHA-256 `{'fe' * 32}` was" in shown
    assert "- confirmation of `2026-11-30T10:03:00Z`: mode confirm, 21 s, 80 timed calls compared\n" in shown
    assert "--mode exam`" in shown


def test_a_confirmation_that_refuses_confirms_nothing():
    shown = render_comment(report_facts(confirmed(refusal=taught())))
    assert "confirmed with" not in shown
    assert "The smallest found: " in shown


def test_of_several_runs_those_that_were_confirmed_are_counted():
    runs = [evaluation(), evaluation(started_at="2026-11-30T09:00:00Z", confirmation=None)]
    assert "run 2 of 2, pooled, 1 confirmed with a second salt" in render_comment(report_facts(*runs))


def test_the_grade_tells_gated_from_graded():
    made = grade().model_copy(update={"variants": [variant(), variant(0.25), variant(0.1, refused=False)]})
    told = "accepted 1/1 honest variants, gated caught 1/1, graded caught 1/2 (all from severity 0.250 on)"
    assert told in render_comment(report_facts(evaluation(grade=made)))


def test_a_summary_is_the_head_the_reasons_and_one_table():
    facts = report_facts(evaluation(cells=cells()[:1]), issue=12, pull=34)
    assert render_summary(facts) == snapshot("""\
**✅ improved · 1.499x (1.498–1.501, n=40) over the bar token_loop, geometric mean of 1 cell · nothing to do**
run 1 of 1, confirmed with a second salt · cpu, x86_64 · kda_prefill@`4f2a000` · judge `9d31000` · candidate `torch_chunked` · for #12 · pull request #34

- `the lower bound 1.498 is above 1.010`

| workload | regime | candidate, ms | bar: token_loop (reference) | chunked_fp32 (competitor) | bar ÷ candidate | | floor |
|---|---|--:|--:|--:|--:|---|--:|
| T256_H4 | fast | 2.66 | 3.99 | 5.19 | **1.499x (1.498–1.501, n=40)** | faster | – |

**Exam** build ✓ 2/2 · smoke ✓ 2/2 · correctness ✓ 54/54 · probes ✓ 18/18 · influence ✓ 24/24 · relations ✓ 6/6 · integrity ✓ 8/8 · timing ✓ 160/160 · controls ✓ 9/9 · judge's grade: caught 2/2 controls (weakest margin 3.40x), accepted 1/1 honest variants
""")


def test_an_issue_without_an_accepted_candidate_gets_the_table_of_refused_ones():
    facts = report_facts(agent_run=agent_run(refused(1))).model_copy(update={"evaluations": [], "verdict": None})
    assert render_issue_outcome(facts) == snapshot("""\
**❌ no candidate was accepted, so there is no pull request · nothing to do**
1 attempt, 1 refused · 14 turns, 62 s, 24000 tokens in and 5100 out · model `replay` · stopped because `submitted`
kda_prefill@`4f2a000` · judge `9d31000` · cpu, x86_64

| # | claimed | why | counterexample | probes it fails |
|--:|---|---|---|---|
| 1 | ~~3.74x~~ claimed, not a speedup | incorrect at probes: `out is 58 units from the oracle where 16 are allowed` | `out[3, 0, 17] (H=0) in probe scaled_queries with H=1, lengths=[16]`: candidate `0.812`, oracle `0.203`; `58 units, maximum limit 16` | scaled_queries (breaks `a norm replaced by a constant`) |
""")


def test_an_issue_on_which_the_agent_wrote_nothing_is_answered_too():
    facts = report_facts().model_copy(update={"evaluations": [], "verdict": None, "agent_run": agent_run()})
    assert "0 attempts, 0 refused" in render_issue_outcome(facts)


def test_an_issue_outcome_tells_our_failure_from_the_candidates():
    facts = report_facts(evaluation(infrastructure="no device"), agent_run=agent_run())
    assert "ours to repair" in first_line(render_issue_outcome(facts))
    assert "`no device`" in render_issue_outcome(facts)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (evaluation(refusal=refusal()), "**❌ incorrect · nothing to do**"),
        (evaluation(infrastructure="x"), "**🔧 infrastructure · ours to repair, then `/rerun-bench`**"),
        (evaluation(cells=[cell(state="invalid")]), "**⚠️ invalid_measurement · measure again: `/rerun-bench`**"),
        (
            evaluation(grade=grade(survivors=["controls/constant_norm.py"])),
            "**⚠️ verifier_weak · a maintainer must mend the contract first**",
        ),
        (evaluation("quick"), "**⚪ no_gain · correct, no figure for its speed · nothing to do**"),
    ],
)
def test_the_first_line_says_the_result_and_whether_to_act(run, expected):
    assert first_line(render_comment(report_facts(run))) == expected


def test_less_accurate_than_the_bar_stands_in_the_first_line():
    facts = report_facts(evaluation(accuracy=[accuracy(error=1.5), accuracy("token_loop")]))
    assert "less accurate than the bar in out" in first_line(render_comment(facts))


def test_an_incumbent_is_called_that():
    known = [BaselineState(name="token_loop", role="incumbent", state="available", less_accurate=True)]
    shown = render_comment(report_facts(evaluation(baselines=known)))
    assert "over the incumbent, geometric mean of 4 cells" in first_line(shown)
    assert "token_loop (incumbent) is *less accurate* than an honest kernel." in shown


def test_all_runs_stand_in_the_second_line():
    runs = [evaluation(started_at=f"2026-11-30T1{hour}:00:00Z") for hour in range(3)]
    assert "run 3 of 3, pooled" in render_comment(report_facts(*runs)).split("\n")[1]


def test_rendering_twice_gives_the_same_bytes():
    assert render_comment(report_facts()) == render_comment(report_facts())


def test_a_report_without_facts_is_an_error():
    with pytest.raises(ValueError, match="no evaluation"):
        render_comment(report_facts().model_copy(update={"evaluations": []}))


HOSTILE = [
    "@maintainer please /approve deadbee",
    "``` `` ` **bold** [x](javascript:alert(1)) ![i](http://evil.example/x.png)",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "</details></summary><script>alert(1)</script><img src=x onerror=alert(1)>",
    "<!-- proctor:sticky --><!-<!-- x -->- proctor:sticky -->",
    "\n\n# improved\n\n**✅ improved · 99x**\n\n/approve deadbee\n",
    "\u202e\u200b\U000e0041 #1 GH-1 www.evil.example",
    "x" * 100_000,
    "{{ 7 * 7 }}{% raw %}",
]


def hostile_facts(text: str):
    probe = FailedProbe(name=text, breaks=text)
    found = counterexample(where=text, output=text, group=text, candidate=text, oracle=text, axes={text: [1] * 5000})
    bad = refusal(
        reason=text,
        where=text,
        counterexample=found,
        diagnosis=[probe] * 50,
        smallest=smallest(counterexample=found, inputs={text: "zeros", text + "'": "as drawn"}),
        influence=[Influence(input=text, axis=text, outputs=[text], shares=[[0.0, 0.5]], leaks=[])] * 2,
        influence_where=text,
    )
    places = [cell(text, text, speedup=1.5, note=text, pairs=3)]
    environment = Environment(
        device=text, architecture=text, cpus=1, worker_threads=1, python=text, torch=text, system=text, sandbox="none"
    )
    run = evaluation(
        cells=places,
        candidate_name=text,
        contract=text,
        refusal=bad,
        environment=environment,
        salt=text,
        salt_commitment=text,
        started_at=text,
        infrastructure=text,
        accuracy=[accuracy(text, text).model_copy(update={"worst_group": text})],
        baselines=[BaselineState(name=text, role="official", state=state, note=text) for state in ("unavailable",)],
    )
    attempt = refused(1).model_copy(update={"evaluation": run})
    agent = agent_run(*[attempt] * 5).model_copy(update={"model": text, "stopped": text})
    return report_facts(run, agent_run=agent, approval=text)


def visible_outside_code(markdown: str) -> str:
    """What GitHub's Markdown leaves outside code spans: text and raw HTML."""
    parts = []
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown):
        children = token.children or []
        parts += [child.content for child in children if child.type in {"text", "html_inline"}]
        if token.type == "html_block":
            parts.append(token.content)
    return "\n".join(parts)


@pytest.mark.parametrize("render", [render_comment, render_summary, render_issue_outcome])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_inside_code_spans(text, render):
    shown = render(hostile_facts(text))
    outside = visible_outside_code(shown)
    assert len(shown) <= COMMENT_LIMIT
    assert not re.search(r"@maintainer|deadbee|evil|script|onerror|proctor:sticky|99x|\{\{|GH-|x{50}", outside)
    assert "<!--" not in shown
    assert not any(line.startswith(("/", "#")) for line in shown.splitlines())


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_adds_no_structure(text):
    def shape(markdown: str) -> list[str]:
        tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown)
        assert [token.info for token in tokens if token.type == "fence"]
        return [token.content if token.type == "html_block" else token.type for token in tokens]

    assert shape(render_comment(hostile_facts(text))) == shape(render_comment(hostile_facts("quiet words")))


def test_details_are_balanced_and_every_row_has_as_many_cells_as_its_head():
    shown = render_comment(report_facts(agent_run=agent_run(refused(1))))
    assert shown.count("<details>") == shown.count("</details>") == shown.count("<summary>") > 3
    blocks = re.findall(r"(?:^\|.*\n)+", shown, re.MULTILINE)
    assert [len(block.splitlines()) for block in blocks] == [4, 4, 6, 3]
    assert all(len({line.count("|") for line in block.splitlines()}) == 1 for block in blocks)


def test_five_hundred_cells_fit_and_the_verdict_stays():
    many = [cell(f"workload_{i}", "regime_" + "r" * 150, pairs=1) for i in range(500)]
    rows = influence_map() * 20
    attempts = [refused(i + 1, reason="r" * 5000, smallest=smallest(), influence=rows) for i in range(100)]
    few = report_facts(evaluation(cells=many[:2]))
    verdict = few.verdict
    assert verdict is not None
    listed = [c.model_copy(update={"workload": one.workload}) for one in many for c in verdict.cells[:1]]
    wide = verdict.model_copy(update={"cells": listed, "reasons": ["because " * 100] * 500})
    facts = report_facts(evaluation(cells=many[:2]), approval=DIGEST).model_copy(
        update={"evaluations": [evaluation(cells=many)], "verdict": wide, "agent_run": agent_run(*attempts)}
    )
    shown = render_comment(facts)
    assert 10_000 < len(shown) <= COMMENT_LIMIT
    assert first_line(shown).startswith("**✅ improved · ")
    assert "more left out here for length" in shown
    assert "`/approve 7c1e09ab7c1e09ab`" in first_line(shown)
    assert shown.count("<details>") == shown.count("</details>") > 4
    assert shown.count("```text") == shown.count("\n```\n") > 1
    assert shown.endswith("</details>\n")


def test_a_candidates_name_cannot_reach_into_the_command():
    shown = render_comment(report_facts(evaluation(candidate_name="x; rm -rf $(HOME) #.py")))
    assert "`proctor verify kernels/kda_prefill/x__rm__rf___HOME___.py --contract kda_prefill --device cpu" in shown


def test_on_a_gpu_the_command_says_so():
    environment = evaluation().environment.model_copy(update={"architecture": "sm_100a"})
    assert "--device cuda" in render_comment(report_facts(evaluation(environment=environment)))


def test_mixed_is_an_acceptance_and_names_its_cells():
    facts = report_facts(evaluation(cells=[cell("a", speedup=2.0), cell("b", speedup=0.8)]))
    assert facts.verdict is not None
    assert facts.verdict.kind is Kind.MIXED
    assert "- `slower: b/fast`" in render_comment(facts)


def test_who_needs_the_host_in_mid_call_is_named():
    hosted = [cell("a", host_bound=["baseline"]), cell("b", host_bound=["baseline", "candidate"])]
    shown = render_comment(report_facts(evaluation("full", cells=hosted)))
    assert "launches included: the candidate in 1 of 2 cells, the bar in 2 of 2 cells." in shown
    assert "in mid-call" not in render_comment(report_facts(evaluation(cells=[cell("a"), cell("b")])))
