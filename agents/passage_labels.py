"""The lines that say where the passages of a supplement come from, which no document can write itself."""

import re

from knowledge_lookup.agents.messages import Messages

# Both languages' labels, whatever the language of the look-up. In Latin brackets only where it may be a line of its own
# and no link, for which [Source: RFC 7231](https://...) is a common way to write.
_LINE_START = "(?:^|(?<=[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]))"
_NO_WORD = r"[^\w\n\[]{0,40}"
_FORGED = re.compile(
    rf"(?P<zh>【)(?=\W{{0,10}}(?:来源|source))"
    rf"|{_LINE_START}{_NO_WORD}(?P<en>\[)(?=\W{{0,10}}source\W{{0,10}}[:：])(?![^\]\n]*\]\()",
    re.IGNORECASE,
)


def label(source: str, section: str, messages: Messages) -> str:
    """Write the label of a passage.

    :param source: Its document.
    :param section: Its section; empty for none.
    :param messages: The language.
    :returns: One line.
    """
    source, section = _inside(source), _inside(section)
    if section:
        return messages.passage_label.format(source=source, section=section)
    return messages.passage_label_without_section.format(source=source)


def without_labels(text: str) -> str:
    """Take away from a passage what makes a line of it look like a label: its bracket becomes a parenthesis.

    :param text: The passage.
    :returns: A text of the same length; the passage itself where it has nothing of that kind.
    """
    if "【" not in text and "[" not in text:
        return text
    parts, behind = [], 0
    for forged in _FORGED.finditer(text):
        at = max(forged.start("zh"), forged.start("en"))
        opened, closed, instead = ("【", "】", "（）") if forged["zh"] else ("[", "]", "()")
        if at < behind:
            continue
        line_end = text.find("\n", at)
        end = text.find(closed, at, len(text) if line_end < 0 else line_end)
        parts += [text[behind:at], instead[0]]
        behind = at + len(opened)
        if end >= 0:
            parts += [text[behind:end], instead[1]]
            behind = end + 1
    return "".join([*parts, text[behind:]])


def _inside(name: str) -> str:
    """Keep a path or a heading from ending its label, or from beginning another one."""
    name = " ".join(name.split()).replace("【", "［").replace("】", "］")
    return re.sub(r"\[(?=\W{0,10}source)", "(", name, flags=re.IGNORECASE)
