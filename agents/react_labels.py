"""The labels of the ReAct format, as models write them, and as documents may."""

import re

COLON = r"[ \t*_`]*[:：][ \t]*\**"
"""The colon behind a label, with the markup around it."""
# Labels begin a line; "Action Input" may stand on the line of its action.
LINE_LABEL = re.compile(
    r"(?:^[ \t>*#`_]*|(?<![A-Za-z])(?=(?-i:Action Input)))"
    rf"(thought|action[ _-]?input|action|observation|(?:final )?answer){COLON}",
    re.IGNORECASE | re.MULTILINE,
)
"""A label where it counts; the first group is its name."""


def without_react_labels(text: str) -> str:
    """Take away from a quotation what would be read as a step of the one who quotes.

    :param text: Text of a document.
    :returns: The text, with ``∶`` for the colon of what looks like a label; of the same length.
    """
    return LINE_LABEL.sub(lambda label: label[0].replace(":", "∶").replace("：", "∶"), text)
