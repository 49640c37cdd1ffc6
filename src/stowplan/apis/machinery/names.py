"""Validation of names, labels and qualified names.

Source: apimachinery v0.36, util/validation.
"""

from __future__ import annotations

import re

from stowplan.apis.machinery.text_cache import cache_short_texts

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = LABEL + r"(\." + LABEL + ")*"
LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"
QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
LABEL_VALUE = f"({QUALIFIED})?"
LABEL_MAX = 63
SUBDOMAIN_MAX = 253

CHARACTERS, BYTES = f"{SUBDOMAIN_MAX} characters", f"{SUBDOMAIN_MAX} bytes"

_label = re.compile(LABEL)
_subdomain = re.compile(SUBDOMAIN)
_label_1035 = re.compile(LABEL_1035)
_qualified = re.compile(QUALIFIED)
_label_value = re.compile(LABEL_VALUE)


def too_long_text(length_max: int, unit: str = "bytes") -> str:
    """`must be no more than N bytes`; of names the original counts "characters"."""
    return f"must be no more than {length_max} {unit}"


def regex_text(text: str, pattern: str, *examples: str) -> str:
    """`text (e.g. 'a', or 'b', regex used for validation is '...')`."""
    if not examples:
        return f"{text} (regex used for validation is '{pattern}')"
    printed = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {printed}regex used for validation is '{pattern}')"


SUBDOMAIN_TEXT = regex_text(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.',"
    " and must start and end with an alphanumeric character",
    SUBDOMAIN,
    "example.com",
)
LABEL_TEXT = regex_text(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must"
    " start and end with an alphanumeric character",
    LABEL,
    "my-name",
    "123-abc",
)
LABEL_1035_TEXT = regex_text(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an"
    " alphabetic character, and end with an alphanumeric character",
    LABEL_1035,
    "my-name",
    "abc-123",
)
QUALIFIED_TEXT = regex_text(
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end"
    " with an alphanumeric character",
    QUALIFIED,
    "MyName",
    "my.name",
    "123-abc",
)
LABEL_VALUE_TEXT = regex_text(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.',"
    " and must start and end with an alphanumeric character",
    LABEL_VALUE,
    "MyValue",
    "my_value",
    "12345",
)


_WILDCARD_TEXT = regex_text(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which"
    " must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric"
    " character",
    r"\*\." + SUBDOMAIN,
    "*.example.com",
)
_wildcard = re.compile(r"\*\." + SUBDOMAIN)


def _problems(
    name: str, prefix: bool, pattern: re.Pattern[str], length_max: int, text: str
) -> list[str]:
    if prefix and len(name) > 1 and name.endswith("-"):
        # The generated character after the dash is alphanumeric.
        name = name[:-2] + "a"
    found = []
    if len(name) > length_max:
        found.append(too_long_text(length_max, "characters"))
    if not pattern.fullmatch(name):
        found.append(text)
    return found


def subdomain_problems(name: str, prefix: bool = False) -> list[str]:
    """Problems of a DNS subdomain. prefix: `name` is a generateName."""
    return _problems(name, prefix, _subdomain, SUBDOMAIN_MAX, SUBDOMAIN_TEXT)


def wildcard_subdomain_problems(name: str) -> list[str]:
    """Problems of a DNS subdomain behind `*.`."""
    found = []
    if len(name) > SUBDOMAIN_MAX:
        found.append(too_long_text(SUBDOMAIN_MAX))
    if not _wildcard.fullmatch(name):
        found.append(_WILDCARD_TEXT)
    return found


def label_problems(name: str, prefix: bool = False) -> list[str]:
    """Problems of a DNS label (RFC 1123)."""
    found = _problems(name, prefix, _label, LABEL_MAX, LABEL_TEXT)
    if LABEL_TEXT in found and not _problems(name, prefix, _subdomain, len(name), LABEL_TEXT):
        found[-1] = "must not contain dots"
    return found


def label_1035_problems(name: str, prefix: bool = False) -> list[str]:
    """Problems of a DNS label of RFC 1035, which begins with a letter."""
    return _problems(name, prefix, _label_1035, LABEL_MAX, LABEL_1035_TEXT)


def path_segment_problems(name: str, prefix: bool = False) -> list[str]:
    """Problems of a segment of a URL path (names of roles and bindings)."""
    if not prefix and name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{bad}'" for bad in ("/", "%") if bad in name]


@cache_short_texts(8192)
def _is_qualified(name: str) -> bool:
    """True for a valid key; cached, since objects have the same few keys."""
    prefix, slash, last = name.rpartition("/")
    good = bool(_qualified.fullmatch(last)) and len(last) <= LABEL_MAX
    return good and (not slash or not (subdomain_problems(prefix) or "/" in prefix))


def qualified_name_problems(name: str) -> list[str]:
    """Problems of the key of a label or annotation: prefix/name."""
    if _is_qualified(name):
        return []
    parts = name.split("/")
    found = []
    if len(parts) > 2:
        return [
            QUALIFIED_TEXT.replace("name part", "a valid label key", 1)
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        else:
            texts = subdomain_problems(parts[0])
            found += [f"prefix part {text.replace(CHARACTERS, BYTES)}" for text in texts]
    last = parts[-1]
    if not last:
        found.append("name part must be non-empty")
    elif len(last) > LABEL_MAX:
        found.append(f"name part {too_long_text(LABEL_MAX)}")
    if not _qualified.fullmatch(last):
        found.append(QUALIFIED_TEXT)
    return found


def label_value_problems(value: str) -> list[str]:
    """Problems of the value of a label."""
    found = []
    if len(value) > LABEL_MAX:
        found.append(too_long_text(LABEL_MAX))
    if not _label_value.fullmatch(value):
        found.append(LABEL_VALUE_TEXT)
    return found
