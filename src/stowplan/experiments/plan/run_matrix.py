"""The runs of a plan: its matrix, the selection of --only, and the division into shards."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from stowplan.experiments.plan.option_values import OptionValue
from stowplan.experiments.plan.plan_file import ExperimentPlan
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.input_error import InputError

T = TypeVar("T")

ONLY, SHARD = "--only", "--shard"
_SHARD = re.compile(r"([0-9]+)/([0-9]+)")
_SHARD_WANTED = "I/N with I from 1 to N, auto/N, or auto in a Slurm array"


class Cell(msgspec.Struct, frozen=True):
    """One run of the matrix, by names. options: in the order of `OPTIONS`."""

    workload: str
    policy: str
    options: dict[str, OptionValue]
    seed: int

    def value(self, key: str) -> str:
        """The value of a key of --only, as text."""
        own: dict[str, OptionValue] = {
            "workload": self.workload,
            "policy": self.policy,
            "seed": self.seed,
        }
        return option_text(own[key] if key in own else self.options[key])


def option_text(value: OptionValue) -> str:
    """A value as --only and tables write it."""
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def cells_of(plan: ExperimentPlan) -> list[Cell]:
    """All runs. Those of a workload follow each other, so that a worker reads each trace once."""
    names = list(plan.options)
    return [
        Cell(workload.name, policy.name, dict(zip(names, values, strict=True)), seed)
        for workload in plan.workloads
        for values in itertools.product(*plan.options.values())
        for policy in plan.policies
        for seed in plan.seeds
    ]


def selected(cells: Sequence[Cell], plan: ExperimentPlan, only: Iterable[str]) -> list[Cell]:
    """The runs that --only KEY=VALUE leaves: any value of a key, and all keys.

    Raises InputError for a key or value that the plan does not have.
    """
    wanted = _by_key(only, plan)
    return [
        cell for cell in cells if all(cell.value(key) in values for key, values in wanted.items())
    ]


def _by_key(only: Iterable[str], plan: ExperimentPlan) -> dict[str, set[str]]:
    known: Mapping[str, list[str]] = {
        "workload": [one.name for one in plan.workloads],
        "policy": [one.name for one in plan.policies],
        "seed": [str(seed) for seed in plan.seeds],
        **{name: [option_text(one) for one in values] for name, values in plan.options.items()},
    }
    wanted: dict[str, set[str]] = {}
    for text in only:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(ONLY, "", repr(text), "KEY=VALUE, as policy=FGD")
        if key not in known:
            raise InputError(ONLY, "", repr(key), _one_of(known, key))
        if value not in known[key]:
            raise InputError(ONLY, key, repr(value), _one_of(known[key], value))
        wanted.setdefault(key, set()).add(value)
    return wanted


def _one_of(known: Iterable[str], got: str) -> str:
    names = list(known)
    hint = did_you_mean(got, names)
    return f"one of {', '.join(names)}" + (f" ({hint})" if hint else "")


# Shards.


class Shard(NamedTuple):
    """Part number of n parts; number from 1 up."""

    number: int = 1
    n_shards: int = 1

    def share(self, runs: Sequence[T]) -> list[T]:
        """Every n-th run, so that parts are of about the same length."""
        return list(runs[self.number - 1 :: self.n_shards])


def parse_shard(text: str, environment: Mapping[str, str]) -> Shard:
    """A shard of I/N, or of `auto` and the environment of a Slurm array or a Kubernetes Job.

    "" is the whole. Raises InputError.
    """
    if not text:
        return Shard()
    first, slash, rest = text.partition("/")
    if first == "auto":
        return _shard_of(environment, rest, has_count=bool(slash))
    found = _SHARD.fullmatch(text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise InputError(SHARD, "", repr(text), _SHARD_WANTED)
    return Shard(int(found[1]), int(found[2]))


def _shard_of(environment: Mapping[str, str], count: str, *, has_count: bool) -> Shard:
    """The shard of this process. count: the text after `auto/`."""
    if has_count and not (count.isascii() and count.isdigit() and int(count)):
        raise InputError(SHARD, "", f"'auto/{count}'", _SHARD_WANTED)
    if "SLURM_ARRAY_TASK_ID" in environment:
        task = _number(environment, "SLURM_ARRAY_TASK_ID")
        lowest = _number(environment, "SLURM_ARRAY_TASK_MIN", 0)
        step = _number(environment, "SLURM_ARRAY_TASK_STEP", 1)
        n_shards = int(count) if count else _number(environment, "SLURM_ARRAY_TASK_COUNT")
        number = (task - lowest) // max(step, 1) + 1
        where = f"SLURM_ARRAY_TASK_ID={task}"
    elif "JOB_COMPLETION_INDEX" in environment:
        index = _number(environment, "JOB_COMPLETION_INDEX")
        where = f"JOB_COMPLETION_INDEX={index}"
        if not count:
            wanted = "auto/N, N being the Job's spec.completions"
            raise InputError(SHARD, "", "'auto'", wanted)
        number, n_shards = index + 1, int(count)
    else:
        wanted = "SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX in the environment"
        raise InputError(SHARD, "auto", "", wanted)
    if not 1 <= number <= n_shards:
        raise InputError(SHARD, "auto", where, f"a task of {n_shards}")
    return Shard(number, n_shards)


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdigit()):
        raise InputError("environment", name, repr(text) if text else "", "a whole number")
    return int(text)
