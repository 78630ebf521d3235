"""`proctor`: hand the command line to cli.py; the last place an error of ours can be caught."""

import sys


def main() -> None:
    """Run one command; an error of ours becomes one message and exit code 2, never a traceback."""
    if sys.argv[1:] == ["--version"]:
        # Answered before anything is imported that takes time.
        from importlib.metadata import version  # noqa: PLC0415

        sys.stdout.write(f"proctor {version('kernel-proctor')}\n")
        return
    from bot.cli import run  # noqa: PLC0415

    sys.exit(run())


if __name__ == "__main__":
    main()
