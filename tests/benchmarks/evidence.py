"""How far the levels can be believed: the figures of the whole look-up on five corpora, with their 95 % intervals.

    python tests/benchmarks/evidence.py --data DATA --work WORK [--corpus NAME]

Each answerable question is asked as it is and once more with what answers it left out of the keyword index, the search
and the statistics: then nothing should be found. Profiles are measured on questions that they weren't fitted to:

- built-in: the profile that ships; made of XQuAD and the documentation, so only the bundled documents are new to it
  (``built_in_profile.py`` shows the figures without each corpus);
- tune --queries: each fifth of the questions by a profile fitted to the others, thresholds included;
- tune --auto: the built-in weights, thresholds moved by queries made of the documents;
- similarity: the plain judgement by thresholds on the similarity (0.904 and 0.876).
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from corpora import Corpus, corpora
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from knowledge_lookup.agents.document_texts import DocumentTexts
from knowledge_lookup.agents.messages import MESSAGES
from knowledge_lookup.agents.result_assembly import ResultAssembly
from knowledge_lookup.agents.session_memory import SessionMemory
from knowledge_lookup.pipeline import KnowledgePipeline
from knowledge_lookup.pipeline.evaluation import LabelledQuery, Share
from knowledge_lookup.pipeline.evidence_profiles import BUILT_IN_EVIDENCE
from knowledge_lookup.pipeline.ingestion.knowledge_files import KnowledgeFiles
from knowledge_lookup.pipeline.tuning import StatisticsWithout, TooFewLabelsError, TuningGoal
from knowledge_lookup.pipeline.tuning.fitting import FOLDS, fit_profile
from knowledge_lookup.postprocessors import (
    EvidencePostprocessor,
    EvidenceProfile,
    RelevanceLevel,
    RelevancePostprocessor,
    relevance_level_of,
)
from knowledge_lookup.retrievers import KeywordRetriever, KnowledgeRetriever, ScopedQueryBundle
from knowledge_lookup.retrievers.metadata import document_of
from knowledge_lookup.retrievers.search_terms import query_terms

PLAIN = RelevancePostprocessor(highly_relevant_threshold=0.904, reference_threshold=0.876)
GOAL = TuningGoal()

Judge = EvidenceProfile | RelevancePostprocessor


@dataclass(frozen=True)
class Asked:
    """A query that was asked once.

    :param kind: Its kind.
    :param answerable: Whether what answers it was there.
    :param level: The level that it got.
    :param is_right: Whether a document that answers was delivered.
    """

    kind: str
    answerable: bool
    level: RelevanceLevel | None
    is_right: bool


class Measurement:
    """Asks the queries of a corpus of one pipeline.

    :param corpus: The corpus.
    :param pipeline: A pipeline over its documents.
    """

    def __init__(self, corpus: Corpus, pipeline: KnowledgePipeline) -> None:
        self._corpus = corpus
        self._pipeline = pipeline
        texts = DocumentTexts(KnowledgeFiles(corpus.folder), str)
        self._assembly = ResultAssembly(texts, str, MESSAGES["zh"])
        self._embeddings = {
            query.query: pipeline.vector_retriever.embed(ScopedQueryBundle(query.query)) for query in corpus.queries
        }

    def ask(self, queries: Sequence[LabelledQuery], judge_of: Callable[[LabelledQuery], Judge]) -> list[Asked]:
        """Ask each query, and each answerable one once more without what answers it."""
        asked = []
        for query in queries:
            asked.append(self._ask(query, judge_of(query), frozenset()))
            if query.gold:
                asked.append(self._ask(query, judge_of(query), frozenset(self._corpus.leave_out(query))))
        return asked

    def first_documents(
        self, queries: Sequence[LabelledQuery]
    ) -> Iterator[tuple[LabelledQuery, dict[str, str | None]]]:
        """Find the document that each way to search ranks first."""
        paths = {passage.node_id: passage.file_path for passage in self._pipeline.chunk_store.passages()}
        everything = EvidenceProfile(self._built_in.weights, self._built_in.other_script_weights, 1.0, 0.0)
        for query in queries:
            bundle = self._bundle(query, frozenset())
            dense = self._pipeline.vector_retriever.retrieve(bundle)
            sparse = self._pipeline.bm25_index.search(query_terms(query.query), limit=1)
            ours = self._retriever(everything, frozenset()).retrieve(self._bundle(query, frozenset()))
            yield (
                query,
                {
                    "pipeline": document_of(ours[0]) if ours else None,
                    "by meaning": document_of(dense[0]) if dense else None,
                    "by words": paths[sparse[0][0]] if sparse else None,
                },
            )

    @property
    def _built_in(self) -> EvidenceProfile:
        return BUILT_IN_EVIDENCE[self._pipeline.embedding_model_name]

    def _ask(self, query: LabelledQuery, judge: Judge, left_out: frozenset[str]) -> Asked:
        index = self._pipeline.keyword_index
        entries = [entry for path in left_out if (entry := index.get(path)) is not None]
        for entry in entries:
            index.remove(entry.file_path)
        try:
            nodes = self._retriever(judge, left_out).retrieve(self._bundle(query, left_out))
        finally:
            for entry in entries:
                index.add(entry)
        delivery = self._assembly.assemble(nodes, SessionMemory())
        is_right = not (query.gold - left_out).isdisjoint(delivery.documents)
        return Asked(query.kind, bool(query.gold - left_out), relevance_level_of(nodes), is_right)

    def _retriever(self, judge: Judge, left_out: frozenset[str]) -> KnowledgeRetriever:
        pipeline = self._pipeline
        by_evidence = isinstance(judge, EvidenceProfile)
        postprocessor: BaseNodePostprocessor
        if isinstance(judge, EvidenceProfile):
            statistics = StatisticsWithout(pipeline.bm25_index, left_out) if left_out else pipeline.bm25_index
            postprocessor = EvidencePostprocessor(statistics=statistics, profile=judge)
        else:
            postprocessor = judge
        return KnowledgeRetriever(
            KeywordRetriever(pipeline.keyword_index, KnowledgeFiles(self._corpus.folder)),
            pipeline.hybrid_retriever if by_evidence else pipeline.vector_retriever,
            node_postprocessors=[postprocessor],
        )

    def _bundle(self, query: LabelledQuery, left_out: frozenset[str]) -> ScopedQueryBundle:
        bundle = ScopedQueryBundle(query.query, exclude_documents=left_out)
        bundle.embedding = self._embeddings[query.query]
        return bundle


def main() -> None:
    """Measure every corpus and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="Folder of the public data.")
    parser.add_argument("--work", type=Path, required=True, help="Folder for indexes, kept from run to run.")
    parser.add_argument("--corpus", help="Only the corpora whose name has this in it.")
    options = parser.parse_args()
    for corpus in corpora(options.data, options.work):
        if options.corpus is None or options.corpus in corpus.name:
            with corpus.pipeline(options.work) as pipeline:
                report(corpus, pipeline)


