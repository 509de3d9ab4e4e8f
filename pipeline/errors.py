"""Errors of building and running the pipeline."""

from importlib.metadata import metadata, requires
from re import match

from knowledge_lookup.retrievers.errors import KnowledgeLookupError


class KnowledgeBaseError(KnowledgeLookupError):
    """The knowledge base's folder isn't there or can't be read."""


class ConfigurationError(KnowledgeLookupError):
    """Settings that are valid one by one don't go together, or name something that isn't available."""


class MissingExtraError(KnowledgeLookupError):
    """A setting needs packages that aren't installed.

    :param extra: The extra of this package that brings them, as its metadata declares it.
    :param needed_for: The setting that needs them.
    """

    def __init__(self, extra: str, *, needed_for: str) -> None:
        package = metadata("knowledge-lookup")["Name"]
        super().__init__(
            f"{needed_for} needs {', '.join(packages_of_extra(extra))}: install them with "
            f'`pip install "{package}[{extra}]"`'
        )


def packages_of_extra(extra: str) -> list[str]:
    """List the packages that an extra brings.

    :param extra: Name of the extra.
    :returns: Names of its packages, as the installed metadata declares them.
    """
    wanted = [line for line in requires("knowledge-lookup") or [] if f'extra == "{extra}"' in line]
    return [name.group(0) for line in wanted if (name := match(r"[\w.-]+", line)) is not None]
