"""What every group of settings has in common: the spelling of keys, the checks, and errors of one line.

Fields are snake_case in Python and kebab-case in files and in error messages. A refused group raises
:class:`SettingsError`, which keeps its problems apart, so that whoever knows where a value came from (a
file, the environment) can say so.
"""

import difflib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import (
    BaseModel,
    ConfigDict,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from knowledge_lookup.retrievers.errors import KnowledgeLookupError

_LONGEST_SHOWN_VALUE = 60
_TRUTH_VALUE = "truth_value"
_IN_WORDS: Mapping[Any, str] = {types.NoneType: "null", Path: "a path", bool: "true, false"}


@dataclass(frozen=True)
class SettingsProblem:
    """One refused key.

    :param path: The way to the key, outermost part first: known keys in kebab-case, an unknown one as it was written.
    :param text: What was given and what is allowed; no secret, no line break.
    """

    path: tuple[str, ...]
    text: str

    @property
    def key(self) -> str:
        """The key as a file spells it: ``retrieval.vector.top-k``."""
        return ".".join(self.path)


class SettingsError(KnowledgeLookupError, ValueError):
    """Settings that can't be used.

    It is a ``ValueError`` too: that makes pydantic go on and collect the problems of every group.

    :param message: One line that names every problem.
    :param problems: The refused keys; empty if the error is not about keys.
    """

    def __init__(self, message: str, problems: tuple[SettingsProblem, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class SettingsSection(BaseModel):
    """A group of settings: frozen, no unknown keys, keys in kebab-case or snake_case.

    :raises SettingsError: If keys are unknown or given twice or values are not allowed; it names all of them.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,  # pydantic's own message would show secrets
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            problems = tuple(_problems(type(self), error))
            message = "; ".join(f"argument {problem.key}: {problem.text}" for problem in problems)
            raise SettingsError(message, problems) from None

    @model_validator(mode="before")
    @classmethod
    def _spell_keys_in_snake_case(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values  # a finished section, or a mistake for pydantic to report
        spelled: dict[str, Any] = {}
        for written, value in values.items():
            name = snake(written)
            field = cls.model_fields.get(name)
            if field is None or (name != written and name in values):
                # An unknown key or a second spelling: left as it is, for `extra="forbid"` to report.
                spelled[written] = value
            else:
                spelled[name] = value if section_of(field) is None else _as_group(value)
        return spelled

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_values(cls, value: Any, info: ValidationInfo) -> Any:
        # Pydantic would take `yes` for the number 1.
        if isinstance(value, bool) and bool not in _kinds(cls.model_fields[str(info.field_name)]):
            raise PydanticCustomError(_TRUTH_VALUE, "a truth value")
        return value


def snake(key: str) -> str:
    """Spell a key as a field name: ``top-k`` becomes ``top_k``.

    :param key: A key in kebab-case or snake_case.
    :returns: The field name.
    """
    return key.replace("-", "_")


def kebab(name: str) -> str:
    """Spell a field name as a key: ``top_k`` becomes ``top-k``.

    :param name: A field name.
    :returns: The key for files and messages.
    """
    return name.replace("_", "-")


def suggestion(name: str, known: Iterable[str]) -> str:
    """Say what was probably meant.

    :param name: A name that does not exist.
    :param known: The names that exist.
    :returns: A question with the closest name; without a similar one, the list of names.
    """
    known = list(known)
    matches = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {matches[0]}?" if matches else f"allowed: {', '.join(known)}"


def section_of(field: FieldInfo) -> type[SettingsSection] | None:
    """Tell a group from a single value.

    :param field: A field of a section.
    :returns: The class of the group, or None for a single value.
    """
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, SettingsSection) else None


def _as_group(value: Any) -> Any:
    if value is None:  # `milvus:` in a file, with every line below it commented out
        return {}
    return {str(key): inner for key, inner in value.items()} if isinstance(value, Mapping) else value


def _problems(section: type[SettingsSection], error: ValidationError) -> Iterator[SettingsProblem]:
    for details in error.errors(include_url=False):
        name = str(details["loc"][0])
        cause = details.get("ctx", {}).get("error")
        if isinstance(cause, SettingsError):
            for inner in cause.problems:
                yield SettingsProblem((kebab(name), *inner.path), inner.text)
        elif details["type"] == "extra_forbidden":
            yield SettingsProblem((_printable(name),), _explain_unknown(section, name))
        else:
            yield SettingsProblem((kebab(name),), _explain_value(section.model_fields[name], details))


def _explain_unknown(section: type[SettingsSection], name: str) -> str:
    if snake(name) in section.model_fields:
        return f"given a second time as {snake(name)}, keep one of the two"
    return f"unknown key, {suggestion(kebab(name), map(kebab, section.model_fields))}"


def _explain_value(field: FieldInfo, details: ErrorDetails) -> str:
    section = section_of(field)
    if section is not None:
        # The value isn't shown: it may be a secret that stands one level too high.
        return f"a single value is not allowed, allowed: a group of {', '.join(map(kebab, section.model_fields))}"
    if details["type"] == "value_error":
        return str(details["ctx"]["error"])
    if details["type"] == _TRUTH_VALUE:
        return f"a truth value (as yes, no, on and off are without quotes) is not allowed, allowed: {_allowed(field)}"
    return f"{_shown(field, details['input'])} is not allowed, allowed: {_allowed(field)}"


def _shown(field: FieldInfo, value: Any) -> str:
    if value is None:
        return "null"
    if not field.repr or SecretStr in _kinds(field):
        return "this value (not shown, it may be secret)"
    shown = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return shown if len(shown) <= _LONGEST_SHOWN_VALUE else f"{shown[:_LONGEST_SHOWN_VALUE]}..."


def _allowed(field: FieldInfo) -> str:
    """Say in words what a field takes, read from its type and limits so that the two can't drift apart."""
    return " or ".join(_in_words(kind, field) for kind in _kinds(field))


def _in_words(kind: Any, field: FieldInfo) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"a list of at least one of {_in_words(get_args(kind)[0], field)} (in the environment as JSON)"
    if kind in _IN_WORDS:
        return _IN_WORDS[kind]
    if kind in {int, float}:
        return " ".join(["a whole number" if kind is int else "a finite number", *_limits(field)])
    return f"text{_least_length(field)} (numbers and dates in quotes)"


def _limits(field: FieldInfo) -> Iterator[str]:
    for limit in field.metadata:
        match limit:
            case Gt(gt=value):
                yield f"above {value}"
            case Ge(ge=value):
                yield f"from {value}"
            case Le(le=value):
                yield f"up to {value}"


def _least_length(field: FieldInfo) -> str:
    least = next((limit.min_length for limit in field.metadata if isinstance(limit, MinLen)), 0)
    return "" if least == 0 else " that is not empty" if least == 1 else f" of at least {least} characters"


def _kinds(field: FieldInfo) -> tuple[Any, ...]:
    is_union = get_origin(field.annotation) in {Union, types.UnionType}
    return get_args(field.annotation) if is_union else (field.annotation,)


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)
