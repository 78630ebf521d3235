"""Everything of ours that can go wrong, by who must act. A bad candidate is never an exception: it is an outcome.

ProctorError
├── UsageError            the person who asked: the text is the answer they get
│   └── DataError         ... with every problem of a document at once, each with its path
├── InfrastructureError   whoever owns the runner: no sandbox, no device, a lost worker of ours
├── GitHubError           GitHub or its settings; says whether trying again makes sense
└── ModelError            the model's service; says whether trying again makes sense
"""

from collections.abc import Sequence
from dataclasses import dataclass

from typing_extensions import override


class ProctorError(Exception):
    """Base of the tree; `str(error)` is one or a few lines a person can act on."""


class UsageError(ProctorError):
    """What was asked for cannot be done as asked."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a document: `path` as in `workloads[2].axes.H`."""

    path: str
    reason: str


class DataError(UsageError):
    """A document from outside does not have its declared form."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        """Keep the name of the document and all its problems."""
        super().__init__(source, tuple(problems))
        self.source = source
        self.problems = tuple(problems)

    @override
    def __str__(self) -> str:
        lines = [f"{self.source}: {len(self.problems)} problem{'s' * (len(self.problems) != 1)}"]
        lines += [f"  {problem.path or '(root)'}: {problem.reason}" for problem in self.problems]
        return "\n".join(lines)


OWNER = "Whoever owns this machine must act"
"""Begins what an InfrastructureError asks for."""


class InfrastructureError(ProctorError):
    """Ours, not the candidate's: never a pass and never a fail."""


class GitHubError(ProctorError):
    """A request to GitHub did not do what it should."""

    def __init__(self, message: str, *, status: int | None = None, retryable: bool = False) -> None:
        """Keep the HTTP status, when there was an answer."""
        super().__init__(message)
        self.status = status
        self.retryable = retryable


class ModelError(ProctorError):
    """The model's service did not answer usefully."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        """Say whether trying again makes sense."""
        super().__init__(message)
        self.retryable = retryable
