"""Parser of CEL expressions: recursive descent over the published grammar, macros expanded.

Source: cel-spec, doc/langdef.md (Syntax); cel-go v0.26, parser/parser.go; messages as ANTLR's.
"""

from __future__ import annotations

from contextlib import suppress

from stowplan.cel.macros import expanded
from stowplan.cel.syntax_tree import (
    Constant,
    Expression,
    FunctionCall,
    Identifier,
    Issues,
    ListLiteral,
    MapLiteral,
    ObjectLiteral,
    Selection,
    qualified_name,
)
from stowplan.cel.tokens import (
    END,
    IDENTIFIER,
    LITERAL,
    QUOTED_IDENTIFIER,
    RESERVED,
    Token,
    tokens_of,
)

_STARTS_TEXT = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, "
    "STRING, BYTES, IDENTIFIER}"
)
_DEPTH_MAX = 250
_INT_MAX = 2**63 - 1
_RELATIONS = frozenset({"<", "<=", ">=", ">", "==", "!=", "in"})
_OPERATORS = {"in": "@in"}


def parse(text: str) -> Expression:
    """The syntax tree of a text; raises CompileError."""
    issues = Issues(text)
    parser = _CelParser(tokens_of(text, issues), issues)
    found = None
    with suppress(_SyntaxStop):
        found = parser.whole()
    issues.raise_found()
    assert found is not None
    return found


class _SyntaxStop(Exception):
    """The issue is reported; parsing ends."""


