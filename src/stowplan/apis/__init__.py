"""The Kubernetes API: its kinds, and what they are made of.

A kind is one module `<group>/<kind>.py`, which it may share with one of the same rules. `machinery`
has what all objects share (metadata, errors, selectors, the protocols of strategies and tables),
`schema` the type notation and the decoders that are compiled from it, `validation` checks of single
fields, `kind` the parts that a kind's module is put together from.

A new API kind:

1. Write `<group>/<kind>.py`. Small examples: `scheduling/priority_class.py`, `core/secret.py`.
   Its parts, in this order and with these names, each only if the kind needs it:
   - `TYPES`: the kind and its struct types in the notation of `schema/type_notation.py`.
   - `_set_defaults(obj)`: defaults that depend on other fields; plain ones stand in `TYPES`.
   - `_validate(obj)`, `_validate_update(new, old)`, `_validate_status_update(new, old)`: generators
     of `Cause`, with the texts of the original.
   - a subclass of `ResourceStrategy` or `BuiltinStrategy` (`kind/strategy.py`) if `BuiltinStrategy`
     and `StatusStrategy` with arguments are not enough. Hooks read and write other objects through
     `call.objects`.
   - `_cells(obj, now)`: the row that `kubectl get` prints.
   - `KIND = KindRegistration(...)`: path, names, the parts above, selectable fields, subresources.
2. Add `<kind>.KIND` to `KINDS` in `builtin_kinds.py`. A new group also goes into `GROUPS` of
   `apiserver/resource_registry.py`, in the order of discovery; what the default roles may do with
   the kind into `apiserver/auth/bootstrap_roles.py`.
3. Name the original's files under `Source:` in the module's docstring, each difference `Differs:`.
4. Add cases to `tests/apis/test_kinds.py`; a recording of a real API server
   (tests/contract/apiserver/data) if there is one. Discovery, OpenAPI, watch and garbage
   collection need nothing more.
"""
