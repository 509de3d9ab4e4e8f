"""What agents that ask again and again are sent, by this package's tool and by LlamaIndex's stock one, in one run.

    python tests/benchmarks/agent_economy.py --data DATA --work WORK [--corpus NAME]
    python tests/benchmarks/agent_economy.py --work WORK --llm BASE_URL [--model NAME] [--transcripts FOLDER]

The first has three scripted agents (``knowledge_lookup.pipeline.evaluation.sessions`` says what each does) go through
sessions of 20 queries on one topic. Stock is ``stock_llama_index.py``: ``RetrieverTool`` over words and meaning, with
the same chunks, vectors and number of passages. It has no sessions and no signals, so its obedient agent asks as often
as the forgetful one. What counts is the text that the model reads. Where it comes from is checked against the
documents: each passage that a tool reports must stand in what it sent, and no line of a document may be in what it sent
without being reported.

The second runs real agents with a language model behind an OpenAI-compatible endpoint over the bundled documents
(``real_agents.py``).
"""

import argparse
import json
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora import BUNDLED, LABELS
from llama_index.core.tools import RetrieverTool
from real_agents import DEFAULT_SECONDS, run_real_agents
from stock_llama_index import Chunk, read_chunks, stock_tool

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.pipeline.evaluation import (
    Ask,
    OpenSession,
    SessionReport,
    ToolAnswer,
    ask_with,
    read_sessions,
    require_gold_documents,
    run_sessions,
)
from knowledge_lookup.pipeline.evaluation.session_report import LEAST_OVERLAP
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles

STOCK = "LlamaIndex"
VARIANTS: dict[str, dict[str, Any]] = {
    "this package": {},
    "max-lookups-per-domain: 3": {"max_lookups_per_domain": 3},
}
"""The settings of ``session`` to measure."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of a corpus, to check by them what a tool sent.

    :param bodies: File paths to texts without front matter.
    """

    bodies: dict[str, str]

    def check(self, answer: ToolAnswer, sent: str) -> None:
        """Check that what was sent and what is reported to have been sent are the same.

        :param answer: The answer with what it reports.
        :param sent: The documents' texts in it, with what stands between them.
        :raises ValueError: If they aren't.
        """
        left = sent
        for passage in sorted(answer.passages, key=lambda one: one.start - one.end):
            text = self.bodies[passage.file_path][passage.start : passage.end].strip()
            if text not in sent:
                raise ValueError(f"reported, but not sent, of '{passage.file_path}': {text[:80]!r}")
            left = left.replace(text, "\n")
        for line in map(str.strip, left.splitlines()):
            if len(line) >= LEAST_OVERLAP and any(line in body for body in self.bodies.values()):
                raise ValueError(f"sent, but not reported: {line[:80]!r}")


