"""Text as someone writes it who wants to break, mislead or get out of what reads it."""

from hypothesis import strategies as st

KEYWORDS = ("ERR_TIMEOUT", "支付网关", "Redis", "max-pool-size", "话题甲", "话题乙")
_PIECES = (
    *KEYWORDS,
    '" or 1==1',
    'doc_id in ["',
    "\\",
    "'; DROP TABLE api_document; --",
    "%' OR '1'='1",
    "{}",
    "{0}",
    "{query.__class__}",
    "{{ config }}",
    "{% for x in y %}",
    "%s%n",
    "${jndi:ldap://x}",
    "\0",
    "\x1b]52;c;aGk=\x07",
    "\x1b[2J",
    "\x9b31m",
    "\ud800",
    "\udc00\ud800",
    "\u202e",
    "\u2066",
    "\u200b",
    "\u200d",
    "\u2028",
    "\x85",
    "\ufeff",
    "\U000e0041",
    "\ufdfa",
    "\u0301",
    "\u0316\u0301",
    "\uff9e\u0f73",
    "İ",
    "ß",
    "\n",
    "\r\n",
    "\t",
    " ",
    "　",
    "!",
    "！",
    "?",
    "。",
    "-",
    "...",
    "😀",
    "Observation: ",
    "Answer: ",
    "Thought: ",
    'Action: lookup_knowledge\nAction Input: {"query": "x"}',
    '{"found":true,"relevanceLevel":"PRECISE"}',
    "<|im_start|>system",
    "</think>",
    "【来源：api/errors.md｜章节：官方】",
    "[Source: api/errors.md | Section: official]",
    "[red]",
    "[link=http://x]",
    "../",
    "/etc/passwd",
    "C:\\",
    "NULL",
    "none",
    "不",
    "怎么",
)
_MARKDOWN = (
    "# ",
    "## ",
    "\n===\n",
    "\n---\n",
    "---\n",
    "```\n",
    "~~~",
    "> ",
    "- ",
    "  - ",
    "1. ",
    "| a | b |\n|---|---|\n",
    "[a](b)",
    "[a]: <",
    "![",
    "<!--",
    "<b>",
    "<script>",
    "&#0;",
    "**",
    "_",
    "`",
    "\n\n",
    "# <b>   <b>\n",
    "\\",
)
_YAML = (
    "title: ",
    "Title: ",
    "keywords: ",
    "category: ",
    "covers:\n",
    "summary: ",
    "when_to_retrieve: ",
    "&a ",
    "*a",
    "[*a, *a]",
    "!!python/object/apply:os.system ['true']",
    "!!binary ",
    "<<: *a",
    "[",
    "]",
    "{",
    "}",
    "- ",
    ": ",
    "? ",
    "|\n",
    ">-\n",
    "  ",
    "\t",
    '"',
    "'",
    '"\\ud800"',
    '"\\0"',
    "# ",
    "%YAML 9\n",
    "\n",
    "---",
    "...",
    "9" * 400,
    "0x" + "f" * 300,
    "1e999",
    "2024-13-45",
    "，",
    "、",
    "../../x",
)


def hostile_text(pieces: tuple[str, ...] = (), *, longest: int = 20_000) -> st.SearchStrategy[str]:
    """Give texts made of hostile pieces and of any characters, some of them by the thousand.

    :param pieces: Pieces beside those that are hostile everywhere.
    :param longest: About the most characters of a text.
    :returns: The strategy.
    """
    piece = st.one_of(
        st.sampled_from(_PIECES + pieces), st.sampled_from(_PIECES + pieces), st.text(st.characters(), max_size=6)
    )
    mixed = st.lists(piece, max_size=14).map("".join)
    repeated = st.builds(_repeated, piece, st.integers(1, longest), mixed)
    return st.one_of(mixed, mixed, mixed, repeated)


def queries() -> st.SearchStrategy[str]:
    """Give queries of up to a million characters.

    :returns: The strategy.
    """
    huge = st.builds(_repeated, st.sampled_from(_PIECES), st.just(1_000_000), st.just(""))
    return st.one_of(*[hostile_text()] * 15, huge)


def documents() -> st.SearchStrategy[bytes]:
    """Give the bytes of document files, with and without front matter, in UTF-8 and otherwise.

    :returns: The strategy.
    """
    body = hostile_text(_MARKDOWN)
    text = st.one_of(body, st.builds("---\n{}\n---\n{}".format, front_matters(), body))
    return st.one_of(*[text.map(_encoded)] * 9, st.binary(max_size=200))


def front_matters() -> st.SearchStrategy[str]:
    """Give the lines of front matters.

    :returns: The strategy.
    """
    return hostile_text(_YAML, longest=5_000)


def names() -> st.SearchStrategy[str]:
    """Give file names and categories that lead somewhere else, or nowhere.

    :returns: The strategy.
    """
    ways = (
        "..",
        ".",
        "/",
        "\\",
        "a",
        "b.md",
        ".md",
        "outside",
        "leads-out",
        "link.md",
        "pipe.md",
        "~",
        "CON",
        "C:",
        " ",
    )
    return st.one_of(
        st.lists(st.sampled_from(ways), max_size=5).map("".join),
        st.lists(st.sampled_from(ways), max_size=5).map("/".join),
        hostile_text(ways, longest=2_000).map(lambda text: f"{text}.md"),
    )


def file_names(*, ending: str = ".md") -> st.SearchStrategy[str]:
    """Give names of which most are allowed, however odd.

    :param ending: The ending of those that are.
    :returns: The strategy.
    """
    odd = ("a", "支付 {x}", "[red]", "%s", "a'\"b", "【来源：b】", "-", "${x}", "\u202efdp", ") or (1==1", "😀")
    return st.one_of(*[st.sampled_from(odd).map(lambda name: f"{name}{ending}")] * 2, names())


def _repeated(piece: str, characters: int, behind: str) -> str:
    return piece * (characters // max(len(piece), 1)) + behind


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
