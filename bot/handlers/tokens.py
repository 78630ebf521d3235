"""What a token can do for `proctor setup` and `proctor doctor`, by its kind."""

from collections.abc import Mapping

TOKENS: Mapping[str, str] = {
    "ghp_": (
        "a classic personal token: it may do what its owner may, with the scope `repo`; variables, rulesets and "
        "environments need an owner who administers the repository"
    ),
    "gho_": (
        "a token of `gh auth login`: it may do what its owner may, with the scope `repo`; variables, rulesets and "
        "environments need an owner who administers the repository"
    ),
    "github_pat_": (
        "a fine-grained personal token: it needs Issues, Variables, Administration (all: write), Actions (read) and, "
        "where the bot is an App, Secrets and Environments (read) for this repository, and an owner who administers it"
    ),
    "ghu_": "a token of somebody through a GitHub App: it may do what both of them may",
    "ghs_": (
        "a GitHub App's installation token, or a workflow's GITHUB_TOKEN: an App with Issues, Variables and "
        "Administration (all: write) can do everything here; GITHUB_TOKEN can make labels (`issues: write`) and read "
        "rulesets, and can never be given Variables or Administration"
    ),
}
"""What each kind of token can do here, by how it begins."""


def token_kind(token: str) -> str:
    """What a token of this kind can do, by how it begins."""
    return next((text for start, text in TOKENS.items() if token.startswith(start)), "a token of a kind we do not know")