def main() -> None:
    """Measure what the arguments ask for and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="Folder of the public data; without it, the bundled documents alone.")
    parser.add_argument("--work", type=Path, required=True, help="Folder for indexes, kept from run to run.")
    parser.add_argument("--corpus", default="", help="Only the corpora whose name has this in it.")
    parser.add_argument("--llm", metavar="BASE_URL", help="Run real agents with the model behind this endpoint.")
    parser.add_argument("--model", default="qwen", help="The model's name at the endpoint.")
    parser.add_argument("--seconds", type=float, default=DEFAULT_SECONDS, help="Time limit of a question.")
    parser.add_argument("--transcripts", type=Path, help="Folder for a transcript of each run of a real agent.")
    options = parser.parse_args()
    if options.llm is not None:
        with open_pipeline(BUNDLED, options.work, {}) as pipeline:
            run_real_agents(
                pipeline,
                KnowledgeFiles(BUNDLED),
                LABELS / "agent-questions.jsonl",
                base_url=options.llm,
                model=options.model,
                seconds=options.seconds,
                transcripts=options.transcripts,
            )
        return
    corpora = {"bundled documents": (BUNDLED, "sessions-bundled.jsonl")}
    if options.data is not None:
        corpora["TiDB documentation"] = (options.data / "tidb-docs-cn", "sessions-tidb-docs-cn.jsonl")
    for name, (folder, file) in corpora.items():
        if options.corpus in name:
            print_report(name, measure(folder, LABELS / file, options.work))


def measure(folder: Path, file: Path, work: Path) -> dict[str, SessionReport]:
    """Have the agents go through the sessions with each system.

    :param folder: The documents.
    :param file: The sessions.
    :param work: Folder for indexes.
    :returns: A report of each system, the stock one first.
    """
    sessions = read_sessions(file)
    files = KnowledgeFiles(folder)
    reports: dict[str, SessionReport] = {}
    for variant, session_settings in VARIANTS.items():
        with open_pipeline(folder, work, session_settings) as pipeline:
            paths = [path for path, _ in pipeline.documents.iter_digests()]
            require_gold_documents(sessions, paths)
            documents = Documents({path: files.read_body(path) for path in paths})
            if STOCK not in reports:
                chunks = read_chunks(pipeline, files)
                with tempfile.TemporaryDirectory() as place, stock_tool(chunks, pipeline, Path(place)) as tool:
                    reports[STOCK] = SessionReport.of(run_sessions(stock_sessions(tool, chunks, documents), sessions))
            reports[variant] = SessionReport.of(run_sessions(own_sessions(pipeline, documents), sessions))
    return reports


def open_pipeline(folder: Path, work: Path, session_settings: dict[str, Any]) -> KnowledgePipeline:
    """Open a pipeline over documents, indexed in a folder that is kept from run to run."""
    settings = Settings(
        knowledge={"base_path": folder}, data_dir=work / f"data-{folder.name}", session=session_settings
    )
    pipeline = KnowledgePipeline.from_settings(settings)
    pipeline.sync()
    return pipeline


def stock_sessions(tool: RetrieverTool, chunks: dict[str, Chunk], documents: Documents) -> OpenSession:
    """Ask LlamaIndex's tool, which knows no sessions."""

    def ask(query: str) -> ToolAnswer:
        output = tool.call(input=query)
        answer = ToolAnswer(str(output), tuple(chunks[found.node.node_id].span for found in output.raw_output))
        documents.check(answer, answer.text)
        return answer

    @contextmanager
    def open_session() -> Iterator[Ask]:
        yield ask

    return open_session


def own_sessions(pipeline: KnowledgePipeline, documents: Documents) -> OpenSession:
    """Ask this package's tool, each time in a new session."""

    def checked(ask: Ask) -> Ask:
        def ask_and_check(query: str) -> ToolAnswer:
            answer = ask(query)
            documents.check(answer, "\n".join(texts_in(json.loads(answer.text))))
            return answer

        return ask_and_check

    @contextmanager
    def open_session() -> Iterator[Ask]:
        session_id = f"economy-{uuid.uuid4()}"
        try:
            yield checked(ask_with(pipeline.lookup_tool(session_id)))
        finally:
            pipeline.memory.clear_session(session_id)

    return open_session


def texts_in(result: Any) -> Iterator[str]:
    """Find the texts of a result: contents and messages, not the lists of sections and titles."""
    if isinstance(result, dict):
        for key, value in result.items():
            if key in {"content", "message"} and isinstance(value, str):
                yield value
            elif isinstance(value, dict):
                yield from texts_in(value)


def print_report(name: str, reports: dict[str, SessionReport]) -> None:
    """Print a table for each agent."""
    stock = reports[STOCK]
    answerable = sum(bool(session.gold) for session in stock.sessions)
    print(f"\n### {name}: {len(stock.sessions)} sessions, {answerable} with documents that answer")
    for agent, figures in stock.figures.items():
        described = {system: report.figures[agent].described() for system, report in reports.items()}
        print(f"\n| {agent.value} | {' | '.join(reports)} |\n|---|{'---|' * len(reports)}")
        for figure in described[STOCK]:
            print(f"| {figure} | {' | '.join(values[figure] for values in described.values())} |")
        total = sum(figures.characters.values)
        shares = [f"{sum(report.figures[agent].characters.values) / total:.3f}" for report in reports.values()]
        print(f"| characters, of {STOCK}'s | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main()
