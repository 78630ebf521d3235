"""What the memory watchdog counts of a sandbox's files."""

import os

from bot.verify import stopper


def test_a_process_that_still_has_our_own_root_holds_no_files_of_the_sandbox() -> None:
    """Bubblewrap starts with it; what the machine's own /tmp holds, once ended a worker at its start."""
    assert stopper._filed(os.getpid()) == 0
