"""The house style's words: what README, docs, notebooks, pages and messages must not say.

Only words that are wrong in every context are here. "turn", "lead", "hold", "fresh", "change", "waiting", "marks",
"counted", "used", "expects" and "sees" also have right uses, so a reader must judge them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import REPOSITORY

SOURCE = REPOSITORY / "shared" / "src" / "fluxbench"
INSTEAD = {
    r"floors?|ceilings?": "roofline, peak rate",
    r"(?:has|takes|have|take) (?:its|their|a) turns?": "trial",
    r"deaths?|obituar\w+": "worker exit",
    r"signs|remarks?": "legend, flag",
    r"sentinels?": "control kernel",
    r"net of the device": "normalized to control",
    r"called different": "false positive",
    r"what was put in": "injected slowdown",
    r"launching is what was timed": "launch-bound",
    r"set aside|counted all the same": "kept, discarded",
    r"precise: cap": "converged: no",
    r"second clock|two clocks": "CUPTI cross-check",
    r"half of 95%": "CI half-width",
    r"95% holds it": "CI coverage",
    r"leaves_out": "exclude",
    r"to be tried again": "retryable",
    r"untold": "unknown",
    r"told|held to|is asked of|of which (?:it|there) is|what there is of": "a sentence with its subject first",
    r"foresaw|foresees": "unexpected",
    r"mend(?:s|ed|ing)?": "fix",
    r"(?:the|a|its) begin": "start, beginning",
}
OLD_WORDS = {"schema1.py", "method.py"}  # they read texts of the first schema, and name earlier methods


def foreign(text: str) -> list[str]:
    """Return each wrong word of a text with what to write instead."""
    line = " ".join(text.split())
    hits = ((re.search(rf"(?i)\b(?:{words})(?!\w)", line), plain) for words, plain in INSTEAD.items())
    return [f"{hit.group()!r}: write {plain}" for hit, plain in hits if hit]


def messages(module: Path) -> Iterator[str]:
    """Yield the sentences among a module's texts: all texts with a space but docstrings."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in statements)
    yield from (node.value for node in texts if isinstance(node.value, str) and " " in node.value)


def prose() -> Iterator[tuple[str, str]]:
    """Yield all that a user reads, with the name of its file."""
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md"), *REPOSITORY.glob("notebooks/*.md")]
    for path in [*pages, REPOSITORY / "environment" / "README.md", *SOURCE.rglob("*.html")]:
        yield str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8")
    for module in SOURCE.rglob("*.py"):
        if module.name not in OLD_WORDS:
            yield from ((str(module.relative_to(REPOSITORY)), text) for text in messages(module))


def test_all_that_a_user_reads_is_in_the_words_of_the_house_style() -> None:
    assert [f"{name}: {hit}" for name, text in prose() for hit in foreign(text)] == []


@pytest.mark.parametrize(
    "text",
    ["an exception that nobody\nforesaw", "half of 95% of it", "Second clock differs", "has its turn"],
)
def test_a_wrong_word_is_found_also_over_two_lines(text: str) -> None:
    assert len(foreign(text)) == 1


@pytest.mark.parametrize(
    "text", ["a rotation's turn", "holds the lock", "No argument is amended.", "a designed kernel"]
)
def test_a_right_word_that_looks_like_it_is_not(text: str) -> None:
    assert foreign(text) == []


def test_messages_are_read_from_calls_and_formats_but_not_from_docstrings(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""A sentinel here."""\nprint(f"the {1} floor", "untold", "a mark of it")\n', encoding="utf-8")
    assert set(messages(module)) == {"a mark of it", "the ", " floor"}
