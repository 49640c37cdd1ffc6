"""Validation of probes and lifecycle handlers.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go: validateProbe, validateHandler,
validateLifecycle.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid, not_supported, required
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

_COUNTS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PLAIN_SIGNALS = "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT"
_MORE_SIGNALS = "SEGV STKFLT STOP SYS TERM TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ"
_REAL_TIME = [f"SIGRTMIN+{n}" for n in range(1, 16)] + [f"SIGRTMAX-{n}" for n in range(1, 15)]
SIGNALS = tuple(
    sorted(
        [f"SIG{name}" for name in f"{_PLAIN_SIGNALS} {_MORE_SIGNALS}".split()]
        + ["SIGRTMIN", "SIGRTMAX", *_REAL_TIME]
    )
)


def probe(kind: str, one: Tree, path: str) -> Iterator[Cause]:
    """One of the three probes; kind: the field's name."""
    yield from _handler(one, None, path)
    yield from field_checks.not_negative_fields(one, _COUNTS, path)
    grace = one.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        yield invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0")
    if kind == "readinessProbe":
        if grace is not None:
            text = "must not be set for readinessProbes"
            yield invalid(f"{path}.terminationGracePeriodSeconds", grace, text)
    elif one["successThreshold"] != 1:
        yield invalid(f"{path}.successThreshold", one["successThreshold"], "must be 1")


def lifecycle(one: Tree, grace: int | None, os: str, path: str) -> Iterator[Cause]:
    """The handlers postStart and preStop."""
    for name in ("postStart", "preStop"):
        if name in one:
            yield from _handler(one[name], grace, f"{path}.{name}")
    signal = one.get("stopSignal")
    if signal is None:
        return
    here = f"{path}.stopSignal"
    if not os:
        yield forbidden_field(here, "may not be set for containers with empty `spec.os.name`")
    elif os == "windows" and signal not in ("SIGKILL", "SIGTERM"):
        yield not_supported(here, signal, ["SIGKILL", "SIGTERM"])
    elif os == "linux" and signal not in SIGNALS:
        yield not_supported(here, signal, SIGNALS)


def _handler(one: Tree, grace: int | None, path: str) -> Iterator[Cause]:
    first = True
    for name in _HANDLERS:
        action = one.get(name)
        if action is None:
            continue
        if not first:
            yield forbidden_field(f"{path}.{name}", "may not specify more than 1 handler type")
            continue
        first = False
        yield from _action(name, action, grace, f"{path}.{name}")
    if first:
        yield required(path, "must specify a handler type")


def _action(name: str, one: Tree, grace: int | None, path: str) -> Iterator[Cause]:
    match name:
        case "exec":
            if not one.get("command"):
                yield required(f"{path}.command")
        case "httpGet":
            yield from _http(one, path)
        case "tcpSocket" | "grpc":
            yield from field_checks.port_number_or_name(one["port"], f"{path}.port")
        case "sleep":
            seconds = one["seconds"]
            if grace is not None and not 0 <= seconds <= grace:
                text = "must be non-negative and less than terminationGracePeriodSeconds"
                yield invalid(path, seconds, f"{text} ({grace})")


def _http(one: Tree, path: str) -> Iterator[Cause]:
    yield from field_checks.port_number_or_name(one["port"], f"{path}.port")
    yield from field_checks.one_of(one["scheme"], ("HTTP", "HTTPS"), f"{path}.scheme")
    for header in one.get("httpHeaders", ()):
        yield from field_checks.header_name(header["name"], f"{path}.httpHeaders")
