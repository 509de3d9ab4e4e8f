"""Where settings come from: the YAML file and the environment, and which of the two gave a value."""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import yaml
from pydantic_settings import BaseSettings, EnvSettingsSource

from knowledge_lookup.pipeline.settings_section import (
    SettingsError,
    SettingsProblem,
    SettingsSection,
    kebab,
    section_of,
    snake,
)

_PREFIX = "KNOWLEDGE_LOOKUP_"
_DELIMITER = "__"
_FILE_VARIABLE = f"{_PREFIX}CONFIG"
_DEFAULT_FILE = Path("knowledge-lookup.yml")


@dataclass(frozen=True)
class SettingsSources:
    """What file and environment give, put together but not checked against the settings yet.

    :param tree: Nested values; the environment's replace the file's.
    :param complaints: One sentence for each variable that begins like ours and isn't one.
    :param file: The file that was read, or None.
    :param variables: The variables that are set, by the key (kebab-case, outermost part first) that they set.
    """

    tree: dict[str, Any]
    complaints: tuple[str, ...]
    file: Path | None
    variables: Mapping[tuple[str, ...], str]

    @classmethod
    def read(cls, settings: type[SettingsSection], path: Path | str | None) -> Self:
        """Read file and environment.

        :param settings: The class whose fields are the known keys.
        :param path: The file; None for the one that the environment names, or the default one if it exists.
        :returns: What they give.
        :raises SettingsError: If the file can't be read or isn't a YAML mapping.
        """
        file = _find_file(path)
        known = {_variable(names): names for names in _paths(settings)}
        in_environment = {known[name]: name for name in os.environ if name in known}
        return cls(
            tree=_merge({} if file is None else _read_file(file), _read_environment(settings, in_environment.values())),
            complaints=tuple(_complain_about_unknown(known)),
            file=file,
            variables={tuple(map(kebab, names)): name for names, name in in_environment.items()},
        )

    def origin(self, problem: SettingsProblem) -> str:
        """Say where a refused value came from.

        :param problem: A problem with a key of the tree.
        :returns: The environment variable, or the file and the key.
        """
        variable = self.variables.get(problem.path)
        return f"{self.file}: {problem.key}" if variable is None else f"environment variable {variable}"


class _FileLoader(yaml.SafeLoader):
    """Reads keys as they are written (``on`` is a text, not true) and refuses one that is written twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a key must be text", problem_mark=key.start_mark)
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(key.value)
            key.tag = "tag:yaml.org,2002:str"
        return super().construct_mapping(node, deep)


def _find_file(path: Path | str | None) -> Path | None:
    if path is not None:
        return Path(path)
    named = os.environ.get(_FILE_VARIABLE)
    if named is None:
        return _DEFAULT_FILE if _DEFAULT_FILE.exists() else None
    if not named:
        raise SettingsError(f"environment variable {_FILE_VARIABLE}: is empty, allowed: the path of a settings file")
    return Path(named)


def _read_file(file: Path) -> dict[str, Any]:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file}: not UTF-8 (byte {error.start}), save the settings file as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SettingsError(f"{file}: the settings file can't be read, {reason}") from error
    try:
        tree = yaml.load(text, Loader=_FileLoader)
    # None of these is chained: the text of PyYAML's errors quotes lines of the file, secrets with them.
    except yaml.MarkedYAMLError as error:
        raise SettingsError(f"{file}{_position(error)}: not valid YAML, {_reason(error)}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{file}: not valid YAML, {' '.join(str(error).split())}") from None
    except RecursionError:
        raise SettingsError(f"{file}: not valid YAML, it is nested too deeply") from None
    except (ValueError, TypeError, AttributeError, OverflowError):
        # What PyYAML lets out for 2024-13-45 and for `!!timestamp x`.
        raise SettingsError(f"{file}: not valid YAML, a value doesn't fit its type (put it in quotes)") from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingsError(f"{file}: holds a {type(tree).__name__}, allowed: a mapping such as `locale: zh`")
    return tree


def _position(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark if error.problem_mark is not None else error.context_mark
    return "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"


def _reason(error: yaml.MarkedYAMLError) -> str:
    if isinstance(error, yaml.constructor.ConstructorError | yaml.composer.ComposerError):
        # PyYAML would show the tag or alias, and that can be a secret without its quotes: `token: !secret`.
        return "an alias or a tag can't be resolved (a value that begins with * or ! needs quotes)"
    return f"{error.problem}"


def _paths(section: type[SettingsSection], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, field in section.model_fields.items():
        group = section_of(field)
        if group is None:
            yield (*above, name)
        else:
            yield from _paths(group, (*above, name))


def _variable(names: tuple[str, ...]) -> str:
    return f"{_PREFIX}{_DELIMITER.join(names).upper()}"


def _read_environment(settings: type[SettingsSection], variables: Iterable[str]) -> dict[str, Any]:
    source = EnvSettingsSource(
        # It asks the class for nothing but its fields; deriving from BaseSettings would let the constructor read.
        cast(type[BaseSettings], settings),
        env_prefix=_PREFIX,
        env_nested_delimiter=_DELIMITER,
        env_parse_none_str="null",
    )
    known = {name.lower() for name in variables}
    source.env_vars = {name: value for name, value in source.env_vars.items() if name in known}
    return source()


def _complain_about_unknown(known: Iterable[str]) -> Iterator[str]:
    endings = [name.removeprefix(_PREFIX) for name in (*known, _FILE_VARIABLE)]
    for name in sorted(os.environ):
        ending = name[len(_PREFIX) :]
        if name.upper().startswith(_PREFIX) and (ending not in endings or not name.startswith(_PREFIX)):
            closest = difflib.get_close_matches(ending.upper(), endings, n=1, cutoff=0)[0]
            yield f"environment variable {name}: unknown, did you mean {_PREFIX}{closest}?"


def _merge(tree: dict[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Lay snake_case values over a tree whose keys have either spelling."""
    merged = dict(tree)
    for name, value in overrides.items():
        written = next((key for key in tree if snake(key) == name), name)
        below = merged.get(written)
        if not isinstance(value, Mapping):
            merged[written] = value
        elif below is None or isinstance(below, dict):
            merged[written] = _merge(below or {}, value)
        # Otherwise the file has a single value where a group belongs, which is reported as the file's mistake.
    return merged
