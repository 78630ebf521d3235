import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

from bot.forge.pages import DiffLine, diff_lines, form_body
from bot.forge.server import Forge

CHROMIUM = Path("/usr/bin/chromium")
REPORT = """**✅ improved · 1.42x (1.39–1.45) over the incumbent** · needs one approval: `/approve 7c1e09`

| workload | candidate | bar | vs bar |
|---|--:|--:|--:|
| fixed 4×512 | 0.412 ms | 0.590 | **1.43x** ±0.02 |
| mixed | 0.371 ms | 0.521 | **1.40x** ±0.03 |

<details><summary>Refused candidates (1)</summary>

| # | claimed | why |
|---|--:|---|
| 1 | ~~3.74x~~ | `incorrect`: output does not change when `q` is scaled |

</details>

<!-- proctor:report run=1 -->
"""


def _open(url: str, **form: str) -> tuple[int, str]:
    data = urllib.parse.urlencode(form).encode() if form else None
    try:
        answer = urllib.request.urlopen(url, data, timeout=10)  # noqa: S310
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        return answer.status or 0, answer.read().decode()


def test_form_becomes_the_body_that_github_makes_of_a_form(forge):
    code, page = _open(
        f"{forge.url}/acme/kernels/issues/new",
        **{"as": "mallory"},
        title="Faster",
        contract="rmsnorm",
        start="incumbent",
    )
    assert (code, "Faster" in page) == (200, True)
    issue = forge.state.issue(1)
    assert issue.user.login == "mallory"
    assert issue.body == "### Contract\n\nrmsnorm\n\n### Start from\n\nincumbent\n\n### What matters\n\n_No response_"
    assert "<option>rmsnorm</option>" in _open(f"{forge.url}/acme/kernels/issues/new")[1]
    assert form_body([("A", " x "), ("B", "")]) == "### A\n\nx\n\n### B\n\n_No response_"


def test_forms_act_as_the_chosen_user_and_github_rules_hold(forge):
    state, root = forge.state, f"{forge.url}/acme/kernels"
    number = state.open_issue("mallory", "Faster", "").number
    code, page = _open(f"{root}/issues/{number}/labels", **{"as": "mallory"}, add="optimize")
    assert (code, "Must have triage permission" in page) == (403, True)
    assert _open(f"{root}/issues/{number}/labels", **{"as": "alice"}, add="optimize")[0] == 200
    assert [label.name for label in state.issue(number).labels] == ["optimize"]
    _open(f"{root}/issues/{number}/labels", **{"as": "alice"}, remove="optimize")
    assert state.issue(number).labels == ()
    _open(f"{root}/issues/{number}/comments", **{"as": "alice"}, body="thanks", state="closed")
    assert (state.issue(number).state, state.comments(number)[0].body) == ("closed", "thanks")
    assert _open(f"{root}/issues/{number}/comments", body="nobody")[0] == 401


def test_reviews_from_the_page_are_reviews(forge):
    state, root = forge.state, f"{forge.url}/acme/kernels"
    number = state.open_pull("rachel", "Faster", "", head="faster", base="main").number
    code, page = _open(f"{root}/pull/{number}/reviews", **{"as": "rachel"}, verdict="APPROVED")
    assert (code, "Can not approve your own pull request" in page) == (422, True)
    assert _open(f"{root}/pull/{number}/reviews", **{"as": "alice"}, verdict="APPROVED")[0] == 200
    assert [review.state for review in state.reviews(number)] == ["APPROVED"]
    assert _open(f"{root}/pull/{number}/reviews", **{"as": "alice"}, verdict="MERGE")[0] == 422


def test_title_and_names_are_escaped_and_scripts_are_forbidden(forge):
    state = forge.state
    number = state.open_issue("mallory", "<script>alert(1)</script>", "<script>alert(2)</script>").number
    state.label("alice", number, '"><script>alert(3)</script>')
    for path in ("", f"/issues/{number}"):
        assert "<script" not in _open(f"{forge.url}/acme/kernels{path}")[1]
    with urllib.request.urlopen(f"{forge.url}/acme/kernels", timeout=5) as answer:  # noqa: S310
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")


