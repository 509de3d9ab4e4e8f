"""Everything at once on one pipeline for some minutes: does it stay right, quick and small?

Threads and tasks of an event loop look up (exact, semantic, in sessions, by section) while others upload, replace and
delete documents, or change files and synchronize, over a generated knowledge base. Each sentence of a document names
its version, so that each result can be checked: of a document it must hold one version alone, none that was out of date
when the look-up began, and nothing of what was deleted by then.

    python tests/benchmarks/soak.py [--seconds 600] [--store lite|server] [--threads 4] [--tasks 4]

It prints a line every 30 seconds and the figures at the end. Exit status 1 if there was an error, if memory grew by
more than 5 % after the warm-up, if file handles or threads grew, if a look-up has no record, or if documents, rows,
chunks and keyword index differ in the end.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import random
import re
import statistics
import sys
import tempfile
import threading
import time
import tracemalloc
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

from generated_base import entries
from sqlalchemy import func, select

sys.path.insert(0, str(Path(__file__).parents[2]))

from knowledge_lookup.agents import LookupResult
from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.storage.tables import tool_invocation
from knowledge_lookup.retrievers.keyword_match import KeywordEntry
from tests.servers import milvus

MOST_MEMORY = 1.05
MORE_HANDLES = 5
"""So many more may be open by chance: connections of the pool, a file that is just being read."""
WINDOW_SECONDS = 15.0
"""Memory, handles and threads are the median of so many seconds."""
SAMPLE_SECONDS = 30.0
QUESTIONS = (
    "数据库连接被耗尽，应用拿不到连接，第 {} 次",
    "支付渠道一直没有应答，订单 {} 该怎么办",
    "缓存节点 {} 挂了以后请求都打到数据库",
    "出现这个错误时先看监控面板上的哪些指标 {}",
    "处理完后要通知谁，工单 {}",
)
SHARES = {"exact": 50, "semantic": 20, "session": 20, "section": 10}
"""Of a hundred look-ups."""
MARK = re.compile(r"D(\d+)V(\d+)X")


@dataclass
class Document:
    """A generated document and its versions; a deletion is a version without text.

    :param number: Its number, which each of its sentences names.
    :param entry: Path, title and keywords.
    :param settled: The version that is in the knowledge base, once the change that made it has returned.
    :param begun: The newest version that a change was begun for.
    :param deleted: Versions without text.
    """

    number: int
    entry: KeywordEntry
    settled: int = 0
    begun: int = 0
    deleted: set[int] = field(default_factory=set)

    @property
    def name(self) -> str:
        """File name."""
        return self.entry.file_path.rpartition("/")[2]

    def text(self, version: int) -> bytes:
        """Write the file of one version."""
        mark = f"D{self.number}V{version}X"
        sections = [
            f"## {keyword}\n\n{keyword} 出现时先看监控（{mark}）。再按手册处理（{mark}）。处理完通知同事（{mark}）。"
            for keyword in self.entry.keywords[1:]
        ]
        head = f"---\ntitle: {self.entry.title}\nkeywords: [{', '.join(self.entry.keywords)}]\n---"
        lead = f"# {self.entry.title}\n\n这是 {self.entry.keywords[0]} 的说明（{mark}）。"
        return "\n\n".join([head, lead, *sections, ""]).encode()

    @contextlib.contextmanager
    def change(self, *, deletes: bool = False) -> Iterator[int]:
        """Note that the document is being changed while the block runs."""
        version = self.begun + 1
        if deletes:
            self.deleted.add(version)
        self.begun = version
        yield version
        self.settled = version


class Outcome:
    """What happened; safe to use from many threads.

    :param warm_up_seconds: Time at the beginning that isn't measured.
    """

    def __init__(self, warm_up_seconds: float) -> None:
        self.started = time.monotonic()
        self.warm_up_seconds = warm_up_seconds
        self.operations: Counter[str] = Counter()
        self.errors: list[str] = []
        self.lookups = 0
        self.first: dict[str, list[float]] = defaultdict(list)
        self.last: dict[str, deque[tuple[float, float]]] = defaultdict(lambda: deque(maxlen=20_000))
        self._lock = threading.Lock()

    def note(self, kind: str, milliseconds: float) -> None:
        """Note an operation that has ended."""
        now = time.monotonic() - self.started
        with self._lock:
            self.operations[kind] += 1
            self.lookups += kind in SHARES
            if self.warm_up_seconds <= now < self.warm_up_seconds + 60.0:
                self.first[kind].append(milliseconds)
            self.last[kind].append((now, milliseconds))

    def fail(self, what: str) -> None:
        """Note an error, and say so."""
        with self._lock:
            self.errors.append(what)
            if len(self.errors) <= 20:
                print(f"  ERROR {what}", flush=True)


class Soak:
    """The operations, each checked.

    :param pipeline: The pipeline that all of them use.
    :param documents: The documents, all of them indexed.
    :param outcome: What happened.
    """

    def __init__(self, pipeline: KnowledgePipeline, documents: list[Document], outcome: Outcome) -> None:
        self.pipeline = pipeline
        self.documents = documents
        self.outcome = outcome
        self.base = Path(pipeline.settings.knowledge.base_path)
        self.stop = threading.Event()
        self._numbers = count()

    def look_up(self, chance: random.Random) -> None:
        """Look up from a thread until it is time to stop."""
        while not self.stop.is_set():
            for kind, query, session, section, expected in self._conversation(chance):
                before = [document.settled for document in self.documents]
                with self._measured(kind):
                    result = self.pipeline.lookup(query, session, section)
                    self._check(kind, query, result, before, expected)

    async def alook_up(self, chance: random.Random) -> None:
        """Look up from a task until it is time to stop."""
        while not self.stop.is_set():
            for kind, query, session, section, expected in self._conversation(chance):
                before = [document.settled for document in self.documents]
                with self._measured(kind):
                    result = await self.pipeline.alookup(query, session, section)
                    self._check(kind, query, result, before, expected)

    def change(self, chance: random.Random, documents: list[Document]) -> None:
        """Upload, replace and delete until it is time to stop."""
        while not self.stop.wait(0.2):
            document = chance.choice(documents)
            is_there = document.settled not in document.deleted
            if is_there and chance.random() < 0.3:
                with self._measured("deletion"), document.change(deletes=True):
                    assert self.pipeline.delete(document.entry.file_path)
            else:
                kind = "replacement" if is_there else "upload"
                with self._measured(kind), document.change() as version:
                    text, domain = document.text(version), document.entry.domain
                    self.pipeline.upload(text, name=document.name, category=domain)

    def synchronize(self, chance: random.Random, documents: list[Document]) -> None:
        """Change files as an editor does, and synchronize, until it is time to stop."""
        while not self.stop.wait(1.0):
            with self._measured("sync"), contextlib.ExitStack() as changes:
                for document in chance.sample(documents, 3):
                    is_there = document.settled not in document.deleted
                    deletes = is_there and chance.random() < 0.3
                    version = changes.enter_context(document.change(deletes=deletes))
                    file = self.base / document.entry.file_path
                    if deletes:
                        file.unlink()
                    else:
                        written = file.with_name(f".{file.name}.new")
                        written.write_bytes(document.text(version))
                        written.replace(file)
                self.pipeline.sync()

    def _conversation(
        self, chance: random.Random
    ) -> Iterator[tuple[str, str, str | None, str | None, Document | None]]:
        kind = chance.choices(list(SHARES), list(SHARES.values()))[0]
        number = next(self._numbers)
        document = chance.choice(self.documents)
        session = f"session-{number}"
        if kind == "exact":
            yield kind, f"{document.entry.keywords[0]} 怎么处理", session, None, document
        elif kind == "semantic":
            yield kind, QUESTIONS[number % len(QUESTIONS)].format(number), None, None, None
        elif kind == "section":
            yield kind, document.entry.title, None, chance.choice(document.entry.keywords[1:]), document
        else:
            for query in chance.sample(document.entry.keywords, 2):
                yield kind, query, session, None, None
            yield kind, QUESTIONS[number % len(QUESTIONS)].format(number), session, None, None

    def _check(self, kind: str, query: str, result: LookupResult, before: list[int], expected: Document | None) -> None:
        after = [document.begun for document in self.documents]
        contents = [part.content for part in (result.primary, result.supplement) if part is not None]
        found: dict[int, set[int]] = defaultdict(set)
        for number, version in MARK.findall("\n".join(contents)):
            found[int(number)].add(int(version))
        said = f"{kind} {query!r}"
        if result.message is not None and "语义检索暂不可用" in result.message:
            self.outcome.fail(f"{said}: {result.message}")
        for number, versions in found.items():
            if len(versions) > 1:
                self.outcome.fail(f"{said}: versions {sorted(versions)} of document {number} in one result")
            for version in versions:
                if not before[number] <= version <= after[number] or version in self.documents[number].deleted:
                    self.outcome.fail(
                        f"{said}: version {version} of document {number}, which was at {before[number]} before and "
                        f"{after[number]} after"
                    )
        if expected is not None:
            at = expected.number
            is_stable = before[at] == after[at] and before[at] not in expected.deleted
            if is_stable and at not in found:
                self.outcome.fail(f"{said}: document {at} was not delivered: {str(result)[:200]}")

    @contextlib.contextmanager
    def _measured(self, kind: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        except Exception as error:  # whatever it is, it must not happen
            self.outcome.fail(f"{kind}: {type(error).__name__}: {error}")
        self.outcome.note(kind, (time.perf_counter() - started) * 1000.0)


@dataclass(frozen=True)
class Usage:
    """What the process holds at one moment.

    :param memory: Resident bytes.
    :param handles: Open file handles.
    :param threads: Threads of the system, those of libraries included.
    """

    memory: float
    handles: float
    threads: float

    @classmethod
    def now(cls) -> "Usage":
        """Look at this process."""
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        handles, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), handles, threads)

    @classmethod
    def median(cls, seen: list["Usage"]) -> "Usage":
        """Take the median of each."""
        return cls(
            *(statistics.median(getattr(one, name) for one in seen) for name in ("memory", "handles", "threads"))
        )

    def __str__(self) -> str:
        return f"{self.memory / 2**20:.0f} MiB, {self.handles:.0f} handles, {self.threads:.0f} threads"


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="How long, the warm-up included.")
    parser.add_argument("--warm-up", type=float, default=None, help="Seconds; a fifth of the time if not given.")
    parser.add_argument("--store", choices=("lite", "server"), default="lite", help="Milvus Lite or a private server.")
    parser.add_argument("--threads", type=int, default=4, help="Threads that look up.")
    parser.add_argument("--tasks", type=int, default=4, help="Tasks of an event loop that look up.")
    parser.add_argument("--documents", type=int, default=60, help="Documents, at least 12.")
    parser.add_argument("--seed", type=int, default=0, help="Of the random numbers.")
    parser.add_argument("--allocations", action="store_true", help="Say which lines of Python hold more; slow.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        # On a busy machine a question takes longer than the default allows; that's no error here.
        milvus_settings: dict[str, object] = {"timeout_seconds": 10.0}
        if options.store == "server":
            milvus_settings["uri"] = stack.enter_context(milvus.milvus_server(Path(folder) / "server"))
        settings = Settings(
            knowledge={"base_path": Path(folder) / "documents"},
            data_dir=Path(folder) / "data",
            milvus=milvus_settings,
            # Small bounds are reached during the warm-up.
            embedding={"query_cache_size": 200},
            session={"max_sessions": 200},
        )
        sys.exit(0 if run(settings, options) else 1)


def run(settings: Settings, options: argparse.Namespace) -> bool:
    """Run everything, print the figures, and tell whether all is well."""
    documents = [Document(n, entry) for n, entry in enumerate(entries(options.documents, seed=options.seed))]
    for document in documents:
        file = Path(settings.knowledge.base_path) / document.entry.file_path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(document.text(0))
    threads_before = threading.active_count()
    with KnowledgePipeline.from_settings(settings) as pipeline:
        pipeline.sync()
        warm_up = options.seconds / 5 if options.warm_up is None else options.warm_up
        outcome = Outcome(warm_up)
        usages = traffic(Soak(pipeline, documents, outcome), options)
        written = pipeline.recorder.flush(60.0)
        rows = pipeline.database.read(
            lambda connection: connection.execute(select(func.count()).select_from(tool_invocation)).scalar_one()
        )
        differences = pipeline.examine()
    left = threading.active_count() - threads_before
    warm, end = (Usage.median(seen) for seen in usages)
    print_times(outcome, options.seconds)
    problems = {
        "errors": len(outcome.errors),
        f"memory after the warm-up {warm}; at the end {end}; ratio {end.memory / warm.memory:.3f}": (
            end.memory > warm.memory * MOST_MEMORY
        ),
        "more handles": end.handles > warm.handles + MORE_HANDLES,
        "more threads": end.threads > warm.threads + MORE_HANDLES,
        f"look-ups {outcome.lookups:,}, records {rows:,}": not written or rows != outcome.lookups,
        f"differences found by examine(): {'; '.join(map(str, differences)) or 'none'}": bool(differences),
        f"threads left after close(): {left}": left > 0,
    }
    for what, is_problem in problems.items():
        print(f"{'FAILED' if is_problem else 'ok    '} {what}{f': {is_problem}' if what == 'errors' else ''}")
    return not any(problems.values())


def traffic(soak: Soak, options: argparse.Namespace) -> tuple[list[Usage], list[Usage]]:
    """Run all workers, and watch the process.

    :returns: What the process held at the end of the warm-up and at the end.
    """
    half = len(soak.documents) // 3
    chances = (random.Random(options.seed + number) for number in count(1))

    async def tasks() -> None:
        await asyncio.gather(*(soak.alook_up(next(chances)) for _ in range(options.tasks)))

    work: list[Callable[[], None]] = [
        *(partial(soak.look_up, next(chances)) for _ in range(options.threads)),
        lambda: asyncio.run(tasks()),
        # A third each is changed by uploads, by syncs, and never.
        lambda: soak.change(random.Random(options.seed), soak.documents[:half]),
        lambda: soak.synchronize(random.Random(options.seed), soak.documents[half : 2 * half]),
    ]
    workers = [threading.Thread(target=one) for one in work]
    for worker in workers:
        worker.start()
    outcome, usages = soak.outcome, ([], [])
    said = f"{len(workers)} workers over {len(soak.documents)} documents, warm-up {outcome.warm_up_seconds:.0f} s"
    print(said, flush=True)
    next_line, before = SAMPLE_SECONDS, None
    while (now := time.monotonic() - outcome.started) < options.seconds:
        time.sleep(1.0)
        usage = Usage.now()
        if outcome.warm_up_seconds - WINDOW_SECONDS <= now < outcome.warm_up_seconds:
            usages[0].append(usage)
        elif now >= options.seconds - WINDOW_SECONDS:
            usages[1].append(usage)
        if now >= next_line:
            next_line += SAMPLE_SECONDS
            total = sum(outcome.operations.values())
            print(f"{now:5.0f} s: {total:,} operations, {len(outcome.errors)} errors, {usage}", flush=True)
        if options.allocations and before is None and now >= outcome.warm_up_seconds:
            tracemalloc.start(12)
            gc.collect()
            before = tracemalloc.take_snapshot()
    if before is not None:
        gc.collect()
        for line in tracemalloc.take_snapshot().compare_to(before, "lineno")[:25]:
            print(f"  {line}")
    soak.stop.set()
    for worker in workers:
        worker.join()
    return usages


def print_times(outcome: Outcome, seconds: float) -> None:
    """Print how many operations there were of each kind, and how long they took."""
    print("\n| operation | count | p50 ms, first minute | p50 ms, last | p95 ms, first | p95 ms, last |")
    print("|---|---|---|---|---|---|")
    for kind, number in sorted(outcome.operations.items()):
        last = [ms for at, ms in outcome.last[kind] if at >= seconds - 60.0]
        cells = [figure(times) for times in (outcome.first[kind], last)]
        print(f"| {kind} | {number:,} | {cells[0][0]} | {cells[1][0]} | {cells[0][1]} | {cells[1][1]} |")


def figure(times: list[float]) -> tuple[str, str]:
    """Give median and 95th percentile."""
    if len(times) < 2:
        return "-", "-"
    return f"{statistics.median(times):.2f}", f"{statistics.quantiles(times, n=20)[-1]:.2f}"


if __name__ == "__main__":
    main()
