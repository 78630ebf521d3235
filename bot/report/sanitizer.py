"""What compute-sanitizer said of a kernel, for a person at a terminal."""

from rich.console import Console
from rich.text import Text

from bot import sanitize
from bot.sanitizer import Outcome, Sanitized

_TOLD: dict[Outcome, tuple[str, str]] = {
    "clean": ("found nothing", "green"),
    "errors": ("found errors", "bold red"),
    "raised": ("found nothing, but the kernel raised an exception", "bold red"),
    "timed_out": ("was not through in time", "bold yellow"),
    "died": ("ended without a summary: nothing is known", "bold yellow"),
}


def print_sanitized(name: str, found: Sanitized, console: Console) -> None:
    """A line for each tool, then what it reported; a candidate's text is printed as text, never as markup."""
    left = f", {found.left_out} larger ones left out" if found.left_out else ""
    console.print(Text(f"{sanitize.plain_line(name)} on {len(found.cases)} small cases{left}"))
    for one in found.watched:
        told, style = _TOLD[one.outcome]
        count = f" ({one.errors})" if one.errors else ""
        console.print(Text(f"{one.tool} {told}{count} · {one.seconds:.0f} s", style=style))
        for line in one.lines:
            console.print(Text(f"  {sanitize.plain_line(line, 200)}"), soft_wrap=True)
    console.print(Text("An aid, and no part of a verdict: the kernel could have written this itself.", style="dim"))
