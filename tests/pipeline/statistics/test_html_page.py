"""The page: well-formed, self-contained, and text in it stays text."""

from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from knowledge_lookup.pipeline.observation_settings import AlertSettings
from knowledge_lookup.pipeline.statistics import Alert, CallStatistics, check_alerts, render_page
from knowledge_lookup.pipeline.statistics.page_texts import PAGE_TEXTS
from knowledge_lookup.pipeline.storage import Database
from knowledge_lookup.postprocessors.completeness_hints import Locale

from .calls import call, figures, nothing

LOCALES: tuple[Locale, ...] = ("zh", "en")
VOID = {"meta", "link", "br", "hr", "img", "input", "rect"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</td></table><style>*{display:none}</style>",
    "{{ 7 * 7 }} {% for x in y %} {}",
    "\x1b[2J\u202egnorw",
    "javascript:alert(1)",
    "&lt;b&gt;",
]


class Page(HTMLParser):
    """Reads a page: its elements, its attributes, its text; fails where an element isn't closed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] != "style":
            self.text += data

    def attributes(self, name: str) -> Iterator[str]:
        return (str(attributes[name]) for _, attributes in self.elements if name in attributes)


@pytest.fixture
def eventful(sqlite_with_tables: Database) -> CallStatistics:
    """Give the figures of a day with hostile text wherever text can be."""
    calls = [nothing(query, session=query, reason=None) for query in HOSTILE]
    calls += [nothing("如何扩容？", session="s"), nothing("hmac-sha256:" + "ab" * 32)]
    calls += [call(level=text, session="s", sources=[f"kb/{text.replace('/', '')}/a.md"]) for text in HOSTILE]
    calls += [nothing("x", reason=text, session="s") for text in HOSTILE]
    calls += [call(minutes_ago=300, l1_error="E: x", total_ms=3000.0), nothing("y", minutes_ago=300, error="E: x")]
    return figures(sqlite_with_tables, *calls)


@pytest.fixture
def alerts(eventful: CallStatistics) -> list[Alert]:
    """Give every kind of alert."""

    def fails() -> None:
        raise ValueError("<b>{broken}</b>")

    rules = AlertSettings(total_latency_percentile="max", high_confidence_calls=1)
    found = check_alerts(eventful, rules, load_keyword_index=fails)
    return [*found, Alert("keyword-index-failures", 3, 1, 20)]


@pytest.mark.parametrize("locale", LOCALES)
def test_the_page_is_well_formed_and_fetches_and_runs_nothing(
    locale: Locale, eventful: CallStatistics, alerts: list[Alert]
) -> None:
    page = Page(render_page(eventful, alerts, locale=locale))
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "iframe", "img", "object", "embed", "a", "form", "base"}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert list(page.attributes("href")) == ["data:,"]
    assert list(page.attributes("src")) == []
    assert "url(" not in render_page(eventful, alerts, locale=locale)


@pytest.mark.parametrize("locale", LOCALES)
def test_hostile_text_is_shown_as_text(locale: Locale, eventful: CallStatistics, alerts: list[Alert]) -> None:
    html = render_page(eventful, alerts, locale=locale)
    page = Page(html)
    for text in HOSTILE:
        shown = text.replace("\x1b", r"\x1b").replace("\u202e", r"\u202e")
        assert shown in page.text, text
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert "<b>{broken}</b>" in page.text
    assert html.count("<style>") == 1


def test_each_locale_has_the_same_words_and_its_own_language(eventful: CallStatistics, alerts: list[Alert]) -> None:
    assert PAGE_TEXTS["zh"].keys() == PAGE_TEXTS["en"].keys()
    chinese, english = (render_page(eventful, alerts, locale=locale) for locale in LOCALES)
    assert '<html lang="zh-CN">' in chinese
    assert '<html lang="en">' in english
    assert "没有找到答案的问题" in chinese
    assert "总耗时过高：25 次调用的最大值为 3,000 ms，超过上限 2,000 ms" in Page(chinese).text
    assert "Asked in vain" in english
    assert not [char for char in Page(english).text.replace("如何扩容？", "") if "\u4e00" <= char <= "\u9fff"]


def test_every_chart_has_its_figures_in_a_table(eventful: CallStatistics) -> None:
    page = Page(render_page(eventful, [], locale="en"))
    charts = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in charts)
    # The timeline's table has a row for each of the 24 parts.
    assert page.text.count("2025-03-04") + page.text.count("2025-03-03") > 24
    for attributes in (attributes for tag, attributes in page.elements if tag == "td"):
        if attributes.get("class") == "track":
            assert attributes["aria-hidden"] == "true"


def test_an_empty_window_has_a_page_too(sqlite_with_tables: Database) -> None:
    page = Page(render_page(figures(sqlite_with_tables), [], locale="zh"))
    assert "这段时间内没有调用记录。" in page.text
    assert "各项告警规则均未触发。" in page.text
