"""How many must approve: `.github/proctor/approval.yaml` of the default branch, which code owners watch over."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from bot.contract.distribution import Frozen
from bot.contract.load import parse_yaml, validate
from bot.errors import UsageError
from bot.github.approvals import Rule
from bot.github.push import Remote, list_files, read_files
from bot.github.refusals import RULE_BROKEN
from bot.sanitize import code_span, plain_line

FILE = ".github/proctor/approval.yaml"


class _Form(Frozen):
    needed: Annotated[int, Field(ge=1, le=20)] = 1
    requester_may_approve: bool = False


def parse_rule(text: str) -> Rule:
    """The rule in a file's text.

    Raises:
        DataError: it is not of that form.
    """
    found = validate(_Form, parse_yaml(text, FILE), FILE)
    return Rule(needed=found.needed, requester_may_approve=found.requester_may_approve)


def rule_at(remote: Remote, sha: str) -> Rule:
    """The rule of a commit; without the file one person approves, and not the requester.

    Raises:
        RefusedError: the file has mistakes, so that nothing can be approved.
        GitHubError: git could not read it.
    """
    if FILE not in list_files(remote, sha, str(Path(FILE).parent)):
        return Rule()
    try:
        return parse_rule(read_files(remote, sha, [FILE])[FILE].decode("utf-8", "replace"))
    except UsageError as error:
        raise RULE_BROKEN.error(detail=code_span(plain_line(str(error), 200))) from None
