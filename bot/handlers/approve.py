"""Whether a pull request's evidence is approved: reads reviews and comments anew and puts the answer on the head."""

from bot.errors import UsageError
from bot.github.api import GitHub
from bot.github.approvals import Rule, decide, voices
from bot.github.push import Remote
from bot.handlers.evidence import load_record, operation_of

APPROVAL = "proctor/approval"
"""The status a ruleset can require."""


def approve(number: int, github: GitHub, remote: Remote) -> str:
    """Set the approval status of a pull request's head; returns the line that says why.

    Raises:
        GitHubError: GitHub did not do what it should.
    """
    pull = github.pull(number)
    if pull.state != "open" or not pull.same_repository or pull.author != github.bot_login():
        return "ignored: not an open pull request of the bot"
    try:
        operation = operation_of([file.path for file in github.pull_files(number)])
        record = load_record(pull, operation, remote)
    except UsageError as error:
        github.set_status(pull.head_sha, APPROVAL, "failure", str(error).splitlines()[0][:140])
        return f"refused: {error}"
    evidence = record.evidence(pull.head_sha)
    reviews, comments = github.reviews(number), github.comments(number)
    permissions = {login: github.permission(login) for login in voices(evidence, reviews, comments)}
    answer = decide(evidence, reviews, comments, permissions, requester=record.order.requester, rule=Rule())
    github.set_status(pull.head_sha, APPROVAL, "success" if answer.granted else "pending", answer.why[:140])
    return answer.why
