"""A knowledge base with everything that looks things up in it: what an application calls."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.tools import FunctionTool

from knowledge_lookup.agents.executor import KnowledgeExecutor, build_executor
from knowledge_lookup.agents.lookup_result import LookupResult
from knowledge_lookup.agents.lookup_tool import build_lookup_tool, build_search_doc_tool
from knowledge_lookup.agents.plan_and_execute import PlanAndExecute
from knowledge_lookup.agents.planner import Planner, build_planner
from knowledge_lookup.pipeline.doctor import Difference
from knowledge_lookup.pipeline.errors import KnowledgeBaseError
from knowledge_lookup.pipeline.evaluation import EvaluationReport, LabelledQuery, evaluate, require_documents
from knowledge_lookup.pipeline.explanation import Explanation, explain
from knowledge_lookup.pipeline.ingestion.document_service import UploadResult
from knowledge_lookup.pipeline.ingestion.sync_report import Progress, SyncReport
from knowledge_lookup.pipeline.ingestion.synchronizer import SYNC_LEASE
from knowledge_lookup.pipeline.record_parts import RecordParts
from knowledge_lookup.pipeline.settings import Settings
from knowledge_lookup.pipeline.tuning import (
    ProfileStore,
    SavedProfile,
    TuningGoal,
    TuningReport,
)
from knowledge_lookup.retrievers.query_text import readable_query
from knowledge_lookup.retrievers.scoped_query_bundle import ScopedQueryBundle


class KnowledgePipeline(RecordParts):
    """A knowledge base with everything that looks things up in it.

    ::

        with KnowledgePipeline.from_settings() as pipeline:
            pipeline.sync()
            print(pipeline.lookup("ERR_TIMEOUT", session_id="s1"))

    Parts are built on first use: an exact match opens neither Milvus nor the embedding model. Leaving the
    ``with`` block writes the records and releases Milvus Lite, which one process at a time may hold. A pipeline
    may be used from many threads and tasks at once.

    Use :meth:`from_settings`.

    :param settings: The settings.
    :param llm: The language model of the executor; None builds the one that the settings name.
    :param embed_model: The embedding model; None builds the one that the settings name.
    """

    @classmethod
    def from_settings(
        cls, settings: Settings | None = None, *, llm: LLM | None = None, embed_model: BaseEmbedding | None = None
    ) -> Self:
        """Build a pipeline.

        :param settings: None loads ``knowledge-lookup.yml`` and the environment.
        :param llm: Used instead of the one that the settings name.
        :param embed_model: Used instead of the one that the settings name.
        :returns: The pipeline; nothing is opened yet.
        :raises SettingsError: If loading finds settings that aren't valid.
        """
        return cls(Settings.load() if settings is None else settings, llm=llm, embed_model=embed_model)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # The knowledge base

    def sync(self, *, rebuild: bool = False, workers: int = 1, progress: Progress | None = None) -> SyncReport:
        """Index what changed in the folder of documents.

        :param rebuild: Embed all documents again, which a change of the embedding model needs.
        :param workers: Number of processes that embed, at least 1; above 1 each builds the model of the settings, and
            a script must call this below ``if __name__ == "__main__":``.
        :param progress: Called with the number of documents done, their total, and the next document's path.
        :returns: What was added, updated, removed, left as it was and skipped.
        :raises KnowledgeLookupError: If the folder, the database, the model or Milvus can't be used, a worker dies, or
            workers are asked for with an embedding model that was given as an object.
        """
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        if workers == 1:
            return self._synchronizer.sync(rebuild=rebuild, progress=progress)
        with self._embedding_workers(workers) as embedder:
            return self._synchronizer.sync(rebuild=rebuild, embedder=embedder, progress=progress)

    def upload(
        self, source: Path | str | bytes, *, name: str | None = None, category: str | None = None
    ) -> UploadResult:
        """Save a Markdown or plain text document in the knowledge base and index it.

        It is saved as ``{base path}/{category}/{name}``; a document that is there already is replaced whole.

        :param source: Path of the file, or its bytes.
        :param name: File name in the knowledge base; None takes the source's own. Bytes need one.
        :param category: The domain; wins over the front matter. None takes the front matter's, else ``general``.
        :returns: What was done.
        :raises KnowledgeLookupError: If the name, the category or the file is refused (nothing was written), or if
            the folder, the database, the model or Milvus fails (the next sync completes what was begun).
        """
        if isinstance(source, bytes):
            if name is None:
                raise ValueError("bytes have no name: give one, for example name='redis.md'")
            return self._document_service.upload(source, name=name, category=category)
        path = Path(source)
        try:
            raw = self._files.read_elsewhere(path)
        except (OSError, ValueError) as error:  # a path with NUL is a ValueError
            reason = error.strerror if isinstance(error, OSError) else error
            raise KnowledgeBaseError(f"'{path}' can't be read ({reason}): give the path of a file") from error
        return self._document_service.upload(raw, name=path.name if name is None else name, category=category)

    def delete(self, file_path: str) -> bool:
        """Delete a document: its file, its row, its chunks and its keywords.

        :param file_path: Path relative to the base path.
        :returns: False when there was no such document.
        :raises KnowledgeLookupError: If the path is refused, or the folder, the database or Milvus fails (the next
            sync completes what was begun).
        """
        return self._document_service.delete(file_path)

    def import_folder(
        self, folder: Path | str, *, category_from_folder: bool = False, progress: Progress | None = None
    ) -> SyncReport:
        """Copy a folder of documents into the knowledge base, keeping its subfolders, and index them.

        :param folder: The folder.
        :param category_from_folder: Make the first subfolder each document's domain, over its front matter.
        :param progress: Called with the number of documents done, their total, and the next document's path.
        :returns: What was done; what was skipped is in it with the reason.
        :raises KnowledgeLookupError: If the folder can't be imported, or the database, the model or Milvus fails;
            started again, the import goes on where it was.
        """
        return self._document_service.import_folder(
            Path(folder), category_from_folder=category_from_folder, progress=progress
        )

    def examine(self) -> list[Difference]:
        """Compare files, rows, chunks, keyword index and domains.

        :returns: Every difference; none when all say the same.
        :raises KnowledgeLookupError: If something can't be read.
        """
        return self._doctor.examine()

    def mend(self) -> None:
        """Mend what :meth:`examine` finds, from the files.

        :raises KnowledgeLookupError: If something can't be read or written.
        """
        self._doctor.fix()

    def knowledge_map(self, *, max_characters: int | None = None) -> str:
        """Describe the domains and their documents as YAML, for a planner.

        :param max_characters: Budget; None takes a sensible one.
        :returns: The map; empty when nothing is indexed.
        :raises DatabaseError: If the database can't be used.
        """
        self.domains.ensure_all()
        return self.domains.build_knowledge_map(max_characters=max_characters)

    def is_indexed(self) -> bool:
        """Tell whether the knowledge base has been indexed, and nothing is left unfinished.

        :returns: False if no document is indexed yet, or a write was cut off; True also while another process writes.
        """
        unfinished = self.documents.unfinished()
        if len(unfinished) == self.documents.count() or self._leases.was_abandoned(SYNC_LEASE):
            return False
        return all(self._leases.is_held(path) for path in unfinished)

    # Looking things up

    def lookup(self, query: str, session_id: str | None = None, section_title: str | None = None) -> LookupResult:
        """Look up a query: exact match first, semantic search if that doesn't settle it.

        :param query: Keywords or a question.
        :param session_id: The session; what it has been given is not given again. None: no memory, unless
            ``session_context`` names one.
        :param section_title: One section of the document that the query finds, by its title or the title's beginning;
            None for what answers the query.
        :returns: The result; ``str(result)`` is the JSON for an LLM.
        :raises KnowledgeLookupError: If semantic search is needed and can't be used.
        """
        return self._knowledge_lookup.lookup(query, session_id, section_title)

    async def alookup(
        self, query: str, session_id: str | None = None, section_title: str | None = None
    ) -> LookupResult:
        """Look up a query without blocking the event loop; see :meth:`lookup`.

        :param query: Keywords or a question.
        :param session_id: The session.
        :param section_title: The section.
        :returns: The result.
        :raises KnowledgeLookupError: If semantic search is needed and can't be used.
        """
        # The first use builds the parts, which reads the database; later a hop into a thread would be for nothing.
        if "_knowledge_lookup" not in vars(self):
            await asyncio.to_thread(lambda: self._knowledge_lookup)
        return await self._knowledge_lookup.alookup(query, session_id, section_title)

    def search(self, query: str, top_k: int = 5) -> list[NodeWithScore]:
        """Search passages by meaning alone, without memory or record.

        :param query: What to look for.
        :param top_k: Most passages, at least 1.
        :returns: Passages best first, ``score`` being the similarity (0 to 1); those below the reference
            threshold are left out.
        :raises KnowledgeLookupError: If the model or Milvus can't be used.
        """
        if top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        nodes = self.vector_retriever.retrieve(ScopedQueryBundle(query, similarity_top_k=top_k))
        return self.relevance.postprocess_nodes(nodes)

    def explain(self, query: str) -> Explanation:
        """Tell by what a query is judged, whether or not anything is found; nothing is remembered or recorded.

        :param query: Keywords or a question.
        :returns: Keyword matches, passages with their evidence, and the thresholds.
        :raises KnowledgeLookupError: If semantic search is needed and can't be used.
        """
        query = readable_query(query)
        retrieval = self._ranking.retrieve_with_evidence(QueryBundle(query))
        retrieval.require_semantic_search()
        return explain(query, matches=retrieval.matches, nodes=retrieval.nodes, judge=self.judge)

    def evaluate(self, queries: Sequence[LabelledQuery], *, progress: Progress | None = None) -> EvaluationReport:
        """Measure the look-up with labelled queries; nothing is remembered or recorded.

        :param queries: The labelled queries, at least one.
        :param progress: Called with the number of queries done, their total, and the next query.
        :returns: The outcomes and their figures.
        :raises KnowledgeLookupError: If semantic search is needed and can't be used.
        """
        require_documents(queries, (digest[0] for digest in self.documents.iter_digests()))
        return evaluate(self._knowledge_lookup, self._ranking, queries, progress=progress)

    def tune(
        self,
        queries: Sequence[LabelledQuery] | None = None,
        *,
        goal: TuningGoal | None = None,
        progress: Progress | None = None,
    ) -> TuningReport:
        """Fit the evidence profile to the embedding model and these documents; nothing is changed yet.

        :param queries: Labelled queries; None makes queries of the documents themselves.
        :param goal: What must hold; None takes ``TuningGoal()``.
        :param progress: Called with the number of queries done, their total, and the next query.
        :returns: The profile and what it comes to; :meth:`save_profile` saves it.
        :raises TooFewLabelsError: If there's too little to fit to.
        :raises KnowledgeLookupError: If the model, Milvus or the database can't be used.
        """
        goal = TuningGoal() if goal is None else goal
        if queries is not None:
            require_documents(queries, (digest[0] for digest in self.documents.iter_digests()))
            return self.tuner.tune(queries, goal, progress=progress)
        return self.tuner.tune_without_labels(self._corpus(), goal, progress=progress)

    def save_profile(self, report: TuningReport, *, apply: bool = False) -> Path:
        """Save a tuned profile in the data folder.

        :param report: What :meth:`tune` returned.
        :param apply: Use it from now on; look-ups of this pipeline use it when it is opened again.
        :returns: The file.
        :raises ProfileFileError: If it can't be written.
        """
        made_from = {key: value for key, value in report.to_dict().items() if key != "profile"}
        saved = SavedProfile(report.profile, self.embedding_model_name, self.settings.milvus.collection, made_from)
        return ProfileStore(Path(self.settings.data_dir)).save(saved, apply=apply)

    def lookup_tool(self, session_id: str | None = None) -> FunctionTool:
        """Make the ``lookup_knowledge`` tool for a LlamaIndex agent.

        :param session_id: Binds the tool to a session; None takes it from the workflow's ``Context`` or from
            ``session_context``.
        :returns: The tool.
        """
        return build_lookup_tool(self._knowledge_lookup, session_id=session_id)

    def search_doc_tool(self, session_id: str | None = None) -> FunctionTool:
        """Make the ``search_doc`` tool: semantic search only, with the same memory and records.

        :param session_id: See :meth:`lookup_tool`.
        :returns: The tool.
        """
        return build_search_doc_tool(self._doc_search, session_id=session_id)

    def executor(self, session_id: str | None = None) -> KnowledgeExecutor:
        """Build the bundled ReAct executor over this knowledge base.

        :param session_id: See :meth:`lookup_tool`.
        :returns: An agent; ``await executor.run(question)`` ends in an answer.
        """
        return build_executor(
            [self.lookup_tool(session_id)],
            self.llm,
            locale=self.settings.locale,
            timeout_seconds=self.settings.llm.timeout_seconds,
        )

    def planner(self) -> Planner:
        """Build the planner, which knows the map of the knowledge base.

        :returns: A planner; its map is that of this moment.
        :raises DatabaseError: If the database can't be used.
        """
        seconds = self.settings.llm.timeout_seconds
        return build_planner(self.llm, self.knowledge_map(), locale=self.settings.locale, timeout_seconds=seconds)

    def plan_and_execute(self, session_id: str) -> PlanAndExecute:
        """Build the workflow that plans, has the executor carry out each step in one session, and composes an answer.

        :param session_id: The session of all steps.
        :returns: A workflow; ``await workflow.run(user_msg=question)`` ends in an answer.
        :raises DatabaseError: If the database can't be used.
        """
        return PlanAndExecute(
            self.planner(),
            self.executor(session_id),
            self.llm,
            locale=self.settings.locale,
            timeout_seconds=self.settings.llm.timeout_seconds,
        )
