"""SHA-256 over canonical JSON (RFC 8785) or over bytes. The only importer of rfc8785."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rfc8785

APPROVAL_DIGITS = 16
"""Hexadecimal digits by which a person names evidence: 64 bits, so that no second candidate can share them."""


def of_bytes(data: bytes) -> str:
    """SHA-256 of the bytes, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def of_document(document: Any) -> str:
    """SHA-256 of a JSON-like value in canonical form, so that key order and spacing do not count."""
    return of_bytes(rfc8785.dumps(document))


def of_files(files: Mapping[str, bytes]) -> str:
    """SHA-256 over names and contents of a set of files, whatever order they come in."""
    return of_document({name: of_bytes(data) for name, data in files.items()})


def of_judge() -> str:
    """SHA-256 over the verifier's own files and what it imports of ours: which judge decides here.

    Of `contract/` that is the package itself: how a foreign format becomes a draft (`interchange/`) decides nothing.
    """
    bot = Path(__file__).resolve().parent
    files = sorted([*(bot / "verify").rglob("*.py"), *(bot / "contract").glob("*.py"), bot / "evaluation.py"])
    return of_files({str(path.relative_to(bot)): path.read_bytes() for path in files})
