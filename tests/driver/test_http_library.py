"""What is used of aiohttp without being documented there, and the bound on its version for that."""

from __future__ import annotations

import ast
import asyncio
import tomllib

from aiohttp import web
from packaging.requirements import Requirement

from stowplan.apis.machinery.http_messages import HttpResponse
from tests.driver.stub_cluster import JSON, Client, StubCluster, served
from tests.tidy import tree

FOLDER = tree.ROOT / "src" / "stowplan" / "driver"


def private_names(text: str) -> list[str]:
    """Attributes with an underscore of anything but the object itself."""
    found = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute))
    return [
        f"{ast.unparse(node)}, line {node.lineno}"
        for node in found
        if node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]


def test_no_private_attribute_of_a_library_is_used() -> None:
    found = {path.name: private_names(path.read_text()) for path in FOLDER.rglob("*.py")}
    # The only way to end a process from a thread.
    assert {name: names for name, names in found.items() if names} == {
        "process.py": [name for name in found["process.py"] if name.startswith("os._exit, line ")]
    }
    assert private_names("raw._payload_writer") == ["raw._payload_writer, line 1"]


def test_the_version_of_aiohttp_has_an_upper_bound() -> None:
    project = tomllib.loads((tree.ROOT / "pyproject.toml").read_text())["project"]
    (bounds,) = (
        requirement.specifier
        for requirement in map(Requirement, project["dependencies"])
        if requirement.name == "aiohttp"
    )
    assert "3.99" in bounds
    assert "4.0" not in bounds


def test_the_undocumented_names() -> None:
    """`HttpServer` sends 100 Continue by `writer` and `output_size`, counts `connections`, and
    replaces these methods for a response that has left already."""
    assert isinstance(web.BaseRequest.writer, property)
    assert hasattr(web.Server, "connections")
    assert hasattr(web.Server, "pre_shutdown")
    assert {"prepare", "write_eof", "keep_alive"} <= vars(web.StreamResponse).keys()


def test_a_body_that_waits_for_100_continue_is_read_and_answered_once() -> None:
    async def scene() -> None:
        cluster = StubCluster(lambda request: HttpResponse(201, JSON, request.body))
        async with served(cluster) as (_, port):
            client = await Client.to(port)
            head = (
                b"POST /x HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
            )
            for _ in range(2):
                client.send(head)
                assert (
                    await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
                )
                client.send(b"{}")
                status, _, body = await client.whole()
                assert (status, body) == (201, b"{}")

    asyncio.run(asyncio.wait_for(scene(), 240))
