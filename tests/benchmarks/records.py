"""What recording costs a look-up, and its writer a loop of look-ups, on SQLite and, where it is installed, on MariaDB.

Exact look-ups over 500 generated documents, with and without records, a block of each in turn. A block with records
ends when all of them are written.

    python tests/benchmarks/records.py [--blocks 12] [--size 1000]
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from generated_base import queries, settings, write_knowledge_base

sys.path.insert(0, str(Path(__file__).parents[2]))

from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.storage import Database
from tests.servers import mariadb

_DOCUMENTS = 500
_KNOWN = 200
_PATIENCE_SECONDS = 60.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=12, help="Blocks of each kind.")
    parser.add_argument("--size", type=int, default=1_000, help="Look-ups of a block.")
    options = parser.parse_args()
    print("| database | | p50 µs | CPU µs a look-up | look-ups a second |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        measure("SQLite", Path(folder) / "sqlite", None, options.blocks, options.size)
        if mariadb.programs() is not None:
            with mariadb.mariadb_server(Path(folder) / "server") as server, server.database() as url:
                database = Database(url, data_dir=Path(folder))
                database.upgrade()
                database.close()
                measure("MariaDB", Path(folder) / "mariadb", url, options.blocks, options.size)


def measure(name: str, folder: Path, url: str | None, blocks: int, size: int) -> None:
    """Measure on one database and print its rows."""
    asked = queries(write_knowledge_base(folder, _DOCUMENTS, url=url)[:_KNOWN], size)
    with KnowledgePipeline.from_settings(settings(folder, url=url)) as pipeline:
        unrecorded = pipeline.unrecorded_lookup()
        ways: dict[str, Callable[[str, str], object]] = {
            "without records": unrecorded.lookup,
            "with records": pipeline.lookup,
        }
        found: dict[str, list[tuple[list[float], float, float]]] = {way: [] for way in ways}
        for block in range(-1, blocks):
            for way, lookup in ways.items():
                outcome = run(lookup, asked, f"{block}")
                if way == "with records":
                    assert pipeline.recorder.flush(_PATIENCE_SECONDS)
                if block >= 0:
                    found[way].append((outcome[0], time.perf_counter() - outcome[1], time.process_time() - outcome[2]))
    rates = {}
    for way, outcomes in found.items():
        each = statistics.median(seconds for times, _, _ in outcomes for seconds in times)
        rates[way] = size / statistics.median(elapsed for _, elapsed, _ in outcomes)
        spent = statistics.median(cpu for _, _, cpu in outcomes) / size
        print(f"| {name} | {way} | {each * 1e6:.0f} | {spent * 1e6:.0f} | {rates[way]:,.0f} |", flush=True)
    share = 1 - rates["with records"] / rates["without records"]
    print(f"| {name} | share of the throughput that recording takes | | | {share:.0%} |", flush=True)


def run(lookup: Callable[[str, str], object], asked: list[str], block: str) -> tuple[list[float], float, float]:
    """Make a block of look-ups.

    :returns: Seconds of each, and when the block began, by the clock and by the processor's.
    """
    times = []
    started, spent = time.perf_counter(), time.process_time()
    for number, query in enumerate(asked):
        begun = time.perf_counter()
        lookup(query, f"{block}-{number}")
        times.append(time.perf_counter() - begun)
    return times, started, spent


if __name__ == "__main__":
    main()
