"""The `actions:` / `tiers:` file: actions and plugins of sessions.

There are two modes. Strict: anything unknown or malformed is a mistake with its path. Lenient, as
in kube-batch: unknown keys pass, unknown plugins are ignored by the session, and only invalid YAML
is refused.

Differs: unknown names are errors; kube-batch ignores them, and uses its default where the file
cannot be read. Settings of Volcano that have no effect here are accepted with a warning
(`volcano_settings.py`).

Scalars keep their text: an argument is a string, also `yes` and `true`.

The flags of kube-batch are options in a block `batch`, which may also be part of a
KubeSchedulerConfiguration and then contains actions and tiers too.

Source: kube-batch v0.5, pkg/scheduler/util.go, conf/scheduler_conf.go, plugins/defaults.go.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import yaml

from stowplan.config import volcano_settings
from stowplan.config.batch_options import BatchOptions
from stowplan.config.queue_models.kai_configuration import read_kai
from stowplan.config.queue_models.kai_shard import (
    is_kai_object,
    kai_file_of,
    path_in_object,
    warnings_of_object,
)
from stowplan.config.queue_models.queue_model_choice import (
    KAI,
    KUBE_BATCH,
    MODEL_DEFAULT_QUEUES,
    MODEL_SCHEDULER_NAMES,
    SCHEDULER,
    VOLCANO,
    QueueModelSettings,
    check_keys,
    check_one_document,
    chosen_queue_model,
    plain_tree,
)
from stowplan.config.queue_models.volcano_configuration import read_volcano
from stowplan.config.strict_decoder import (
    INVALID,
    Problems,
    child_path,
    decode,
    fields_of,
    format_alternatives,
    format_value,
)
from stowplan.framework.problems import did_you_mean

SWITCHES = (
    "enableJobOrder", "enableJobReady", "enableJobPipelined", "enableTaskOrder",
    "enablePreemptable", "enableReclaimable", "enableQueueOrder", "enablePredicate",
    "enableNodeOrder",
)  # fmt: skip
"""Switches of a plugin, all on by default."""

DEFAULT_TEXT = """\
actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
"""The default file."""

_TRUE = frozenset({"y", "yes", "on", "true"})
_FALSE = frozenset({"n", "no", "off", "false"})
_NULL = "tag:yaml.org,2002:null"

ArgumentCheck = Callable[[str], bool]


KUBE_BATCH_0_5 = "kube-batch-0.5"
"""Value of `--compat` that chooses kube-batch v0.5 with its defects instead of today's sessions."""

VOLCANO_1_15 = "volcano-1.15"
"""Value of `--compat` that chooses Volcano's sessions with its defects."""

COMPATS = (KUBE_BATCH_0_5, VOLCANO_1_15, KAI)
"""Values of `--compat` that concern sessions."""

COMPAT_NAMES = (KUBE_BATCH_0_5, "kube-scheduler-1.36", VOLCANO_1_15, KAI, "kueue")
"""All values of `--compat`. kueue has cases of `stowplan evaluate` only."""

SCHEDULER_NAMES = (KUBE_BATCH, VOLCANO)
"""Default scheduler names: those of kube-batch and Volcano."""


class PluginOption(msgspec.Struct, frozen=True):
    """A plugin in a tier. disabled: switches that are off, in the order of SWITCHES."""

    name: str
    disabled: tuple[str, ...] = ()
    arguments: dict[str, str] = {}


class BatchConfiguration(msgspec.Struct, frozen=True):
    """Actions, tiers and options.

    tiers: None where the file has none. period_s: time from the end of a session to the start of
    the next. scheduler_names: whose pods are scheduled, at least one. uses_priority_classes: False
    gives every job priority 0. bind_failures_max: consecutive failed bindings of a pod after which
    the policy applies: "Keep" or "Release" the other pods of its gang. warnings: names without
    effect, one line each. action_arguments: action -> its arguments. queue_model: None for
    Stowplan's own sessions; with one, tiers and action_arguments are empty.
    """

    source: str
    actions: tuple[str, ...]
    tiers: tuple[tuple[PluginOption, ...], ...] | None
    scheduler_names: tuple[str, ...] = (KUBE_BATCH,)
    period_s: float = 1.0
    default_queue: str = "default"
    uses_priority_classes: bool = True
    bind_failures_max: int = 5
    bind_failure_policy: str = "Keep"
    warnings: tuple[str, ...] = ()
    action_arguments: dict[str, dict[str, str]] = {}
    queue_model: QueueModelSettings | None = None

    @property
    def scheduler_name(self) -> str:
        """The first scheduler name; used for events and the lease."""
        return self.scheduler_names[0]


