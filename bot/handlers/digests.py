"""By what a run is examined: contract, judge and lock of the commit that the gate saw, by their digests.

The gate writes them into its order; each job after it works in a checkout of that commit, and refuses where what it
finds there, or what is installed on its runner, is something else.
"""

from bot import digest
from bot.contract.load import contract_names, load_contract
from bot.errors import UsageError
from bot.github.refusals import OTHER_BASE
from bot.handlers.lock import Lock
from bot.handlers.project import Project
from bot.handlers.run import Digests, Order, RunFolder

_SHOWN = 12


def digests_of(project: Project, contract: str) -> Digests:
    """What this checkout and this installation would examine by; empty where there is none.

    Raises:
        DataError: the contract has mistakes.
    """
    known = contract in contract_names(project.contracts)
    try:
        lock = Lock.read(project.root).digest
    except UsageError:
        # Tried out without an installation; where there is one, `proctor runner check` and `doctor` ask for it.
        lock = ""
    found = load_contract(project.contracts, contract).digest if known else ""
    return Digests(contract=found, judge=digest.of_judge(), lock=lock)


def held_order(folder: RunFolder, project: Project) -> Order:
    """The order, where this job has contract, judge and lock of the gate.

    Raises:
        UsageError: there is no order (RefusedError: one of the three is another here).
    """
    order = folder.order()
    wanted, here = order.digests.model_dump(), digests_of(project, order.contract).model_dump()
    for what, there in wanted.items():
        if here[what] != there:
            shown = {"here": here[what][:_SHOWN] or "none", "there": there[:_SHOWN] or "none"}
            raise OTHER_BASE.error(what=what, sha=order.base_sha[:_SHOWN], **shown)
    return order
