"""The Python examples of a documentation page and their output."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def examples(page: str) -> list[tuple[str, str]]:
    """Return each Python example of a page with the output that follows it."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(found) == text.count("```text"), f"{page}: an output without its example"
    return found


def printed(code: str) -> str:
    """Run an example and return its output."""
    output = StringIO()
    with redirect_stdout(output):
        exec(compile(code, "an example", "exec"), {})
    return output.getvalue()