class SupportedSettings(msgspec.Struct, frozen=True):
    """Names that a file may use, and the mode of reading.

    policies: plugin -> argument -> its check; None where any argument is allowed. lenient: as
    kube-batch reads it. scheduler_names: the default. action_arguments: action that takes arguments
    -> argument -> its check. model: queue model that every file is for, "" where the file says.
    """

    actions: Collection[str]
    policies: Mapping[str, Mapping[str, tuple[str, ArgumentCheck]] | None]
    lenient: bool = False
    scheduler_names: tuple[str, ...] = SCHEDULER_NAMES
    action_arguments: Mapping[str, Mapping[str, tuple[str, ArgumentCheck]]] = MappingProxyType({})
    model: str = ""


OPTIONS = "batch"
"""Key of the block of options."""
_WHAT = ("actions", "tiers")
CONFIGURATIONS = "configurations"
"""Key of the arguments of actions, as in Volcano."""


def is_session_configuration(text: str | bytes) -> bool:
    """True for a text without `kind` that names actions, tiers or options in any case, and for
    objects with KAI's configuration."""
    root = _root(text, Problems())
    if not isinstance(root, yaml.MappingNode):
        return False
    keys = {key.value for key, _ in root.value if isinstance(key, yaml.ScalarNode)}
    if keys & {"kind", "apiVersion"}:
        return is_kai_object(plain_tree(root))
    return any(key in (OPTIONS, SCHEDULER) or did_you_mean(key, _WHAT) for key in keys)


def read(text: str | bytes, source: str, known: SupportedSettings) -> BatchConfiguration:
    """Read the configuration of a text; raises ConfigError with every mistake."""
    problems = Problems()
    root = _root(text, problems)
    if problems.found:
        raise problems.error(source)
    walk = _SessionConfigurationReader(problems, known)
    if not known.lenient:
        check_one_document(text, problems)
    tree = plain_tree(root)
    given = tree if is_kai_object(tree) else None
    tree = tree if given is None else kai_file_of(given, problems)
    model = _model_of(tree, known, problems)
    if model is None:
        # Which names are known depends on it.
        raise problems.error(source)
    if model:
        check_keys(root, problems)
        n_before = len(problems.found)
        found = walk.model_configuration(source, model, tree)
        if given is not None:
            found = _with_paths_of(given, tree, found, problems, n_before)
        if problems.found:
            raise problems.error(source)
        return found
    # The original has no block of options, and ignores it.
    names, idle = walk.root_names(root)
    fields = walk.fields(root, "", names, idle)
    if CONFIGURATIONS not in names:
        fields.pop(CONFIGURATIONS, None)
    is_chosen = fields.pop(SCHEDULER, None) is not None and not known.lenient
    block = fields.pop(OPTIONS, None)
    options = BatchOptions() if block is None else walk.options(block, OPTIONS)
    found = walk.configuration(source, fields, options, by_default=is_chosen or block is not None)
    if problems.found:
        raise problems.error(source)
    return found


def _with_paths_of(
    given: Any, tree: Any, found: BatchConfiguration, problems: Problems, n_before: int
) -> BatchConfiguration:
    """Warnings and problems with the paths of KAI's object in place of those of the file made of
    it, without warnings about what the object does not name. n_before: problems of the object."""
    for i in range(n_before, len(problems.found)):
        problem = problems.found[i]
        path = path_in_object(given, tree, problem.path) or problem.path
        problems.found[i] = msgspec.structs.replace(problem, path=path)
    warnings = warnings_of_object(given, tree, found.warnings)
    return msgspec.structs.replace(found, warnings=warnings)


