"""Random sequences of look-ups, uploads, deletions and clears against a plain model of the action memory.

Each section of a document has its own topic, so that the model can tell what semantic search finds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from knowledge_lookup.agents import LookupResult
from knowledge_lookup.pipeline import KnowledgePipeline
from tests.agents.topics import TopicEmbedding, topic_settings
from tests.knowledge_bases import document

DOMAINS = {"a": "api", "b": "infra", "c": "api"}
VERSIONS = {
    "a": [{"一": "甲", "二": "乙"}, {"一": "甲", "二": "丙"}],
    "b": [{"一": "甲", "三": "丙", "四": "丁"}, {"三": "丁"}],
    "c": [{"一": "丁"}, {"五": "戊", "一": "甲"}],
}
"""Of each document two versions: their sections, and what each is about."""


def path_of(name: str) -> str:
    return f"{DOMAINS[name]}/{name}.md"


def sections_of(name: str, version: int) -> dict[str, str]:
    """The text of each section of a version of a document."""
    return {title: f"文档{name}的第{title}节说的是话题{topic}。" for title, topic in VERSIONS[name][version].items()}


def file_of(name: str, version: int) -> bytes:
    body = "\n\n".join(f"## {title}\n\n{said}" for title, said in sections_of(name, version).items())
    return document(body, title=f"Document-{name}", keywords=f"[KEY_{name}]", category=DOMAINS[name]).encode()


@dataclass
class Session:
    """What a session has asked and been given, in the plainest words."""

    asked: set[tuple[str, str]] = field(default_factory=set)
    """Questions, with the documents that there were."""
    given: set[tuple[str, str, str]] = field(default_factory=set)
    """Sections with their text: document, title, topic."""
    had: set[tuple[str, int]] = field(default_factory=set)
    """Versions of documents of which anything was given."""
    matched: set[tuple[str, int]] = field(default_factory=set)
    """Versions of documents that an exact match gave."""
    closed: set[str] = field(default_factory=set)
    """Documents that the application marked."""
    domains: list[str] = field(default_factory=list)
    latest: list[str] = field(default_factory=list)
    """Documents of which something was given, the latest last."""

    @property
    def documents(self) -> set[str]:
        return {name for name, _, _ in self.given} | self.closed


class Model:
    """The documents that there are, and the sessions."""

    def __init__(self) -> None:
        self.documents: dict[str, int] = {}
        self.sessions: dict[str, Session] = {}

    def session(self, session_id: str) -> Session:
        return self.sessions.setdefault(session_id, Session())

    def new_sections(self, session: Session, name: str) -> set[str]:
        sections = VERSIONS[name][self.documents[name]]
        return {title for title, topic in sections.items() if (name, title, topic) not in session.given}

    def exact(self, session: Session, name: str) -> set[tuple[str, str]]:
        """What a question for a document's keyword must deliver, as document and section."""
        is_over = name in session.closed or (name, self.documents.get(name)) in session.matched
        if is_over or name not in self.documents or self._was_asked(session, f"KEY_{name}"):
            return set()
        return {(name, title) for title in self.new_sections(session, name)}

    def about(self, session: Session, topic: str) -> set[tuple[str, str]]:
        """What a question about a topic must deliver: sections of documents that the session has nothing of."""
        if self._was_asked(session, f"话题{topic}"):
            return set()
        return {
            (name, title)
            for name, version in self.documents.items()
            for title, said in VERSIONS[name][version].items()
            if said == topic and name not in session.closed and (name, version) not in session.had
            if (name, title, topic) not in session.given
        }

    def section(self, session: Session, name: str, title: str) -> set[tuple[str, str]]:
        """What a question for a section must deliver.

        Of a document that isn't there it is the section of this title that the session can have seen last.
        """
        if name not in self.documents:
            there = [known for known in reversed(session.latest) if known in self.documents]
            name = next((known for known in there if title in VERSIONS[known][self.documents[known]]), name)
        if name not in self.documents or name in session.closed:
            return set()
        return {(name, title)} & {(name, new) for new in self.new_sections(session, name)}

    def deliver(self, session: Session, sections: set[tuple[str, str]], in_order: list[str]) -> None:
        for name, title in sections:
            version = self.documents[name]
            session.given.add((name, title, VERSIONS[name][version][title]))
            session.had.add((name, version))
        for name in in_order:
            if sections:
                session.latest.append(name)
            if DOMAINS[name] not in session.domains:
                session.domains.append(DOMAINS[name])

    def _was_asked(self, session: Session, question: str) -> bool:
        return (question, self._corpus) in session.asked

    def ask(self, session: Session, question: str) -> None:
        session.asked.add((question, self._corpus))

    @property
    def _corpus(self) -> str:
        return str(sorted(self.documents.items()))


@pytest.fixture(scope="module", params=["memory", "database"])
def pipeline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgePipeline]:
    folder = Path(tmp_path_factory.mktemp("model"))
    (folder / "docs").mkdir()
    settings = topic_settings(folder / "docs", folder / "data", top_k=5, backend=request.param)
    with KnowledgePipeline.from_settings(settings, embed_model=TopicEmbedding()) as pipeline:
        yield pipeline


@pytest.fixture(scope="module")
def model(pipeline: KnowledgePipeline) -> Model:
    """Give the model of the pipeline; both live on from one example to the next."""
    return Model()


