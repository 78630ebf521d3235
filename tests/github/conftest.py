"""All requests, answers and webhooks of these tests are held to GitHub's own description."""

from tests.forge.described import described

__all__ = ["described"]
