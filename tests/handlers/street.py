"""The town, and what the tests of the commands do in it again and again. Exams are played by a launcher that finds what
it is told to."""

import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from bot import digest
from bot.contract.load import load_contract
from bot.evaluation import Evaluation, Job
from bot.github.push import Identity
from bot.handlers.asked import Passed
from bot.handlers.demo import BOT
from bot.handlers.examine import examine
from bot.handlers.publish import Published, Publisher, publish
from bot.handlers.run import Candidate, RunFolder
from bot.launch import Watch
from tests.handlers.conftest import PATH, Town
from tests.report.builders import evaluation
from tests.verify.conftest import HONEST

PERSON = "maintainer@users.noreply.github.com"
BOTS_OWN = f"{BOT}@users.noreply.github.com"


def push_as_person(
    clone_url: str,
    work: Path,
    branch: str,
    files: dict[str, str],
    *,
    base: str = "main",
    amend: bool = False,
    email: str = PERSON,
) -> str:
    """Files onto a branch through the clone `work`, as somebody with an account does it; returns the commit."""
    url = clone_url.replace("://", "://x:maintainer-token@")

    def git(*arguments: str) -> str:
        who = ("-c", "user.name=somebody", "-c", f"user.email={email}")
        folder = work if work.is_dir() else work.parent
        done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("clone", "--quiet", "--branch", base, url, str(work))
    git("checkout", "--quiet", "-B", branch)
    for path, text in files.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text, encoding="utf-8")
    git("add", "--all")
    git("commit", "--quiet", *(["--amend", "--reset-author", "--no-edit"] if amend else ["--message", "Change"]))
    git("push", "--quiet", "--force", "origin", branch)
    return git("rev-parse", "HEAD")


@dataclass
class Examiner:
    """A launcher that finds every candidate faster, and keeps the jobs it was given."""

    town: Town
    jobs: list[Job] = field(default_factory=list)

    def __call__(self, job: Job, watch: Watch = lambda _: None) -> Evaluation:
        self.jobs.append(job)
        return evaluation(
            contract="center",
            contract_digest=load_contract(self.town.project.contracts, "center").digest,
            candidate_digest=digest.of_bytes(job.source.encode()),
            candidate_name=job.candidate_name,
            judge_digest=digest.of_judge(),
            salt=f"{len(self.jobs):064x}",
        )


@dataclass
class Street:
    """The town, and what these tests do in it again and again."""

    town: Town
    examiner: Examiner
    clones: int = 0

    def finish(self, run: RunFolder) -> Published:
        examine(run, self.town.project, self.examiner, lambda _: None)
        return self.published(run)

    def published(self, run: RunFolder) -> Published:
        author = Identity("Proctor", BOTS_OWN)
        return publish(Publisher(self.town.github, self.town.remote, run, author))

    def bots(self) -> int:
        """A pull request that the bot opened; its number."""
        _, run = self.town.label(self.town.open_issue())
        run.write_candidate(Candidate(path=PATH, source=HONEST))
        number = self.finish(run).pull
        assert number is not None
        return number

    def push(
        self, branch: str, files: dict[str, str], *, base: str = "main", amend: bool = False, email: str = PERSON
    ) -> str:
        """Files onto a branch, as somebody with an account does it; returns the commit."""
        self.clones += 1
        work = self.town.folder / f"clone-{self.clones}"
        return push_as_person(self.town.forge.clone_url, work, branch, files, base=base, amend=amend, email=email)

    def proposal(self, files: dict[str, str], branch: str = "faster", login: str = "maintainer") -> int:
        """A person's pull request; its number."""
        self.push(branch, files)
        made = self.town.person(login).post("pulls", title="Faster", head=branch, base="main", body="")
        return int(made["number"])

    def refused(self, number: int, text: str, login: str = "maintainer") -> str:
        """The code with which a command is refused: nothing starts, one reaction, one answer with reason and remedy."""
        before = len(self.town.said(number))
        passed, run = self.town.comment(number, text, login)
        assert not passed.go
        assert not run.path.exists()
        assert self.reactions(number) == ["eyes"]
        said = self.town.said(number)
        assert len(said) == before + 2
        found = re.match(r"`(E_[A-Z_]+)`: \S.*\. \S", said[-1], re.DOTALL)
        assert found is not None, said[-1]
        assert found[1] in passed.why
        return found[1]

    def answered(self, number: int, text: str) -> str:
        """The answer to a command that was followed: one reaction, one comment."""
        passed, run = self.town.comment(number, text)
        assert passed == Passed("answered")
        assert not run.path.exists()
        assert self.reactions(number) == ["eyes"]
        return self.town.said(number)[-1]

    def reactions(self, number: int) -> list[str]:
        """Reactions to the newest comment by a person."""
        newest = [c for c in self.town.forge.state.comments(number) if c.user.login != BOT][-1]
        return [reaction.content for reaction in newest.reactions]

    def statuses(self, number: int) -> dict[str, tuple[str, str]]:
        sha = self.town.github.pull(number).head_sha
        return {s.context: (s.state, s.description) for s in reversed(self.town.github.statuses(sha))}

    def goes_on(self, number: int, workflow: str = "commands", job: str = "verify", *, waits: bool = False) -> int:
        """A run of a workflow beyond its gate; its id."""
        state = self.town.forge.state
        run = state.begin_run(workflow, f"{workflow} #{number}", "issue_comment")
        state.set_job(run.id, "gate", "completed", "success")
        state.set_job(run.id, job, "queued" if waits else "in_progress")
        return run.id
