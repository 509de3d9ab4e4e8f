"""What the exact match costs, from six documents to a hundred thousand: time, memory, changes, and the whole look-up.

Sizes are measured in turn, so that a drift of the machine's speed meets them all. Beside the keyword index stands what
else finds many terms in a text: an Aho-Corasick automaton (package ``pyahocorasick``), which must be built again after
each change. The look-ups have a unique exact hit each, a new session each, action memory and records as they come.

    python tests/benchmarks/exact_match.py [--sizes 6 500 10000 100000] [--rounds 3000]
"""

import argparse
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import ahocorasick
from generated_base import (
    KEYWORDS_A_DOCUMENT,
    entries,
    queries,
    settings,
    write_knowledge_base,
)

from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.retrievers.keyword_index import KeywordIndex
from knowledge_lookup.retrievers.keyword_match import KeywordEntry
from knowledge_lookup.retrievers.normal_form import normal_form

_BLOCK = 50
_CHANGES = 300
_FEW = 200
"""So many documents' texts are asked for again and again; 256 are kept in memory."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[6, 500, 10_000, 100_000], help="Documents.")
    parser.add_argument("--rounds", type=int, default=3_000, help="Measured calls for each size.")
    options = parser.parse_args()
    matches(options.sizes, options.rounds)
    lookups(options.sizes, options.rounds)


def matches(sizes: Sequence[int], rounds: int) -> None:
    """Measure the match alone, and changes."""
    indexes: list[KeywordIndex] = []
    asked: list[list[str]] = []
    memory: list[float] = []
    for size in sizes:
        documents = list(entries(size))
        before = resident_bytes()
        index = KeywordIndex()
        index.update(documents)
        memory.append((resident_bytes() - before) / (size * KEYWORDS_A_DOCUMENT))
        indexes.append(index)
        asked.append(queries(documents, rounds))
    calls = [
        [lambda q=query, i=index: i.match(q) for query in some] for index, some in zip(indexes, asked, strict=True)
    ]
    times = in_turn(calls)
    print("| documents | keywords | match p50 µs | p99 µs | p50 relative | add µs | remove µs | bytes a keyword |")
    print("|---|---|---|---|---|---|---|---|")
    base = statistics.median(times[sizes.index(500)] if 500 in sizes else times[0])
    for size, index, found, taken in zip(sizes, indexes, times, memory, strict=True):
        added, removed = changes(index)
        p50 = statistics.median(found)
        print(
            f"| {size:,} | {size * KEYWORDS_A_DOCUMENT:,} | {p50 * 1e6:.0f} | {percentile(found, 99) * 1e6:.0f} "
            f"| {p50 / base:.2f} | {added * 1e6:.0f} | {removed * 1e6:.0f} "
            f"| {f'{taken:.0f}' if size >= 10_000 else '-'} |"
        )
    print()
    automaton(list(entries(max(sizes))), asked[sizes.index(max(sizes))], indexes[sizes.index(max(sizes))])


def changes(index: KeywordIndex) -> tuple[float, float]:
    """Measure adding and removing a document."""
    added, removed = [], []
    for entry in entries(_CHANGES, seed=7):
        new = KeywordEntry(f"new/{entry.file_path}", entry.title, "new", entry.keywords)
        started = time.perf_counter()
        index.add(new)
        between = time.perf_counter()
        index.remove(new.file_path)
        added.append(between - started)
        removed.append(time.perf_counter() - between)
    return statistics.median(added), statistics.median(removed)


def automaton(documents: list[KeywordEntry], asked: list[str], index: KeywordIndex) -> None:
    """Measure the automaton over the same terms; it knows no token boundaries, no ranking and no decisiveness."""
    before, started = resident_bytes(), time.perf_counter()
    found = ahocorasick.Automaton()
    for entry in documents:
        for term in map(normal_form, (*entry.keywords, entry.title)):
            found.add_word(term, term)
    found.make_automaton()
    built = time.perf_counter() - started
    taken = (resident_bytes() - before) / (len(documents) * KEYWORDS_A_DOCUMENT)
    both = in_turn(
        [
            [lambda q=query: list(found.iter(normal_form(q))) for query in asked],
            [lambda q=query: index.match(q) for query in asked],
        ]
    )
    print(f"| {len(documents):,} documents | p50 µs | after a change | bytes a keyword |")
    print("|---|---|---|---|")
    print(f"| Aho-Corasick, terms alone | {statistics.median(both[0]) * 1e6:.0f} | {built:.2f} s | {taken:.0f} |")
    print(f"| keyword index, whole match | {statistics.median(both[1]) * 1e6:.0f} | see above | see above |\n")


def lookups(sizes: Sequence[int], rounds: int) -> None:
    """Measure whole look-ups, of documents that were asked for lately and of ones that have to be read first."""
    with tempfile.TemporaryDirectory() as folder:
        calls: list[list[Callable[[], object]]] = []
        pipelines: list[KnowledgePipeline] = []
        for size in sizes:
            documents = write_knowledge_base(Path(folder) / str(size), size)
            pipeline = KnowledgePipeline.from_settings(settings(Path(folder) / str(size)))
            pipelines.append(pipeline)
            few = queries(documents[:_FEW], rounds)
            unique(pipeline, few)
            for query in few:
                pipeline.lookup(query)
            calls.append(new_sessions(pipeline, few, "again"))
            others = documents[_FEW:]
            if len(others) >= rounds:
                asked = [entry.keywords[0] for entry in random.Random(2).sample(others, rounds)]
                calls.append(new_sessions(pipeline, asked, "first"))
        times = iter(in_turn(calls))
        print("| documents | look-up p50 ms | p95 ms | p99 ms | longest ms |\n|---|---|---|---|---|")
        for size in sizes:
            row(f"{size:,}", next(times))
            if size - _FEW >= rounds:
                row(f"{size:,}, each document for the first time", next(times))
        for pipeline in pipelines:
            pipeline.close()


def new_sessions(pipeline: KnowledgePipeline, asked: list[str], name: str) -> list[Callable[[], object]]:
    """Make a call of each query."""
    return [lambda q=query, s=f"{name}-{at}": pipeline.lookup(q, s) for at, query in enumerate(asked)]


def row(name: str, times: list[float]) -> None:
    """Print what calls took."""
    print(
        f"| {name} | {statistics.median(times) * 1e3:.2f} | {percentile(times, 95) * 1e3:.2f} "
        f"| {percentile(times, 99) * 1e3:.2f} | {max(times) * 1e3:.1f} |"
    )


def unique(pipeline: KnowledgePipeline, asked: list[str]) -> None:
    """Make sure that what is measured is what it is called."""
    decisive = sum(pipeline.keyword_retriever.match(query).decisive for query in asked)
    assert decisive == len(asked), f"only {decisive} of {len(asked)} queries have a unique exact hit"


def in_turn(calls: Sequence[Sequence[Callable[[], object]]]) -> list[list[float]]:
    """Time several series of calls in blocks, one series after the other.

    :param calls: The series, all of the same length.
    :returns: Seconds of each call.
    """
    times: list[list[float]] = [[] for _ in calls]
    gc.collect()
    for start in range(0, len(calls[0]), _BLOCK):
        for series, found in zip(calls, times, strict=True):
            for call in series[start : start + _BLOCK]:
                started = time.perf_counter()
                call()
                found.append(time.perf_counter() - started)
    return times


def percentile(values: list[float], percent: int) -> float:
    """Give a percentile."""
    return sorted(values)[int(len(values) * percent / 100)]


def resident_bytes() -> int:
    """Give the memory that this process holds."""
    gc.collect()
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(status.split("VmRSS:")[1].split()[0])


if __name__ == "__main__":
    main()
