"""The command line ``knowledge-lookup``.

Nothing heavy is imported before a command needs it.
"""

import sys

from knowledge_lookup.pipeline.cli.terminal import write
from knowledge_lookup.retrievers.errors import KnowledgeLookupError


def main() -> None:
    """Run the command line; errors meant for users become one line on standard error and exit code 1."""
    from knowledge_lookup.pipeline.cli.app import app

    try:
        app()
    except KnowledgeLookupError as error:
        write(f"error: {error}".replace("\n", " "), sys.stderr)
        sys.exit(1)
