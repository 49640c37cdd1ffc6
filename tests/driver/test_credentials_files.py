"""Tokens and certificates: created once, kept, readable by the owner only, never logged."""

import base64
from pathlib import Path

import pytest

from stowplan.driver.storage.credentials_files import (
    CredentialFilesError,
    load_tokens,
    read_tokens,
    serving_certificate,
)
from stowplan.driver.storage.kubeconfig_files import kubeconfig_tree, write_secret

NOW = 1_800_000_000.0


def test_what_is_made_is_kept(tmp_path: Path) -> None:
    assert load_tokens(tmp_path) == load_tokens(tmp_path)
    assert load_tokens(None) != load_tokens(None)
    one = serving_certificate(tmp_path, "127.0.0.1", NOW)
    assert serving_certificate(tmp_path, "127.0.0.1", NOW + 5).certificate == one.certificate
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o077 == 0, file


def test_the_form_of_kube_apiserver(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('# a comment\nabc, ann ,1,"devs, ops"\n\ndef,bob,2\n')
    (first, ann), (second, bob) = read_tokens(path)
    assert (first, ann.name, ann.uid, ann.groups) == ("abc", "ann", "1", ("devs", "ops"))
    assert (second, bob.name, bob.groups) == ("def", "bob", ())
    assert len(load_tokens(tmp_path, path)) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sesame\n", "line 1: too few columns (1)"),
        ("a,b,c\nsesame,ann\n", "line 2: too few columns (2)"),
        (",ann,1\n", "line 1: empty token"),
        ("sesame,,1\n", "line 1: empty user"),
        ("\udcffsesame", "not CSV text"),
    ],
)
def test_invalid_token_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CredentialFilesError) as refused:
        read_tokens(path)
    assert message in str(refused.value)
    assert "sesame" not in str(refused.value)


def test_a_data_directory_without_its_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokens.csv").write_text("abc,somebody,1\n")
    with pytest.raises(CredentialFilesError, match="no token of admin"):
        load_tokens(tmp_path)
    (tmp_path / "tls-127.0.0.1.pem").write_text("nonsense")
    with pytest.raises(CredentialFilesError, match="invalid key or certificate"):
        serving_certificate(tmp_path, "127.0.0.1", NOW)


def test_a_kubeconfig_has_server_and_user() -> None:
    content = kubeconfig_tree("https://x:1", "PEM", "ann", "abc")
    (cluster,) = content["clusters"]
    (user,) = content["users"]
    assert cluster["cluster"]["server"] == "https://x:1"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == b"PEM"
    assert user == {"name": "ann", "user": {"token": "abc"}}
    assert content["current-context"] == content["contexts"][0]["name"]


def test_a_secret_is_written_whole_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    write_secret(path, "one")
    path.chmod(0o644)
    write_secret(path, "two")
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["b"]
