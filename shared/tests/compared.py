"""The page that compares targets, in a browser: what a person does there, and what it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from browser import Browser

ROWS = """
return [...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText.trim()));
"""


def click(browser: Browser, selector: str) -> None:
    browser.run("document.querySelector(arguments[0]).click()", selector)


def choose(browser: Browser, selector: str, value: str) -> None:
    """Set a field as a person does, with the event that comes of it."""
    script = """
    const field = document.querySelector(arguments[0]);
    field.value = arguments[1];
    field.dispatchEvent(new Event(field.type === 'search' ? 'input' : 'change'));
    """
    browser.run(script, selector, value)


def shown(browser: Browser, column: int = 0) -> list[str]:
    """Return one column of the table's rows, of the first the variant alone."""
    return [row[column].split()[0] for row in browser.run(ROWS)]


def status(browser: Browser) -> str:
    return str(browser.run("return document.getElementById('count').textContent"))
