"""What the forge answers where GitHub would refuse: a status, a message, and what is wrong with which field."""

from collections.abc import Mapping, Sequence

from bot.errors import GitHubError

BODY_LIMIT = 65_536
"""Characters of an issue, comment, review or pull request body."""


class RequestRefusedError(GitHubError):
    """The forge's answer to a request that GitHub would refuse; `details` as in GitHub's `errors` list."""

    def __init__(self, status: int, message: str, details: Sequence[Mapping[str, str] | str] = ()) -> None:
        """Keep what the answer consists of."""
        super().__init__(message, status=status)
        self.details = list(details)


def invalid(resource: str, field: str, code: str, message: str = "") -> RequestRefusedError:
    """The 422 for a field that cannot be accepted."""
    detail = {"resource": resource, "field": field, "code": code} | ({"message": message} if message else {})
    return RequestRefusedError(422, "Validation Failed", [detail])


def checked(resource: str, body: str, *, required: bool = False) -> None:
    """Refuse a body that is too long, or blank where something must be said."""
    if len(body) > BODY_LIMIT:
        raise invalid(resource, "body", "custom", f"body is too long (maximum is {BODY_LIMIT} characters)")
    if required and not body.strip():
        raise invalid(resource, "body", "missing_field", "body can't be blank")
