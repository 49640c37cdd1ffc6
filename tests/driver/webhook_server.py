"""A webhook over TLS, which answers by its path, and remembers what it was asked."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from stowplan.driver.certificate import self_signed_certificate

Tree = dict[str, Any]


class WebhookServer:
    """url: where it is. bundle: its authority. asked: path and request of each review."""

    def __init__(self, folder: Path) -> None:
        made = self_signed_certificate(["127.0.0.1"], time.time())
        (folder / "cert.pem").write_text(made.certificate)
        (folder / "key.pem").write_text(made.key)
        self.bundle = base64.b64encode(made.certificate.encode()).decode()
        self.asked: list[tuple[str, Tree]] = []
        self.hold = threading.Event()
        asked, hold = self.asked, self.hold

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *arguments: object) -> None:
                """Silent."""

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                path = self.path.partition("?")[0]
                asked.append((self.path, review["request"]))
                if path == "/hang":
                    hold.wait(30)
                body = json.dumps({**review, "response": _answer(path, review["request"])})
                body = "{broken" if path == "/garbage" else body
                self.send_response(500 if path == "/broken" else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_address[1]}"

    def hook(self, path: str, resource: str = "configmaps", **fields: Any) -> Tree:
        """A webhook of a configuration."""
        rule = {
            "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": [resource],
        }  # fmt: skip
        return {
            "name": f"{path[1:]}.example.com",
            "clientConfig": {"url": self.url + path, "caBundle": self.bundle},
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **fields,
        }


def _answer(path: str, request: Tree) -> Tree:
    made: Tree = {"uid": request["uid"], "allowed": not path.startswith("/deny")}
    if path == "/deny":
        made["status"] = {"code": 418, "reason": "Teapot", "message": "no"}
    if path == "/half-patch":
        made |= {"patchType": "JSONPatch", "patch": base64.b64encode(b"[{").decode()}
    if path == "/warn":
        made["warnings"] = ["mind the gap"]
    if path in ("/label", "/count", "/tally"):
        meta = request["object"]["metadata"]
        labels = dict(meta.get("labels") or {})
        counted = "n" if path == "/count" else "m"
        labels |= (
            {"hooked": "yes"}
            if path == "/label"
            else {counted: str(int(labels.get(counted, 0)) + 1)}
        )
        patch = [{"op": "add", "path": "/metadata/labels", "value": labels}]
        made["patchType"] = "JSONPatch"
        made["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return made


@contextmanager
def webhook_server(folder: Path) -> Iterator[WebhookServer]:
    """A server that runs."""
    made = WebhookServer(folder)
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        made.hold.set()
        made.server.shutdown()
        thread.join()
        made.server.server_close()
