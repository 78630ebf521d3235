"""What a pull request of the bot rests on: the order at its head, all evaluations of its runs, and their digest.

The evaluation that opened the pull request is at its head; reruns never push there, theirs are on a branch of evidence.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from bot.errors import UsageError
from bot.evaluation import AgentRun, Evaluation
from bot.github.api import Pull
from bot.github.approvals import Evidence, evidence_digest
from bot.github.claims import EVIDENCE_BRANCH, issue_of
from bot.github.push import Remote, branch_tip, list_files, read_files
from bot.handlers.run import Order, parse_document
from bot.verdict import Verdict, decide


@dataclass(frozen=True, slots=True)
class Record:
    """Order and runs of one pull request, oldest run first, and how its candidate came to be."""

    order: Order
    evaluations: list[Evaluation]
    agent_run: AgentRun | None = None

    @property
    def verdict(self) -> Verdict:
        """What all runs amount to."""
        return decide(self.evaluations)

    def evidence(self, head_sha: str) -> Evidence:
        """What there is to approve, and since when: the run from which on the digest has been what it is now."""
        digests = [
            evidence_digest(run, decide(self.evaluations[:number]), head_sha)
            for number, run in enumerate(self.evaluations, start=1)
        ]
        first = len(digests) - 1
        while first > 0 and digests[first - 1] == digests[-1]:
            first -= 1
        run = self.evaluations[first]
        ended = datetime.fromisoformat(run.started_at) + timedelta(seconds=run.seconds)
        return Evidence(digest=digests[-1], head_sha=head_sha, since=ended)


def run_folder_of(contract: str, issue: int) -> str:
    """Where a pull request keeps the record of its issue, relative to the repository."""
    return f"reports/{contract}/issue-{issue}"


def load_record(pull: Pull, operation: str, remote: Remote) -> Record:
    """Read a pull request's record.

    Raises:
        UsageError: it holds none (DataError: one with mistakes).
        GitHubError: git could not read it.
    """
    issue = issue_of(pull.head_ref)
    if issue is None:
        raise UsageError(f"pull request {pull.number} is not one of the bot's")
    folder = run_folder_of(operation, issue)
    order = read_files(remote, pull.head_sha, [f"{folder}/order.json"])[f"{folder}/order.json"]
    runs: dict[str, bytes] = {}
    for sha in filter(None, (pull.head_sha, branch_tip(remote, EVIDENCE_BRANCH))):
        paths = list_files(remote, sha, f"{folder}/evaluations")
        runs |= read_files(remote, sha, paths) if paths else {}
    if not runs:
        raise UsageError(f"pull request {pull.number} holds no evaluation")
    told = f"{folder}/agent.json"
    known = read_files(remote, pull.head_sha, [told]) if told in list_files(remote, pull.head_sha, folder) else {}
    return Record(
        parse_document(Order, order, "order.json"),
        [parse_document(Evaluation, runs[path], path) for path in sorted(runs)],
        parse_document(AgentRun, known[told], told) if known else None,
    )


def operation_of(paths: list[str]) -> str:
    """The contract whose folders a pull request touches.

    Raises:
        UsageError: it touches more than the one kernel file and the reports of one contract.
    """
    kernels = [path for path in paths if path.startswith("kernels/") and path.endswith(".py")]
    if len(kernels) != 1:
        raise UsageError(f"the pull request must hold one kernel file; it holds {len(kernels)}")
    operation = kernels[0].split("/")[1]
    allowed = (f"kernels/{operation}/", f"reports/{operation}/")
    others = [path for path in paths if not path.startswith(allowed)]
    if others:
        raise UsageError(f"the pull request touches {len(others)} files that a candidate may not touch")
    return operation
