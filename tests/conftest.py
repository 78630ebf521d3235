"""What the whole suite shares: the museum's table at the end of a run, also when xdist spreads it."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each examined file's class, verdict, the stage that caught it, and milliseconds."""
    reports = [r for group in ("passed", "failed", "xfailed", "xpassed") for r in terminalreporter.getreports(group)]
    rows = [value for report in reports for key, value in report.user_properties if key == "museum"]
    if rows:
        terminalreporter.section("museum: file, verdict, caught by, ms")
        for folder, name, verdict, stage, milliseconds in sorted(rows):
            terminalreporter.line(f"{folder:9} {name:34} {verdict:20} {stage:12} {milliseconds:>6}")
