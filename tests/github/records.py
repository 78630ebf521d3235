"""Short ways to write records in tests."""

from datetime import UTC, datetime, timedelta
from typing import Literal

from bot.github.api import Comment, Review

START = datetime(2026, 11, 30, 12, tzinfo=UTC)


def comment(
    number: int, body: str, author: str = "proctor[bot]", *, account: str = "User", edited: bool = False
) -> Comment:
    """One comment; `number` is its id and its time in minutes."""
    created = START + timedelta(minutes=number)
    updated = created + timedelta(minutes=edited)
    return Comment(id=number, body=body, author=author, account=account, created_at=created, updated_at=updated)


def review(
    reviewer: str,
    state: Literal["APPROVED", "CHANGES_REQUESTED", "COMMENTED", "DISMISSED", "PENDING"] = "APPROVED",
    *,
    commit: str | None = "a" * 40,
    account: str = "User",
    at: int = 1,
) -> Review:
    """One review; `at` is its order and its time in minutes."""
    when = START + timedelta(minutes=at)
    return Review(id=at + 100, state=state, reviewer=reviewer, account=account, commit=commit, submitted_at=when)