def report(corpus: Corpus, pipeline: KnowledgePipeline) -> None:
    """Print the tables of one corpus."""
    measurement = Measurement(corpus, pipeline)
    print(f"\n### {corpus.name}\n")
    print("| profile | not found, rightly | hit | by kind | `HIGHLY_RELEVANT` right | `PRECISE` right |")
    print("|---|---|---|---|---|---|", flush=True)
    built_in = BUILT_IN_EVIDENCE[pipeline.embedding_model_name]
    print_row("similarity", measurement.ask(corpus.queries, lambda _: PLAIN))
    print_row("built-in", measurement.ask(corpus.queries, lambda _: built_in))
    by_fold = fitted_without(corpus, pipeline)
    print_row("tune --queries", measurement.ask(corpus.queries, by_fold))
    try:
        automatic = pipeline.tune(goal=GOAL).profile
    except TooFewLabelsError as error:
        print(f"| tune --auto | {error} |||||")
    else:
        print_row("tune --auto", measurement.ask(corpus.queries, lambda _: automatic))
    print("\n| right document first | n | pipeline | by meaning alone | by words alone |\n|---|---|---|---|---|")
    first: dict[str, list[tuple[bool, ...]]] = defaultdict(list)
    for query, found in measurement.first_documents([query for query in corpus.queries if query.gold]):
        first[query.kind].append(tuple(path in query.gold for path in found.values()))
    for kind, rows in first.items():
        shares = [f"{sum(column) / len(rows):.3f}" for column in zip(*rows, strict=True)]
        print(f"| {kind} | {len(rows)} | {' | '.join(shares)} |", flush=True)


def fitted_without(corpus: Corpus, pipeline: KnowledgePipeline) -> Callable[[LabelledQuery], EvidenceProfile]:
    """Fit a profile for each fifth of the queries to the other four."""
    tuner = pipeline.tuner
    samples = tuner.collector.collect(corpus.queries, leave_out=corpus.leave_out)
    groups = sorted({one.group for one in samples})
    fold_of = {group: number % FOLDS for number, group in enumerate(groups)}
    group_of = {one.query: one.group for one in samples}
    settled = {one.query for one in samples if pipeline.keyword_retriever.match(one.query.query).decisive}
    base = BUILT_IN_EVIDENCE[pipeline.embedding_model_name]
    profiles = [
        fit_profile(
            [one for one in samples if fold_of[one.group] != fold and one.query not in settled], GOAL, base=base
        )
        for fold in range(FOLDS)
    ]
    return lambda query: profiles[fold_of[group_of[query]]]


def print_row(name: str, asked: Sequence[Asked]) -> None:
    """Print one row of a table."""
    answerable = [one for one in asked if one.answerable]
    kinds = sorted({one.kind for one in answerable})
    by_kind = "; ".join(f"{kind} {_share(one.is_right for one in answerable if one.kind == kind)}" for kind in kinds)
    print(
        f"| {name} | {_share(one.level is None for one in asked if not one.answerable)} "
        f"| {_share(one.is_right for one in answerable)} | {by_kind if len(kinds) > 1 else '-'} "
        f"| {_share(one.is_right for one in asked if one.level is RelevanceLevel.HIGHLY_RELEVANT)} "
        f"| {_share(one.is_right for one in asked if one.level is RelevanceLevel.PRECISE)} |",
        flush=True,
    )


def _share(counted: Iterator[bool]) -> Share:
    values = list(counted)
    return Share(sum(values), len(values))


if __name__ == "__main__":
    main()
