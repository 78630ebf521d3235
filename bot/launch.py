"""Job → verifier process → Evaluation. The control plane's only way to the verifier, which is a foreign program to it."""

from collections.abc import Callable
from typing import Protocol

from bot.evaluation import Commitment, Evaluation, Job, Progress


class Launcher(Protocol):
    """Runs one job; `watch` sees progress and the salt commitment as they come.

    Raises:
        UsageError: the job names something that does not exist or is wrong.
        InfrastructureError: the verifier could not do its work.
    """

    def __call__(self, job: Job, watch: Callable[[Progress | Commitment], None] = ...) -> Evaluation:
        """Run the job and return the facts."""
        ...
