"""What a launch-bound kernel takes without its launches: one call captured as a graph and replayed, on a GPU.

Its own process says so, after all that counts has been timed: a claim, shown beside the cell. Not every honest kernel
can be captured.
"""

from collections.abc import Sequence

from bot.verify.calls import Answered, Failure, Worker
from bot.verify.cases import Case
from bot.verify.philox import Stream

REPLAYS = 20


def replayed(worker: Worker, asked: Sequence[tuple[str, Case]], stream: Stream) -> dict[str, int]:
    """The ns of a replay in each cell, `asked` by name with inputs, up to the first that fails: a capture that breaks
    can leave its process broken."""
    found: dict[str, int] = {}
    for name, case in asked:
        slot = worker.bind(case.axes, frozenset(n for n, held in case.inputs.items() if held is None))
        if isinstance(slot, Failure):
            break
        answer = worker.call(slot, case, stream.child(name))
        taken = worker.replay(slot, REPLAYS) if isinstance(answer, Answered) else answer
        if isinstance(taken, Failure):
            break
        found[name] = taken
        if worker.release(slot) is not None:
            break
    worker.stop()
    return found