def test_pages_name_no_other_host(forge):
    number = forge.state.open_pull("rachel", "Faster", "", head="faster", base="main").number
    for path in ("", f"/pull/{number}", f"/pull/{number}/files", "/issues/new"):
        code, page = _open(f"{forge.url}/acme/kernels{path}")
        assert code == 200
        assert {re.match(r"https?://[^/]+", url)[0] for url in re.findall(r'https?://[^"\s<]+', page)} <= {forge.url}  # type: ignore[index]


def test_switching_goes_nowhere_else(forge):
    assert _open(f"{forge.url}/acting-as", **{"as": "alice"}, next="//evil.example/")[0] == 200
    assert _open(f"{forge.url}/acme/other")[0] == 404


def test_diff_lines_carry_the_numbers_of_both_sides():
    assert diff_lines("@@ -3,2 +3,3 @@ def\n same\n-old\n+new\n+more\n\\ No newline at end of file") == [
        DiffLine("hunk", None, None, "@@ -3,2 +3,3 @@ def"),
        DiffLine("same", 3, 3, "same"),
        DiffLine("removed", 4, None, "old"),
        DiffLine("added", None, 4, "new"),
        DiffLine("added", None, 5, "more"),
        DiffLine("note", None, None, "No newline at end of file"),
    ]


@pytest.fixture
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(f"needs {CHROMIUM}")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield chromium
        chromium.close()


def _act_as(page: Page, login: str) -> None:
    page.select_option("#acting", login)
    page.click("text=Switch")


@pytest.mark.browser
def test_a_person_labels_comments_and_approves_in_a_browser(forge: Forge, browser: Browser, tmp_path: Path):
    state, root = forge.state, f"{forge.url}/acme/kernels"
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    alerts: list[Dialog] = []
    page.on("dialog", lambda dialog: alerts.append(dialog))  # noqa: PLW0108 - it sets an attribute on its handler
    page.goto(f"{root}/issues/new")
    _act_as(page, "mallory")
    page.fill("#matters", "Long prompts, packed.\n\n<script>alert(1)</script><img src=x onerror=alert(2)>")
    page.click("text=Create as mallory")
    _act_as(page, "alice")
    page.click("text=Add label")
    assert [label.name for label in state.issue(1).labels] == ["optimize"]
    state.react("github-actions[bot]", state.issue(1), "eyes")
    state.comment("github-actions[bot]", 1, "Refused on the way: ~~3.74x~~. See #2.")
    page.reload()
    page.screenshot(path=tmp_path / "issue.png", full_page=True)

    number = state.open_pull(
        "github-actions[bot]", "rmsnorm: 1.42x over the incumbent", "Closes #1.", head="faster", base="main"
    ).number
    sha = state.pull(number)[1].head_sha
    state.comment("github-actions[bot]", number, REPORT)
    state.set_status("github-actions[bot]", sha, "success", context="proctor/exam", description="improved, 1.42x")
    state.set_status("github-actions[bot]", sha, "pending", context="proctor/approval", description="needs one")
    page.goto(f"{root}/pull/{number}")
    page.fill("#comment", "/rerun-bench")
    page.click("button:text-is('Comment')")
    assert state.comments(number)[-1].body == "/rerun-bench"
    page.check("[value=APPROVED]")
    page.click("text=Submit review")
    assert [(review.user.login, review.state) for review in state.reviews(number)] == [("alice", "APPROVED")]
    page.click("text=Refused candidates")
    assert page.is_visible("s:text-is('3.74x')")
    page.screenshot(path=tmp_path / "pull.png", full_page=True)
    page.click("text=Files changed")
    page.screenshot(path=tmp_path / "files.png", full_page=True)
    page.goto(root)
    page.screenshot(path=tmp_path / "home.png", full_page=True)
    page.goto(f"{root}/issues/new")
    page.screenshot(path=tmp_path / "new.png", full_page=True)
    assert alerts == []
