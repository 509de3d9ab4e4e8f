"""Milvus filter expressions whose values can't break out of their quotes.

A document's path may contain quotes, backslashes or what looks like an operator. Only what would end a literal is
escaped: a Milvus server knows all escapes of JSON, Milvus Lite only some of them, and both read any other character
as it is.
"""

from collections.abc import Collection

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"})


def string_literal(value: str) -> str:
    """Quote a value for a Milvus expression.

    :param value: Any text.
    :returns: A double-quoted literal that Milvus reads as exactly this text.
    """
    return f'"{value.translate(_ESCAPES)}"'


def is_in(field: str, values: Collection[str]) -> str:
    """Build the expression that a field has one of some values.

    :param field: Name of a scalar or dynamic field.
    :param values: At least one value.
    :returns: For example ``doc_id in ["a.md", "b.md"]``.
    """
    return f"{field} in [{_literals(values)}]"


def is_not_in(field: str, values: Collection[str]) -> str:
    """Build the expression that a field has none of some values.

    :param field: Name of a scalar or dynamic field.
    :param values: At least one value.
    :returns: For example ``doc_id not in ["a.md"]``.
    """
    return f"{field} not in [{_literals(values)}]"


def all_of(*expressions: str) -> str:
    """Join expressions with ``and``.

    :param expressions: expressions, empty ones are left out.
    :returns: The conjunction; empty when nothing was given.
    """
    return " and ".join(f"({expression})" for expression in expressions if expression)


def _literals(values: Collection[str]) -> str:
    return ", ".join(string_literal(value) for value in sorted(values))
