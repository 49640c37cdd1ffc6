"""Decision records: their form, and one for each hand-written part that a library could do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pytest

from tests.tidy import tree

FOLDER = tree.ROOT / "docs" / "decisions"
SECTIONS = ("Context", "Choice", "Price", "What would change our mind")

HAND_WRITTEN: Mapping[str, str] = {
    "insight/capacity/bounds.py": "0027-node-bound.md",
    "apis/schema/type_notation.py": "0006-type-notation.md",
    "apis/custom/open_schema.py": "0006-type-notation.md",
    "apis/schema/canonical_quantity.py": "0007-quantities.md",
    "objects/quantity.py": "0007-quantities.md",
    "apiserver/http/yaml_body.py": "0008-yaml.md",
    "objects/encoding/yaml_documents.py": "0008-yaml.md",
    "apis/machinery/go_format.py": "0009-go-texts.md",
    "apis/machinery/strconv.py": "0009-go-texts.md",
    "apis/schema/json_parser.py": "0009-go-texts.md",
    "objects/encoding/duration.py": "0009-go-texts.md",
    "objects/encoding/go_json.py": "0009-go-texts.md",
    "client/informer.py": "0010-kubernetes-client.md",
    "client/kubeconfig.py": "0010-kubernetes-client.md",
    "client/leader_election.py": "0010-kubernetes-client.md",
    "apiserver/auth/rbac.py": "0011-rbac.md",
    "apis/protobuf/codec.py": "0012-protobuf-bodies.md",
    "driver/client/connection_pool.py": "0013-http.md",
    "driver/http/fast_path.py": "0013-http.md",
    "apiserver/admission/policies/patch_results.py": "0016-patches.md",
    "apiserver/crd/jsonpath.py": "0015-custom-resources.md",
    "apiserver/crd/structural_schema.py": "0015-custom-resources.md",
    "apiserver/crd/value_validation.py": "0015-custom-resources.md",
    "apiserver/apply/apply_patch.py": "0037-server-side-apply.md",
    "apiserver/patch/json_patch.py": "0016-patches.md",
    "apiserver/patch/strategic_merge.py": "0016-patches.md",
    "config/strict_decoder.py": "0017-strict-decoding.md",
    "cel/cel_types.py": "0031-cel.md",
    "cel/parser.py": "0031-cel.md",
    "cel/checker.py": "0031-cel.md",
    "cel/interpreter.py": "0031-cel.md",
    "columns/engine/kernels.py": "0005-one-kernel-module.md",
}
"""Part of src/stowplan -> the record that says why no library does it."""

# Words in the names of modules that do what libraries do.
WORDS = re.compile(
    r"(?:^|_)(asn1|cel|cert\w*|csv|der|election|http|jose|json|jsonpath|jwt|kubeconfig|parser|patch|"
    r"protobuf|quantity|rbac|regex|schema|strategic|strconv|toml|x509|yaml)(?:_|$)"
)
# What has such a word in its name and leaves the work to a library, or has nothing to replace.
USES_A_LIBRARY = {
    "apis/certificates/certificate_signing_request.py": "values",
    "apiserver/auth/token_rbac.py": "the rights of the bootstrap tokens, a table",
    "apiserver/crd/schema_validation.py": "rules of Kubernetes on definitions",
    "apiserver/patch/patch_request.py": "which patch a request is",
    "apis/machinery/http_messages.py": "values",
    "client/http_response.py": "httptools",
    "driver/certificate.py": "cryptography",
    "driver/client/kubeconfig_loading.py": "which files there are",
    "driver/http/http_server.py": "aiohttp",
    "driver/storage/kubeconfig_files.py": "writes a file",
    "objects/encoding/json_codec.py": "msgspec",
}


def unrecorded(modules: Iterable[str]) -> list[str]:
    """The modules whose names say that a library could do it, and that have no record."""
    known = {*HAND_WRITTEN, *USES_A_LIBRARY}
    return [
        f"src/stowplan/{module}: a library could do it; add a record to docs/decisions"
        for module in modules
        if WORDS.search(module.rpartition("/")[2].removesuffix(".py")) and module not in known
    ]


def missing_sections(where: str, text: str) -> list[str]:
    """The sections that a record lacks."""
    return [
        f"{where}: no section '{title}'"
        for title in SECTIONS
        if not re.search(rf"^(?:## |\*\*){title}\b", text, re.MULTILINE)
    ]


def modules() -> list[str]:
    folder = tree.ROOT / "src" / "stowplan"
    return [path.relative_to(folder).as_posix() for path in tree.python("src")]


def test_each_hand_written_part_has_a_record() -> None:
    assert modules()
    problems = unrecorded(modules())
    assert not problems, tree.report(problems)


@pytest.mark.parametrize("module", HAND_WRITTEN)
def test_the_record_names_the_part(module: str) -> None:
    assert (tree.ROOT / "src" / "stowplan" / module).exists()
    text = tree.read(FOLDER / HAND_WRITTEN[module])
    name = module.rpartition("/")[2]
    assert name in text or f"{module.rpartition('/')[0]}/" in text, f"{module} is not named"


def test_exceptions_exist() -> None:
    stale = [name for name in USES_A_LIBRARY if name not in modules()]
    assert not stale, stale


def test_records_have_their_sections() -> None:
    pages = sorted(FOLDER.glob("[0-9]*.md"))
    assert pages
    problems = [line for page in pages for line in missing_sections(page.name, tree.read(page))]
    assert not problems, tree.report(problems)


def test_control_a_part_without_a_record_is_seen() -> None:
    assert unrecorded(["objects/toml_reader.py", "driver/certificates/x509.py"])
    assert not unrecorded(["objects/quantity.py", "plugins/node_name.py"])


def test_control_a_missing_section_is_seen() -> None:
    whole = "".join(f"**{title}.** x\n" for title in SECTIONS)
    assert not missing_sections("x.md", whole)
    assert missing_sections("x.md", whole.replace("**Price", "**Cost"))