def bring_to(pipeline: KnowledgePipeline, model: Model, name: str, version: int | None) -> None:
    if version is None:
        assert pipeline.delete(path_of(name)) is (name in model.documents)
        model.documents.pop(name, None)
    elif model.documents.get(name) != version:
        pipeline.upload(file_of(name, version), name=f"{name}.md")
        model.documents[name] = version


def names_in(result: LookupResult) -> list[str]:
    return list(dict.fromkeys(Path(span.file_path).stem for span in result.passages))


def check(model: Model, result: LookupResult) -> set[tuple[str, str]]:
    """Check a result by itself, and tell which sections it delivers."""
    content = "\n".join(part.content for part in (result.primary, result.supplement) if part is not None)
    delivered: set[tuple[str, str]] = set()
    for name, version in model.documents.items():
        body = file_of(name, version).decode().partition("\n---\n")[2]
        for title, said in sections_of(name, version).items():
            count = content.count(said)
            assert count <= 1, "the same text twice in one result"
            spans = [body[start:end] for path, start, end in result.passages if path == path_of(name)]
            assert any(said in span for span in spans) is (count == 1)
            assert all(span.strip() in content for span in spans)
            if count:
                delivered.add((name, title))
    assert content.count("说的是") == len(delivered), "text that no present document has"
    assert result.found is bool(delivered)
    assert result.found or len(result.to_json()) < 300
    return delivered


# One of each kind comes more often than the others, so that steps meet.
SESSIONS = st.sampled_from(["s1", "s1", "s1", "s2"])
NAMES = st.sampled_from("aaabc")
TITLES = st.sampled_from("一一二三四五")
look_ups = st.one_of(
    st.tuples(st.just("exact"), SESSIONS, NAMES),
    st.tuples(st.just("about"), SESSIONS, st.sampled_from("甲乙丙丁戊")),
    st.tuples(st.just("about"), SESSIONS, st.sampled_from("甲丁")),
    st.tuples(st.just("section"), SESSIONS, NAMES, TITLES),
)
changes = st.one_of(
    st.tuples(st.just("upload"), NAMES),
    st.tuples(st.just("upload"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.just("clear"), SESSIONS),
    st.tuples(st.just("mark"), SESSIONS, NAMES),
)
histories = st.lists(st.one_of(look_ups, look_ups, changes), min_size=4, max_size=12)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories)
@example(history=[("exact", "s1", "a"), ("upload", "a"), ("exact", "s1", "a"), ("section", "s1", "a", "一")])
@example(history=[("section", "s1", "a", "一"), ("upload", "a"), ("section", "s1", "a", "一"), ("exact", "s1", "a")])
@example(history=[("about", "s1", "乙"), ("exact", "s1", "a"), ("about", "s1", "甲"), ("section", "s1", "b", "一")])
@example(history=[("mark", "s1", "a"), ("exact", "s1", "a"), ("section", "s1", "a", "二"), ("about", "s1", "甲")])
@example(
    history=[("about", "s1", "戊"), ("upload", "c"), ("about", "s1", "戊"), ("upload", "c"), ("about", "s1", "戊")]
)
def test_the_action_memory_agrees_with_the_model(
    pipeline: KnowledgePipeline, model: Model, history: list[tuple[str, ...]]
) -> None:
    for session_id in ("s1", "s2"):
        pipeline.memory.clear_session(session_id)
    model.sessions.clear()
    for name in "abc":
        bring_to(pipeline, model, name, 0)
    for step in history:
        match step:
            case ("upload", name):
                bring_to(pipeline, model, name, 1 - model.documents.get(name, 1))
            case ("delete", name):
                bring_to(pipeline, model, name, None)
            case ("clear", session_id):
                pipeline.memory.clear_session(session_id)
                model.sessions.pop(session_id, None)
            case ("mark", session_id, name):
                pipeline.memory.mark_retrieved(session_id, DOMAINS[name], path_of(name))
                session = model.session(session_id)
                if not any(known == name for known, _ in session.matched):
                    session.closed.add(name)
                model.deliver(session, set(), [name])
            case (kind, session_id, *arguments):
                look_up(pipeline, model, session_id, kind, *arguments)
            case unknown:
                raise AssertionError(unknown)
        for session_id, session in model.sessions.items():
            assert pipeline.memory.get_retrieved_domains(session_id) == session.domains
            assert pipeline.memory.get_retrieved_documents(session_id) == set(map(path_of, session.documents))


def look_up(pipeline: KnowledgePipeline, model: Model, session_id: str, kind: str, what: str, title: str = "") -> None:
    session = model.session(session_id)
    if kind == "exact":
        query, expected = f"KEY_{what}", model.exact(session, what)
    elif kind == "about":
        query, expected = f"话题{what}", model.about(session, what)
    else:
        query, expected = f"KEY_{what}", model.section(session, what, title)
    result = pipeline.lookup(query, session_id=session_id, section_title=title or None)
    assert check(model, result) == expected
    model.deliver(session, expected, names_in(result))
    if kind != "section":
        model.ask(session, query)
    if kind == "exact" and expected:
        session.matched.add((what, model.documents[what]))
    assert list(result.retrieved_domains_this_session) == session.domains