class _CelParser:
    def __init__(self, tokens: list[Token], issues: Issues) -> None:
        self._tokens = tokens
        self._place = 0
        self._issues = issues
        self._depth = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._place]

    @property
    def _after_next(self) -> Token:
        return self._tokens[min(self._place + 1, len(self._tokens) - 1)]

    def _take(self, kind: str) -> Token | None:
        token = self._next
        if token.kind != kind:
            return None
        self._place += 1
        return token

    def _stop(self, message: str, token: Token | None = None) -> _SyntaxStop:
        offset = (token or self._next).offset
        self._issues.report(offset, f"Syntax error: {message}")
        return _SyntaxStop()

    def _expect(self, kind: str) -> Token:
        token = self._take(kind)
        if token is None:
            raise self._stop(f"missing '{kind}' at '{self._next.text}'")
        return token

    def whole(self) -> Expression:
        """An expression up to the end."""
        found = self._expression()
        token = self._next
        if token.kind != END:
            word = "extraneous" if self._after_next.kind == END else "mismatched"
            raise self._stop(f"{word} input '{token.text}' expecting <EOF>")
        return found

    def _expression(self) -> Expression:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            self._issues.report(-1, f"expression recursion limit exceeded: {_DEPTH_MAX}")
            raise _SyntaxStop
        condition = self._disjunction()
        mark = self._take("?")
        if mark is not None:
            truthy = self._disjunction()
            self._expect(":")
            falsy = self._expression()
            condition = FunctionCall("_?_:_", [condition, truthy, falsy], mark.offset)
        self._depth -= 1
        return condition

    def _disjunction(self) -> Expression:
        found = self._conjunction()
        while (mark := self._take("||")) is not None:
            found = FunctionCall("_||_", [found, self._conjunction()], mark.offset)
        return found

    def _conjunction(self) -> Expression:
        found = self._relation()
        while (mark := self._take("&&")) is not None:
            found = FunctionCall("_&&_", [found, self._relation()], mark.offset)
        return found

    def _relation(self) -> Expression:
        found = self._sum()
        while self._next.kind in _RELATIONS:
            mark = self._take(self._next.kind)
            assert mark is not None
            name = _OPERATORS.get(mark.kind, f"_{mark.kind}_")
            found = FunctionCall(name, [found, self._sum()], mark.offset)
        return found

    def _sum(self) -> Expression:
        found = self._product()
        while (mark := self._take("+") or self._take("-")) is not None:
            found = FunctionCall(f"_{mark.kind}_", [found, self._product()], mark.offset)
        return found

    def _product(self) -> Expression:
        found = self._unary()
        while (mark := self._take("*") or self._take("/") or self._take("%")) is not None:
            found = FunctionCall(f"_{mark.kind}_", [found, self._unary()], mark.offset)
        return found

    def _unary(self) -> Expression:
        mark = self._next
        if mark.kind not in ("!", "-"):
            return self._member()
        after = self._after_next
        if mark.kind == "-" and after.kind == LITERAL and type(after.value) in (int, float):
            return self._member()
        count = 0
        while self._take(mark.kind) is not None:
            count += 1
        operand = self._member()
        if count % 2 == 0:
            return operand
        return FunctionCall("!_" if mark.kind == "!" else "-_", [operand], mark.offset)

    def _member(self) -> Expression:
        found = self._primary()
        while True:
            token = self._next
            if self._take(".") is not None:
                optional = self._take("?") is not None
                name = self._take(QUOTED_IDENTIFIER) or self._take(IDENTIFIER)
                if name is None:
                    seen = f".{'?' if optional else ''}{self._next.text.removeprefix(END)}"
                    text = f"no viable alternative at input '{seen}'"
                    raise self._stop(text)
                opening = None if name.kind == QUOTED_IDENTIFIER else self._take("(")
                if opening is not None and not optional:
                    call = FunctionCall(name.text, self._arguments(")"), opening.offset, found)
                    found = expanded(call, self._issues)
                else:
                    found = Selection(found, name.text, token.offset, is_optional=optional)
                    found = self._object(found)
            elif self._take("[") is not None:
                optional = self._take("?") is not None
                key = self._expression()
                self._expect("]")
                name_of_index = "_[?_]" if optional else "_[_]"
                found = FunctionCall(name_of_index, [found, key], token.offset)
            else:
                return found

    def _arguments(self, closing: str) -> list[Expression]:
        found: list[Expression] = []
        if self._take(closing) is not None:
            return found
        found.append(self._expression())
        while self._take(",") is not None:
            found.append(self._expression())
        self._expect(closing)
        return found

    def _primary(self) -> Expression:
        token = self._next
        if not token.starts_expression:
            after = self._after_next
            word = "extraneous" if after.starts_expression else "mismatched"
            raise self._stop(f"{word} input '{token.text}' expecting {_STARTS_TEXT}")
        self._place += 1
        if token.kind == LITERAL:
            return self._literal(token, 1)
        if token.kind == "-":
            return self._literal(self._expect(LITERAL), -1)
        if token.kind in ("true", "false", "null"):
            value = {"true": True, "false": False, "null": None}[token.kind]
            return Constant(value, token.offset)
        if token.kind == "(":
            inner = self._expression()
            self._expect(")")
            return inner
        if token.kind == "[":
            return self._list(token)
        if token.kind == "{":
            return self._map(token)
        return self._name(token)

    def _literal(self, token: Token, sign: int) -> Expression:
        value = token.value
        if type(value) is int:
            value *= sign
            if value > _INT_MAX:
                raise self._stop("invalid int literal", token)
        elif type(value) is float:
            value *= sign
        return Constant(value, token.offset)

    def _name(self, token: Token) -> Expression:
        prefix = ""
        if token.kind == ".":
            prefix = "."
            token = self._next
            if self._take(IDENTIFIER) is None:
                raise self._stop(f"mismatched input '{token.text}' expecting IDENTIFIER")
        if token.text in RESERVED:
            self._issues.report(token.offset, f"reserved identifier: {token.text}")
            raise _SyntaxStop
        opening = self._take("(")
        if opening is None:
            return self._object(Identifier(prefix + token.text, token.offset))
        call = FunctionCall(prefix + token.text, self._arguments(")"), opening.offset)
        return expanded(call, self._issues)

    def _object(self, name: Expression) -> Expression:
        """`a.b.Name{...}`, or the name where no brace follows."""
        words = qualified_name(name)
        opening = self._take("{") if words else None
        if opening is None:
            return name
        fields: list[tuple[str, Expression, int]] = []
        optional: set[str] = set()
        while self._take("}") is None:
            is_optional = self._take("?") is not None
            key = self._take(IDENTIFIER) or self._take(QUOTED_IDENTIFIER)
            if key is None:
                raise self._stop(f"mismatched input '{self._next.text}' expecting IDENTIFIER")
            colon = self._expect(":")
            fields.append((key.text, self._expression(), colon.offset))
            if is_optional:
                optional.add(key.text)
            if self._take(",") is None:
                self._expect("}")
                break
        return ObjectLiteral(words, fields, opening.offset, frozenset(optional))

    def _list(self, opening: Token) -> Expression:
        elements: list[Expression] = []
        optional: set[int] = set()
        while self._take("]") is None:
            if self._take("?") is not None:
                optional.add(len(elements))
            elements.append(self._expression())
            if self._take(",") is None:
                self._expect("]")
                break
        return ListLiteral(elements, opening.offset, frozenset(optional))

    def _map(self, opening: Token) -> Expression:
        entries: list[tuple[Expression, Expression]] = []
        optional: set[int] = set()
        while self._take("}") is None:
            if self._take("?") is not None:
                optional.add(len(entries))
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression()))
            if self._take(",") is None:
                self._expect("}")
                break
        return MapLiteral(entries, opening.offset, frozenset(optional))