def read_block(
    tree: Any, source: str, known: SupportedSettings, problems: Problems
) -> BatchConfiguration | None:
    """Read the block `batch` of another document, None without a block.

    Adds problems; values in place of mistakes are never used.
    """
    if tree is None:
        return None
    if not isinstance(tree, dict):
        problems.add(OPTIONS, format_value(tree), "a mapping")
        return None
    walk = _SessionConfigurationReader(problems, known, inside=OPTIONS)
    what = (*_WHAT, CONFIGURATIONS, SCHEDULER)
    names = (*fields_of(BatchOptions), *what)
    model = _model_of(tree, known, problems, OPTIONS)
    if model is None:
        return None
    if model:
        options_of = fields_of(BatchOptions)
        block = {key: value for key, value in tree.items() if key in options_of}
        own = {key: value for key, value in tree.items() if key not in options_of}
        return walk.model_configuration(source, model, own | {OPTIONS: block})
    for key in tree:
        if key not in names:
            problems.add(
                child_path(OPTIONS, key),
                "an unknown field",
                format_alternatives(names),
                did_you_mean(key, names),
            )
    options = walk.decoded({k: v for k, v in tree.items() if k in names and k not in what}, OPTIONS)
    # Dumped and read again, so that scalars have their text.
    fields = {
        key: yaml.compose(yaml.safe_dump(tree[key], width=10**6), Loader=yaml.SafeLoader)
        for key in what
        if tree.get(key) is not None
    }
    return walk.configuration(source, fields, options, by_default=True)


def _model_of(
    tree: Any, known: SupportedSettings, problems: Problems, path: str = ""
) -> str | None:
    """See `chosen_queue_model`."""
    if known.lenient:
        return ""
    others = (*known.actions, *known.policies)
    return chosen_queue_model(tree, problems, known.model, others, path)


def _root(text: str | bytes, problems: Problems) -> yaml.Node | None:
    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        return next(iter(yaml.compose_all(decoded, Loader=yaml.SafeLoader)), None)
    except UnicodeError:
        problems.add("document", "bytes that are not UTF-8", "text in UTF-8")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "document"
        problems.add(where, error.problem or "invalid YAML", "YAML")
    except yaml.YAMLError as error:
        problems.add("document", str(error).splitlines()[0], "YAML")
    except RecursionError:
        problems.add("document", "deeper nesting", "actions and tiers")
    return None


