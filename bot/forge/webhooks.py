"""Webhooks over HTTP, signed as GitHub signs them: for receivers in another process."""

import hashlib
import hmac
import json
import logging
import urllib.request
from collections.abc import Callable

from bot.forge.records import Event

_log = logging.getLogger(__name__)
_PATIENCE_S = 10
"""GitHub gives a receiver ten seconds: https://docs.github.com/en/webhooks/using-webhooks/best-practices"""


def signature(secret: str, body: bytes) -> str:
    """The value of `X-Hub-Signature-256`."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def posting_to(url: str, secret: str) -> Callable[[Event], None]:
    """A watcher that posts each event to `url`; a receiver that fails is logged, as on GitHub."""

    def post(event: Event) -> None:
        body = json.dumps(event.payload).encode()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/forge",
            "X-GitHub-Event": event.name,
            "X-GitHub-Delivery": event.delivery,
            "X-Hub-Signature-256": signature(secret, body),
        }
        request = urllib.request.Request(url, body, headers)  # noqa: S310 - the address is its operator's own
        try:
            urllib.request.urlopen(request, timeout=_PATIENCE_S).close()  # noqa: S310
        except OSError as error:
            _log.warning("webhook %s to %s: %s", event.name, url, error)

    return post
