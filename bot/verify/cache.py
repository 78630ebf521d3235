"""Where the verifier keeps what it need not make again."""

import os
from pathlib import Path


def folder(name: str) -> Path:
    """A folder below the user's cache, made if it is missing."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = home / "proctor" / name
    found.mkdir(parents=True, exist_ok=True)
    return found
