"""Access to the page: which requests are answered, and the headers of every answer.

On loopback, requests of this machine: neither of a web page of another site, nor of one that has
pointed its own name at 127.0.0.1 (DNS rebinding). Elsewhere, requests with a token whose user the
API server lets read the path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from aiohttp import web

from stowplan.driver.http.listen_address import ListenAddress
from stowplan.driver.http.origins import is_local
from stowplan.driver.http.token_reviews import bearer_token

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
COOKIE = "stowplan-page"
API = "/api/page/v1"
LOGIN, LOGOUT = f"{API}/login", f"{API}/logout"
OPEN_PATHS = ("/", "/favicon.ico", LOGIN, LOGOUT)
"""Paths that need no token, with those of static files."""
STATIC = "/static/"


class Reviews(Protocol):
    """See `TokenReviews`."""

    async def refusal(self, token: str, path: str, verb: str = "get") -> int:
        """401 or 403, 0 when access is allowed."""


class PageAccess:
    """reviews: of tokens, None while no API server is known."""

    def __init__(self, address: ListenAddress) -> None:
        self._address = address
        self.reviews: Reviews | None = None

    async def refusal(self, request: web.Request) -> web.Response | None:
        """The answer to a request that is refused; None if it may pass."""
        strange = self.foreign(request.headers, request.method)
        if strange:
            return error_response(403, f"forbidden: {strange}")
        path = request.path
        if self._address.is_loopback or path in OPEN_PATHS or path.startswith(STATIC):
            return None
        verb = "create" if request.method == "POST" else "get"
        code = await self.review(token_of(request), path, verb)
        text = {401: "Unauthorized", 403: "forbidden: the token's user may not read this path"}
        return error_response(code, text[code]) if code else None

    @property
    def needs_token(self) -> bool:
        """True where readers must be known to the API server."""
        return not self._address.is_loopback

    async def review(self, token: str, path: str, verb: str = "get") -> int:
        """401 or 403, 0 when a token's user may access a path."""
        return 401 if self.reviews is None else await self.reviews.refusal(token, path, verb)

    def foreign(self, headers: Mapping[str, str], method: str) -> str:
        """What of the headers names another site, "" if nothing does."""
        host, origin = headers.get("Host", ""), headers.get("Origin")
        if not self._is_our_host(host):
            return f'Host "{host[:200]}" is not this machine'
        if origin is None:
            # A browser sends it with every POST.
            return "a POST needs an Origin" if method == "POST" else ""
        scheme = "https" if self._address.is_secure else "http"
        if origin.lower() != f"{scheme}://{host}".lower():
            return f'Origin "{origin[:200]}" is not this page'
        return ""

    def _is_our_host(self, host: str) -> bool:
        if not self._address.is_loopback:
            # With TLS, a page under another name fails on the certificate, and has no cookie.
            return bool(host)
        return is_local(host)


def token_of(request: web.Request) -> str:
    """The token of the header, else of the cookie, "" for none."""
    sent = bearer_token(request.headers.get("Authorization", ""))
    return sent or request.cookies.get(COOKIE, "")


def error_response(status: int, text: str) -> web.Response:
    """An error as JSON."""
    return web.json_response({"error": text}, status=status)


def access_middleware(access: PageAccess) -> Any:
    """Refuses requests, and adds the headers to every answer that has none of its own."""

    @web.middleware
    async def guarded(request: web.Request, handler: Any) -> web.StreamResponse:
        refused = await access.refusal(request)
        try:
            answer: web.StreamResponse = refused or await handler(request)
        except web.HTTPException as problem:
            answer = error_response(problem.status, f"{problem.reason}: {request.path}")
        if not answer.prepared:
            for name, value in HEADERS.items():
                answer.headers.setdefault(name, value)
            if not request.path.startswith(STATIC):
                answer.headers.setdefault("Cache-Control", "no-store")
        return answer

    return guarded
