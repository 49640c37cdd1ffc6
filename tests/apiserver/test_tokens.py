"""Who asks, by the Authorization header alone."""

import inspect

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import User
from stowplan.apiserver.auth import static_tokens
from stowplan.apiserver.auth.static_tokens import ANONYMOUS, StaticTokens, bearer_token

ANN = User("ann", "1", ("devs",))
KNOWN = (("secret-a", ANN), ("secret-b", User("bob")))


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer abc", "abc"),
        ("  Bearer abc  ", "abc"),
        ("Bearer abc def", "abc"),
        ("Bearer ", ""),
        ("Bearer", ""),
        ("Bearer  abc", ""),
        ("Basic YTpi", ""),
        ("nonsense", ""),
        ("", ""),
    ],
)
def test_bearer(header: str, token: str) -> None:
    assert bearer_token({"authorization": header}) == token


def test_owner_is_also_authenticated() -> None:
    user = StaticTokens(KNOWN).authenticate({"authorization": "Bearer secret-a"})
    assert (user.name, user.uid) == ("ann", "1")
    assert user.groups == ("devs", "system:authenticated")


@pytest.mark.parametrize("header", ["", "Basic YTpi", "nonsense", "Bearer "])
def test_no_token_is_anonymous_or_refused(header: str) -> None:
    headers = {"authorization": header} if header else {}
    assert StaticTokens(KNOWN).authenticate(headers) is ANONYMOUS
    with pytest.raises(ApiError) as refused:
        StaticTokens(KNOWN, anonymous=False).authenticate(headers)
    assert refused.value.status()["code"] == 401


@pytest.mark.parametrize("anonymous", [True, False])
@pytest.mark.parametrize("token", ["secret", "secret-a2", "SECRET-A", "\udcff", "é"])
def test_wrong_token_is_refused(token: str, anonymous: bool) -> None:
    with pytest.raises(ApiError) as refused:
        StaticTokens(KNOWN, anonymous=anonymous).authenticate({"authorization": f"Bearer {token}"})
    assert refused.value.message == "Unauthorized"
    assert token not in repr(vars(refused.value))


def test_tokens_are_compared_in_constant_time_and_not_printed() -> None:
    assert "secret-a" not in repr(StaticTokens(KNOWN))
    source = inspect.getsource(StaticTokens.owner)
    assert "compare_digest" in source
    assert "break" not in source
    assert source.count("return") == 1
    assert "print" not in inspect.getsource(static_tokens)
