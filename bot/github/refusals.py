"""Every refusal of a request, in one place: a code that never changes its meaning, the reason, and what to do instead.

A text may have places (`{who}`) for facts. What goes into one is Markdown already: text from outside as a code span.
"""

from dataclasses import dataclass

from typing_extensions import override

from bot.errors import UsageError


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason to do nothing."""

    code: str
    reason: str
    remedy: str

    def error(self, **facts: object) -> "RefusedError":
        """This refusal, said of these facts."""
        return RefusedError(self, self.reason.format(**facts), self.remedy.format(**facts))


class RefusedError(UsageError):
    """A refusal of ours; `str` is the answer on GitHub, in Markdown."""

    def __init__(self, refusal: Refusal, reason: str, remedy: str) -> None:
        """Keep the texts, facts inserted."""
        super().__init__(refusal.code, reason, remedy)
        self.code = refusal.code
        self.reason = reason
        self.remedy = remedy

    @override
    def __str__(self) -> str:
        return f"`{self.code}`: {self.reason}. {self.remedy}."

    @property
    def line(self) -> str:
        """Code and reason, for a log or the description of a status."""
        return f"{self.code}: {self.reason}".splitlines()[0]


# The comment itself.
COMMENT_TOO_LONG = Refusal(
    "E_COMMENT_TOO_LONG",
    "The comment is longer than {limit} characters, so no command in it was read",
    "Send the command in a comment of its own",
)
MANY_COMMANDS = Refusal(
    "E_MANY_COMMANDS", "The comment holds more than one command; none was followed", "Send one at a time"
)
HIDDEN_TEXT = Refusal(
    "E_HIDDEN_TEXT",
    "The command line holds characters that cannot be seen, so it was not followed",
    "Type it anew instead of copying it",
)
UNKNOWN_COMMAND = Refusal("E_UNKNOWN_COMMAND", "There is no command {word}", "{hint}`/help` lists the commands")
BAD_ARGUMENTS = Refusal("E_BAD_ARGUMENTS", "{line} is not of the form {usage}{detail}", "{meaning}")
OUT_OF_RANGE = Refusal("E_OUT_OF_RANGE", "`{key}` is {said}, not {value}", "Send the command again with such a value")

# Who asks.
NOT_A_WRITER = Refusal("E_NOT_A_WRITER", "@{who} has no write permission here", "Somebody who has can {act}")
PERMISSION_UNKNOWN = Refusal(
    "E_PERMISSION_UNKNOWN",
    "GitHub does not say what @{who} may do here ({detail})",
    "Nothing was started; try again when GitHub answers",
)

# Where it is asked.
NOT_ON_PULL = Refusal(
    "E_NOT_ON_PULL", "`{command}` belongs on a pull request; this is an issue", "Send it on the pull request"
)
NOT_ON_ISSUE = Refusal(
    "E_NOT_ON_ISSUE",
    "`{command}` belongs on an issue that asks for a kernel; this is a pull request",
    "Send it on the issue",
)
CLOSED = Refusal("E_CLOSED", "This {what} is closed", "Reopen it, and {act} again")
FORK = Refusal(
    "E_FORK",
    "This pull request comes from a fork: the bench runs only what somebody with write access put on a branch here",
    "After reading the code, push it to a branch of this repository and open a pull request from there",
)
NOT_OURS = Refusal(
    "E_NOT_OURS",
    "`/rerun-bench` measures pull requests that the bot opened; this is not one of them",
    "`/verify` examines other people's",
)
ASSISTED = Refusal(
    "E_ASSISTED",
    "People have changed the branch since the bot opened this pull request, so that its record cannot be pooled",
    "`/verify` examines it as it stands, marked as assisted",
)
PULL_OPEN = Refusal(
    "E_PULL_OPEN",
    "The pull request #{pull} for this issue is open already",
    "`/rerun-bench` there measures again; to start anew, close it first",
)

# What is asked for.
REQUEST_FORM = Refusal(
    "E_REQUEST_FORM",
    "The issue does not hold a request",
    "{detail}\n\nPut that right, and label the issue again",
)
UNKNOWN_CONTRACT = Refusal("E_UNKNOWN_CONTRACT", "unknown contract {name}", "Name one of these: {known}")
CONTRACT_BROKEN = Refusal(
    "E_CONTRACT_BROKEN",
    "The contract {name} of the default branch has mistakes",
    "Whoever owns it runs `proctor contract check`",
)
DEFINITION_ALONE = Refusal(
    "E_DEFINITION_ALONE",
    "A definition is attached, and no contract here follows it",
    "{detail}\n\nWhen the contract is merged, write its name into “Contract” and label the issue again",
)
DEFINITION_DIFFERS = Refusal(
    "E_DEFINITION_DIFFERS",
    "The attached definition {name} asks for what the contract {contract} of that public name does not cover",
    "{differences}\n\nPut that right, or write {contract} into “Contract” to have it as it stands; then label the "
    "issue again",
)
DEFINITION_SHARED = Refusal(
    "E_DEFINITION_SHARED",
    "More than one contract here follows the attached definition {name}",
    "Write one of these into “Contract”, and label the issue again: {known}",
)
CONTRACT_CHANGED = Refusal(
    "E_CONTRACT_CHANGED",
    "The contract has changed since this candidate was examined, so that runs cannot be pooled",
    "Close the pull request and label the issue again",
)
UNKNOWN_WORKLOAD = Refusal(
    "E_UNKNOWN_WORKLOAD", "The contract has no workload {name} for this device", "Name one of these: {known}"
)
JUDGE_CHANGED = Refusal(
    "E_JUDGE_CHANGED",
    "The judge has changed since this candidate was examined, and one workload alone says nothing of the others",
    "`/rerun-bench` without `workload=` measures all of them again",
)
KERNEL_FILES = Refusal(
    "E_KERNEL_FILES",
    "The pull request must hold one kernel file `kernels/<op>/*.py`; it holds {count}",
    "Open one pull request per kernel",
)
OTHER_FILES = Refusal(
    "E_OTHER_FILES",
    "The pull request touches {count} other files that a candidate may not touch",
    "Put them into a pull request of their own",
)
TOO_MANY_FILES = Refusal(
    "E_TOO_MANY_FILES",
    "The pull request changes more files than GitHub lists, so that nobody can say whether a kernel is among them",
    "Split it; or an administrator merges it past the ruleset",
)
EVIDENCE_TOUCHED = Refusal(
    "E_EVIDENCE_TOUCHED",
    "The pull request writes the record of runs, `reports/<op>/issue-N/` or `pull-N/`, which is the bot's to write",
    "Leave those folders out",
)
KERNEL_NAME = Refusal(
    "E_KERNEL_NAME",
    "{path} is not the name of a kernel file",
    "Name it after its backend, as in `kernels/rmsnorm/triton_fused.py`",
)
KERNEL_TEXT = Refusal(
    "E_KERNEL_TEXT",
    "{path} cannot be read as a kernel: it must be a plain file of UTF-8 text of at most {limit} KiB",
    "Push it in that form",
)
NO_RECORD = Refusal(
    "E_NO_RECORD",
    "The record of earlier runs of this pull request cannot be read: {detail}",
    "Close the pull request and label the issue again",
)

# Runs.
RUN_GOES_ON = Refusal(
    "E_RUN_GOES_ON", "{run} of this {what} goes on", "Wait for it, or end it with `{stop}`; `/bench-status` says more"
)
OTHER_BASE = Refusal(
    "E_OTHER_BASE",
    "The {what} of this job is not the one of commit {sha}, which the gate let through: {here}, not {there}",
    "Whoever owns the runner runs `proctor runner prepare` in a checkout of that commit; where the default branch has "
    "moved between event and gate, ask again",
)
NO_RUN = Refusal("E_NO_RUN", "No run of this {what} goes on", "There is nothing to end; `/bench-status` says more")
NOTHING_WAITS = Refusal("E_NOTHING_WAITS", "No run of this issue waits for `/go`", "The label `optimize` starts one")
EDITED = Refusal(
    "E_EDITED",
    "The issue was edited since the bot read it, so that what would be done is not what it says now",
    "Take the label `optimize` off and put it on again",
)

# Approval.
NOT_EXAMINED = Refusal(
    "E_NOT_EXAMINED", "There is no evidence to approve: this kernel has not been examined", "`/verify` examines it"
)
OTHER_EVIDENCE = Refusal(
    "E_OTHER_EVIDENCE",
    "The evidence here is not {named}: a push or a run that changes the verdict changes the digest",
    "Read the report as it is now; it says what to send",
)
STALE = Refusal("E_STALE", "The evidence is stale: {why}", "{what_to_do}")
SHARED_HEAD = Refusal(
    "E_SHARED_HEAD",
    "The pull requests {pulls} have one head, and a status belongs to a commit: they would be approved at once",
    "Close all but one of them, or push another commit to each",
)
RULE_BROKEN = Refusal(
    "E_RULE_BROKEN",
    "The rule of approvals of the default branch has mistakes: {detail}",
    "Whoever maintains the repository mends it, or removes it: without one, one person approves",
)
OWN_REQUEST = Refusal(
    "E_OWN_REQUEST", "@{who} asked for this or wrote it and does not count", "Somebody else must approve"
)
OWN_OBJECTION = Refusal(
    "E_OWN_OBJECTION",
    "@{who} has asked for changes in a review, which stands",
    "Approve in a review, or have that one dismissed",
)

REFUSALS: tuple[Refusal, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Refusal))
"""All of them, in the order in which they stand here."""


def refusals_table() -> str:
    """The table of refusals for the documentation, in Markdown; `…` stands for a fact."""
    rows = [f"| `{r.code}` | {_plain(r.reason)} | {_plain(r.remedy)} |" for r in REFUSALS]
    return "\n".join(["| code | reason | remedy |", "|---|---|---|", *rows])


class _Dots(dict[str, str]):
    """What stands for any fact."""

    def __missing__(self, _: str) -> str:
        return "…"


def _plain(text: str) -> str:
    return " ".join(text.format_map(_Dots()).split())
