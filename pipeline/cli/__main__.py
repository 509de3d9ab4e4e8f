"""Run the command line with ``python -m knowledge_lookup.pipeline.cli``."""

from knowledge_lookup.pipeline.cli import main

main()