class _SessionConfigurationReader:
    """Reads YAML nodes; values in place of mistakes are never used."""

    def __init__(self, problems: Problems, known: SupportedSettings, *, inside: str = "") -> None:
        """inside: path of the mapping that has actions and tiers."""
        self._problems = problems
        self._known = known
        self._lenient = known.lenient
        self._inside = inside
        self._warnings: list[str] = []

    def configuration(
        self,
        source: str,
        fields: Mapping[str, yaml.Node | None],
        options: BatchOptions,
        *,
        by_default: bool,
    ) -> BatchConfiguration:
        """The whole configuration. by_default: use the default actions and tiers where neither is
        given."""
        if by_default and not any(key in fields for key in _WHAT):
            default = _root(DEFAULT_TEXT, self._problems)
            fields = {**fields, **self.fields(default, "", None)}
        return BatchConfiguration(
            source,
            self.actions(fields.get("actions")),
            self.tiers(fields.get("tiers")),
            self._names(options),
            options.schedule_period.total_seconds(),
            options.default_queue,
            options.priority_class,
            options.bind_failures,
            options.bind_failure_policy,
            action_arguments=self.action_arguments(fields.get(CONFIGURATIONS)),
            # Read before these arguments were complete.
            warnings=tuple(self._warnings),
        )

    def model_configuration(self, source: str, model: str, tree: Any) -> BatchConfiguration:
        """The configuration of a queue model. tree: the whole file."""
        tree = {} if tree is None else tree
        own = tree
        options = BatchOptions()
        if isinstance(tree, dict):
            own = {key: value for key, value in tree.items() if key not in (OPTIONS, SCHEDULER)}
            block = tree.get(OPTIONS) or {}
            if isinstance(block, dict):
                block = {"defaultQueue": MODEL_DEFAULT_QUEUES[model], **block}
            options = self.decoded(block, OPTIONS)
        read = (read_kai if model == KAI else read_volcano)(own, self._problems)
        names = self._names(options, MODEL_SCHEDULER_NAMES[model])
        return BatchConfiguration(
            source,
            read.actions,
            (),
            names,
            options.schedule_period.total_seconds(),
            options.default_queue,
            options.priority_class,
            options.bind_failures,
            options.bind_failure_policy,
            warnings=read.warnings,
            queue_model=QueueModelSettings(model, own if isinstance(own, dict) else {}),
        )

    def _names(
        self, options: BatchOptions, default: tuple[str, ...] | None = None
    ) -> tuple[str, ...]:
        if options.scheduler_name is not None:
            return (options.scheduler_name,)
        return options.scheduler_names or default or self._known.scheduler_names

    def _warn(self, path: str, what: str, would: str) -> None:
        """Warn about a setting of Volcano without effect."""
        self._warnings.append(f"{path}: {what} has no effect; in Volcano it would {would}")

    def options(self, node: yaml.Node, path: str) -> BatchOptions:
        """The options of a block."""
        try:
            tree = yaml.SafeLoader("").construct_document(node)
        except yaml.YAMLError:
            self._problems.add(path, _format_node(node), "plain values")
            return BatchOptions()
        return self.decoded({} if tree is None else tree, path)

    def decoded(self, tree: Any, path: str) -> BatchOptions:
        """The options of a tree."""
        options = decode(tree, BatchOptions, path, self._problems)
        if options is INVALID:
            return BatchOptions()
        self._problems.extend(options.problems(path))
        return options

    def fields(
        self,
        node: yaml.Node | None,
        path: str,
        allowed: Iterable[str] | None,
        idle: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, yaml.Node]:
        """Entries of a mapping. allowed: None for any. idle: allowed without effect: name -> its
        effect in Volcano."""
        if node is None or _is_null(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            self._problems.add(path or "document", _format_node(node), "a mapping")
            return {}
        found: dict[str, yaml.Node] = {}
        names = None if allowed is None else tuple(allowed)
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if not isinstance(key, yaml.ScalarNode):
                self._problems.add(
                    path or "document", f"{_format_node(key)} as a key", "a name as key"
                )
            elif name in found and not self._lenient:
                self._problems.add(child_path(path, name), "the key again", "each key once")
            elif name in idle and not self._lenient:
                self._warn(child_path(path, name) if path else name, "it", idle[name])
            elif names is not None and name not in names and not self._lenient:
                hint = did_you_mean(name, (*names, *idle))
                self._problems.add(
                    child_path(path, name), "an unknown field", format_alternatives(names), hint
                )
            found[name] = value
        return found

    def items(self, node: yaml.Node | None, path: str) -> list[tuple[str, yaml.Node]]:
        """Items of a list, each with its path."""
        if node is None or _is_null(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            self._problems.add(path, _format_node(node), "a list")
            return []
        return [(f"{path}[{i}]", item) for i, item in enumerate(node.value)]

    def text(self, node: yaml.Node | None, path: str) -> str:
        """Text of a scalar; "" when absent."""
        if node is None or _is_null(node):
            return ""
        if not isinstance(node, yaml.ScalarNode):
            self._problems.add(path, _format_node(node), "a text")
            return ""
        return str(node.value)

    def actions(self, node: yaml.Node | None) -> tuple[str, ...]:
        """Names of a comma separated list."""
        path = child_path(self._inside, "actions") if self._inside else "actions"
        text = self.text(node, path)
        if self._problems.is_invalid(path):
            return ()
        names = tuple(name.strip(" \t\n\v\f\r\x85\xa0") for name in text.split(","))
        idle = {} if self._lenient else volcano_settings.ACTIONS
        for name in names:
            if name in self._known.actions:
                continue
            if name in idle:
                self._warn(path, f"action {name!r}", idle[name])
            else:
                hint = did_you_mean(name, (*self._known.actions, *idle))
                got = repr(name) if name else "an empty name"
                self._problems.add(
                    path, got, format_alternatives(sorted(self._known.actions)), hint
                )
        return names

    def root_names(self, root: yaml.Node | None) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """Names that the file may use, and those without effect: `configurations` has one where it
        names an action that takes arguments."""
        idle = volcano_settings.FIELDS
        nodes = dict(root.value).items() if isinstance(root, yaml.MappingNode) else ()
        given = next((value for key, value in nodes if key.value == CONFIGURATIONS), None)
        named = {
            value.value
            for item in (given.value if isinstance(given, yaml.SequenceNode) else ())
            if isinstance(item, yaml.MappingNode)
            for key, value in item.value
            if key.value == "name"
        }
        if self._lenient or not named & self._known.action_arguments.keys():
            return (*_WHAT, OPTIONS, SCHEDULER), idle
        others = {key: would for key, would in idle.items() if key != CONFIGURATIONS}
        return (*_WHAT, OPTIONS, SCHEDULER, CONFIGURATIONS), others

    def action_arguments(self, node: yaml.Node | None) -> dict[str, dict[str, str]]:
        """Arguments of actions."""
        found: dict[str, dict[str, str]] = {}
        path = child_path(self._inside, CONFIGURATIONS) if self._inside else CONFIGURATIONS
        if self._lenient:
            return found
        for place, item in self.items(node, path):
            fields = self.fields(item, place, ("name", "arguments"))
            name = self.text(fields.get("name"), f"{place}.name")
            known = self._known.action_arguments.get(name)
            if known is None:
                self._warn(place, "it", volcano_settings.FIELDS[CONFIGURATIONS])
                continue
            given = self.fields(fields.get("arguments"), f"{place}.arguments", known)
            found[name] = {}
            for key, value in given.items():
                where = child_path(f"{place}.arguments", key)
                text = found[name][key] = self.text(value, where)
                if key in known and not known[key][1](text):
                    self._problems.add(where, format_value(text), known[key][0])
        return found

    def tiers(self, node: yaml.Node | None) -> tuple[tuple[PluginOption, ...], ...] | None:
        """The tiers, None when absent."""
        if node is None or _is_null(node):
            return None
        path = child_path(self._inside, "tiers") if self._inside else "tiers"
        return tuple(self._tier(tier, place) for place, tier in self.items(node, path))

    def _tier(self, node: yaml.Node, path: str) -> tuple[PluginOption, ...]:
        fields = self.fields(node, path, ("plugins",))
        entries = self.items(fields.get("plugins"), f"{path}.plugins")
        return tuple(self._policy(entry, place) for place, entry in entries)

    def _policy(self, node: yaml.Node, path: str) -> PluginOption:
        allowed = ("name", "arguments", *SWITCHES)
        fields = self.fields(node, path, allowed, volcano_settings.SWITCHES)
        name = self.text(fields.get("name"), f"{path}.name")
        is_idle = False
        if not self._lenient and name not in self._known.policies:
            is_idle = self._is_idle(name, f"{path}.name")
        off = tuple(s for s in SWITCHES if not self._is_on(fields.get(s), f"{path}.{s}"))
        given = self.fields(fields.get("arguments"), f"{path}.arguments", None)
        read = _unread_argument if is_idle else self.text
        arguments = {
            key: read(value, child_path(f"{path}.arguments", key)) for key, value in given.items()
        }
        if not self._lenient:
            self._check(name, arguments, f"{path}.arguments")
        return PluginOption(name, off, arguments)

    def _is_idle(self, name: str, path: str) -> bool:
        """True for a plugin that only Volcano has; adds a problem for an unknown one."""
        if name in volcano_settings.PLUGINS:
            self._warn(path, f"plugin {name!r}", volcano_settings.PLUGINS[name])
            return True
        names = sorted(self._known.policies)
        hint = did_you_mean(name, (*names, *volcano_settings.PLUGINS))
        self._problems.add(
            path, format_value(name) if name else "", format_alternatives(names), hint
        )
        return False

    def _is_on(self, node: yaml.Node | None, path: str) -> bool:
        if node is None or _is_null(node):
            return True
        word = node.value.lower() if isinstance(node, yaml.ScalarNode) else ""
        if isinstance(node, yaml.ScalarNode) and not node.style and word in _TRUE | _FALSE:
            return word in _TRUE
        self._problems.add(path, _format_node(node), "true or false")
        return True

    def _check(self, name: str, arguments: Mapping[str, str], path: str) -> None:
        """Check the names and values of a plugin's arguments."""
        known = self._known.policies.get(name)
        if known is None:
            return
        for key, text in arguments.items():
            would = "" if key in known else volcano_settings.argument(name, key)
            if would:
                self._warn(child_path(path, key), "it", would)
            elif key not in known:
                wanted = format_alternatives(known) if known else "no arguments"
                names = (*known, *volcano_settings.ARGUMENTS.get(name, ()))
                self._problems.add(
                    child_path(path, key), "an unknown argument", wanted, did_you_mean(key, names)
                )
            elif not known[key][1](text):
                self._problems.add(child_path(path, key), format_value(text), known[key][0])


def _unread_argument(node: yaml.Node, path: str) -> str:
    """An argument that nothing reads: a scalar's text, anything else as JSON."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    return json.dumps(yaml.SafeLoader("").construct_document(node), default=str)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == _NULL


def _format_node(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return format_value(str(node.value))
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
