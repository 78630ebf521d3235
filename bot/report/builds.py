"""A kernel file's machine code for a person at a terminal: a row for each kernel and architecture."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bot import sanitize
from bot.evaluation import Build, Inspected

_NAME_SHOWN = 60


def print_builds(name: str, found: Inspected, console: Console) -> None:
    """Print what was compiled and why it would be refused; a candidate's text is printed as text, never as markup."""
    told = "refused before any launch" if found.refusals else "compiles"
    head = f"{told} · {sanitize.plain_line(name)} for the shapes of {found.workload} · {found.seconds:.0f} s"
    console.print(Text(head, style="bold red" if found.refusals else "bold green"))
    if found.builds:
        console.print(_table(found.builds))
    for kind, lines in (("", found.refusals), ("two builds differ: ", found.differences), ("note: ", found.notes)):
        for line in lines:
            console.print(Text(f"  {kind}{sanitize.plain_line(line, 500)}"), soft_wrap=True)


def _table(builds: list[Build]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("kernel", overflow="fold")
    for name in ("for", "regs", "spills B", "stack B", "shared B", "cubin"):
        table.add_column(name, no_wrap=True)
    table.add_column("instructions")
    for build in builds:
        numbers = (build.registers, build.spill_bytes, build.stack_bytes, build.shared_bytes)
        counts = " ".join(f"{sanitize.plain_line(kind)}:{count}" for kind, count in sorted(build.instructions.items()))
        kernel = Text(sanitize.plain_line(build.kernel, _NAME_SHOWN))
        table.add_row(kernel, build.architecture, *map(str, numbers), build.cubin_sha256[:8], Text(counts))
    return table
