"""Declarations of plugins: the struct, the short form, and what registration refuses."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from stowplan.framework import OK, ContractError, Plugin, Registry, Status
from stowplan.framework.runtime.declarations import declaration_of, edit_distance
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.workload import Namespace
from tests.framework.stage import POD, framework_of, snapshot


def class_of(**members: Any) -> type[Any]:
    """A filter with these class attributes."""
    return type("Mine", (), {"filter": lambda self: OK, **members})


def refusal(plugin: type[Any]) -> str:
    """What registration says to a class."""
    with pytest.raises(ContractError) as caught:
        Registry().register(plugin)
    return str(caught.value)


def test_the_declaration_gives_the_class_its_name() -> None:
    plugin = class_of(declaration=Plugin(name="mine", weight=3, reads=(Namespace,)))
    registry = Registry()
    registry.register(plugin)
    entry = registry["mine"]
    assert (plugin.name, entry.weight, entry.declaration.reads) == ("mine", 3, (Namespace,))


def test_class_attributes_are_the_short_form() -> None:
    short = class_of(name="mine", row_local=True, reads=(), perform_timeout_s=5)
    wanted = Plugin(name="mine", row_local=True, reads=(), perform_timeout_s=5)
    assert declaration_of(short) == wanted
    assert declaration_of(short()) == wanted
    # Without `signature` no column can be kept, whatever is declared.
    assert not RegisteredPlugin("mine", short(), 1, in_tree=False).row_local


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(ContractError, match=r"'row_locl' .did you mean 'row_local'"):
        Plugin(name="mine", row_locl=True)  # type: ignore[call-arg]
    with pytest.raises(ContractError, match=r"unknown field 'colour'$"):
        Plugin(name="mine", colour=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "name: Invalid value: '': expected a non-empty string"),
        ({"weight": 0}, "weight: Invalid value: 0: expected a whole number above 0"),
        ({"weight": True}, "weight: Invalid value: True: expected a whole number above 0"),
        ({"reads_annotations_with": (("a", "b"),)}, "a tuple of (key, a tuple of further keys)"),
        ({"reads_annotations_with": {"a": ("b",)}}, "a tuple of (key, a tuple of further keys)"),
        ({"reads": [Namespace]}, "expected a tuple of kinds, such as (Namespace,)"),
        ({"reads": ("Namespace",)}, "reads: Invalid value: ('Namespace',): expected a tuple"),
        ({"row_local": 1}, "row_local: Invalid value: 1: expected True or False"),
        ({"normalizes": "lowest"}, "expected '' or 'highest' or 'reversed'"),
        ({"perform_timeout_s": -1}, "expected seconds, 0 or more"),
        ({"simulated_s": "2"}, "simulated_s: Invalid value: '2': expected seconds, 0 or more"),
    ],
)
def test_fields_out_of_range(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError) as caught:
        Plugin(**{"name": "mine", **fields})
    assert message in str(caught.value)
    # The short form is checked alike.
    assert message in refusal(class_of(**{"name": "mine", **fields}))


@pytest.mark.parametrize(
    ("attribute", "field"),
    [
        ("row_locl", "row_local"),
        ("node_onyl", "node_only"),
        ("wieght", "weight"),
        ("read", "reads"),
        ("simulated_ms", "simulated_s"),
        ("Arg", "Args"),
        ("REJCTED", "REJECTED"),
        ("declarations", "declaration"),
    ],
)
def test_an_attribute_near_a_field_is_refused(attribute: str, field: str) -> None:
    text = refusal(class_of(name="mine", **{attribute: True}))
    assert f"unknown attribute {attribute!r} (did you mean {field!r}?)" in text


def test_inherited_attributes_are_checked_too() -> None:
    base = type("Base", (), {"row_locl": True})
    assert "did you mean 'row_local'" in refusal(type("Sub", (base,), {"name": "mine"}))


def test_other_constants_are_free() -> None:
    free = {"ROW_LOCAL": 1, "NAME": "x", "nane": 1, "TOO_MANY": 3, "_row_locl": 1, "game": 2}
    plugin = class_of(name="mine", rows_local=lambda self: 1, weights=property(), **free)
    assert declaration_of(plugin) == Plugin(name="mine")


def test_a_field_is_given_once() -> None:
    both = class_of(declaration=Plugin(name="mine"), row_local=True)
    assert "`row_local` is given beside `declaration`: expected one of them" in refusal(both)
    other = class_of(declaration=Plugin(name="mine"), name="other")
    assert "`name` is given beside `declaration`" in refusal(other)
    assert "`declaration` is {}: expected Plugin(" in refusal(class_of(declaration={}))


def test_an_object_may_declare_more_than_its_class() -> None:
    plugin = class_of(declaration=Plugin(name="mine"))
    made = plugin()
    made.declaration = msgspec.structs.replace(plugin.declaration, node_only=True)
    assert RegisteredPlugin("mine", made, 1, in_tree=False).node_only
    made.declaration = Plugin(name="other")
    with pytest.raises(ContractError, match="has the name 'other': expected 'mine'"):
        declaration_of(made)


def test_a_flag_set_by_the_constructor_is_refused() -> None:
    made = class_of(name="mine", row_local=True)()
    made.weight = 5
    assert declaration_of(made).weight == 1
    made.row_local = False
    with pytest.raises(ContractError, match=r"`self.row_local` is set by the constructor"):
        declaration_of(made)


def test_the_old_name_of_reads_still_counts() -> None:
    plugin = class_of(name="mine", reads_objects=(Namespace,))
    with pytest.warns(DeprecationWarning, match="`reads_objects` is deprecated, use `reads`"):
        assert declaration_of(plugin).reads == (Namespace,)


def test_ignored_resources_need_an_argument_of_that_name() -> None:
    text = refusal(class_of(name="mine", takes_ignored_resources=True))
    assert "`takes_ignored_resources` is True and NoArgs has no field `ignored_resources`" in text


def test_third_party_plugins_have_the_flags_that_in_tree_ones_have() -> None:
    class Binds:
        declaration = Plugin(name="binds", binds_all=True)

        def bind(self) -> Status:
            return OK

        def post_filter(self) -> Any:
            raise AssertionError("not called")

        def may_help(self, pod: Any) -> bool:
            return bool(pod.priority > POD.priority)

    framework = framework_of(Binds)
    assert framework.unconditional_binder == "binds"
    assert not framework.members["binds"].may_help(POD, snapshot())


@pytest.mark.parametrize(
    ("first", "second", "edits"),
    [("", "", 0), ("a", "", 1), ("node", "name", 2), ("naem", "name", 1), ("kitten", "sitting", 3)],
)
def test_edit_distance(first: str, second: str, edits: int) -> None:
    assert edit_distance(first, second) == edit_distance(second, first) == edits


def test_annotations_that_count_only_beside_another_one() -> None:
    plugin = class_of(
        name="mine", reads_annotations=("mode",), reads_annotations_with=(("policy", ("group",)),)
    )
    framework = framework_of(plugin)

    def read(**annotations: str) -> tuple[str | None, ...]:
        meta = msgspec.structs.replace(POD.metadata, annotations=annotations)
        return framework.annotations_of(msgspec.structs.replace(POD, metadata=meta))

    assert read() == read(group="g", other="x")
    assert read(mode="m") == read(mode="m", group="g") != read()
    assert read(policy="p", group="g") != read(policy="p", group="h")
    assert read(policy="p", group="g") != read(policy="p", group="g", mode="m")
