"""What `stowplan top` does: try the address, then run the terminal application."""

from __future__ import annotations

import asyncio
import importlib.util
from urllib.parse import urlsplit

import click

from stowplan.cli.errors import CommandFailed, reported
from stowplan.cli.runs.top.page_client import PageClient, PageRefusal, PageUnreachable
from stowplan.driver.client.credentials import CredentialError

MISSING = "stowplan top needs Textual: pip install 'stowplan[top]'"


def page_url(text: str) -> str:
    """The address of a page, with a scheme. Raises UsageError."""
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port
    except ValueError:
        is_whole = False
    if not is_whole:
        hint = "expected what --web prints, such as http://127.0.0.1:40123"
        raise click.UsageError(f"URL: Invalid value: {text!r}: {hint}")
    return f"{parts.scheme}://{parts.netloc}"


def run_top(text: str, screen: str, token: str, ca_file: str) -> None:
    """Run until it is left. Raises UsageError and CommandFailed."""
    url = page_url(text)
    if importlib.util.find_spec("textual") is None:
        raise CommandFailed(MISSING)
    with reported(PageUnreachable, CredentialError, by=CommandFailed):
        asyncio.run(_tried(url, token, ca_file))
        client = PageClient(url, token, ca_file)
    from stowplan.cli.runs.top.top_app import TopApp

    TopApp(client, screen).run()


async def _tried(url: str, token: str, ca_file: str) -> None:
    """A wrong address is an error, not an empty screen. Raises PageUnreachable."""
    client = PageClient(url, token, ca_file)
    try:
        await client.get("cluster")
    except PageRefusal as refusal:
        # The scheduler is starting.
        if refusal.status != 503:
            raise
    finally:
        await client.close()
