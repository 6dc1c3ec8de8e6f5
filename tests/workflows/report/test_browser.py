"""Pages as a reader sees them, in headless Chromium: on a phone, a tablet and a desk, light and dark.

Where there is no Chromium nothing of this is seen: ``apt-get install chromium`` brings it. With GRAMPLANE_PICTURES=FOLDER in the
environment pictures of all pages are kept there, for eyes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gramplane.workflows.report.render import page
from tests.workflows.report.browser import Tab, browser_program, browser_tab
from tests.workflows.report.pages import pages

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser_program() is None, reason="Chromium is not installed: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
]

WIDTHS = (390, 768, 1280)
LEAST_CONTRAST = 4.5  # of text and its ground, as the accessibility guidelines ask for (WCAG 2, level AA)
NAMES = ("fgm", "mkl", "regression", "rules", "tasks", "path", "map", "compared")

OPEN = "document.querySelectorAll('details').forEach(item => item.open = true)"

# Elements beyond the right edge of the page; what has a scroll bar of its own may be wider inside.
WIDE = """
[...document.querySelectorAll('body *')]
  .filter(item => !item.closest('.scroll, .skip, .unseen') || item.matches('.scroll'))
  .filter(item => item.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map(item => `${item.tagName}.${item.getAttribute('class') || ''}: ${item.textContent.slice(0, 40)}`)
"""

# Text of figures that leaves its card.
LOST = """
[...document.querySelectorAll('figure')].flatMap(card => {
  const edge = card.getBoundingClientRect();
  return [...card.querySelectorAll('svg text')]
    .map(text => [text, text.getBoundingClientRect()])
    .filter(([text, box]) => box.right > edge.right || box.left < edge.left || box.bottom > edge.bottom)
    .map(([text]) => `${card.querySelector('h3').textContent}: ${text.textContent}`);
})
"""

# Contrast of every text with what lies behind it: backgrounds from the page's up to the text's own, each as far as it is not transparent.
CONTRASTS = """
(() => {
  const parse = colour => { const n = colour.match(/[0-9.]+/g).map(Number); return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1]; };
  const over = (top, ground) => [0, 1, 2].map(k => top[3] * top[k] + (1 - top[3]) * ground[k]).concat(1);
  const light = colour => {
    const [r, g, b] = colour.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = item => {
    const layers = [];
    for (let at = item; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const told = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), item = walker.currentNode.parentElement;
    if (!text || item.closest('style')) continue;
    const style = getComputedStyle(item), drawn = item.closest('svg');
    const behind = ground(drawn ? drawn.parentElement : item);
    const ink = over(parse(drawn ? style.fill : style.color), behind);
    const [a, b] = [light(ink), light(behind)].sort((x, y) => y - x);
    const key = `${ink.slice(0, 3).map(Math.round)} on ${behind.slice(0, 3).map(Math.round)}`;
    if (!told.has(key)) told.set(key, [(a + 0.05) / (b + 0.05), text.slice(0, 40)]);
  }
  return [...told].map(([key, [ratio, text]]) => [ratio, key, text]);
})()
"""


HEIGHTS = """
[...document.querySelectorAll('svg.chart text')].filter(text => text.textContent.length > 2)
  .map(text => text.getBoundingClientRect()).map(box => Math.min(box.width, box.height))
"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser_tab() as opened:
        yield opened


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    written = {}
    for name, runs in pages().items():
        written[name] = folder / f"{name}.html"
        written[name].write_text(page(runs, "Written by gramplane from a test."), encoding="utf-8")
    return written


def test_there_is_a_page_of_every_kind():
    assert set(NAMES) == set(pages())


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_a_page_fits_and_can_be_read(tab: Tab, files: dict[str, Path], name: str, width: int, dark: bool):
    tab.show(files[name], width, dark)
    if kept := os.environ.get("GRAMPLANE_PICTURES"):
        tab.picture(Path(kept) / f"{name}-{width}-{'dark' if dark else 'light'}.png")
    for _ in range(2):
        scroll, client = tab.value("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert scroll <= client == width
        assert tab.value(WIDE) == []
        assert tab.value(LOST) == []
        low = [found for found in tab.value(CONTRASTS) if found[0] < LEAST_CONTRAST]
        assert not low
        tab.value(OPEN)
    ground = tab.value("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
    assert max(ground) < 64 if dark else min(ground) > 192
    assert tab.troubles() == []


def test_figures_take_the_colours_of_the_page(tab: Tab, files: dict[str, Path]):
    colours = {}
    for dark in (False, True):
        tab.show(files["fgm"], 768, dark)
        colours[dark] = tab.value("getComputedStyle(document.querySelector('svg.chart path[style*=\"stroke: var(--c0)\"]')).stroke")
    assert colours[False] != colours[True]


def test_text_of_figures_is_not_tiny(tab: Tab, files: dict[str, Path]):
    for width in WIDTHS:
        tab.show(files["mkl"], width, False)
        tab.value(OPEN)
        heights = tab.value(HEIGHTS)
        assert heights and min(heights) >= 9, width


def test_names_of_many_classes_are_in_one_piece(tab: Tab, files: dict[str, Path]):
    for width in WIDTHS:
        tab.show(files["mkl"], width, False)
        rows = tab.value("[...document.querySelectorAll('.dense tbody th')].map(item => item.getBoundingClientRect().height)")
        assert len(rows) == 12 and max(rows) < 40, width


def test_a_keyboard_reaches_everything_and_opens_what_is_folded(tab: Tab, files: dict[str, Path]):
    tab.show(files["fgm"], 1280, False)
    order = []
    for _ in range(60):
        tab.press("Tab", 9)
        order.append(tab.value("document.activeElement.tagName + ' ' + document.activeElement.textContent.trim().slice(0, 30)"))
        if order[-1].startswith("SUMMARY The run"):
            break
    assert order[0] == "A To the figures" and any(item.startswith("A What to try next") for item in order)
    assert order[-1].startswith("SUMMARY The run") and tab.value("document.activeElement.matches(':focus-visible')")
    assert tab.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    tab.press("Enter", 13)
    assert tab.value("document.querySelector('#work details').open")


def test_headings_are_in_order_and_every_figure_is_told(tab: Tab, files: dict[str, Path]):
    for name in NAMES:
        tab.show(files[name], 768, False)
        levels = tab.value("[...document.querySelectorAll('h1, h2, h3, h4')].map(item => Number(item.tagName[1]))")
        assert levels[0] == 1 and levels.count(1) == 1 and all(b - a <= 1 for a, b in pairwise(levels))
        told = tab.value("[...document.querySelectorAll('figure [role=img]')].map(item => item.getAttribute('aria-label'))")
        assert len(told) == tab.value("document.querySelectorAll('figure').length") and all(len(text.split()) > 5 for text in told)
        assert tab.value("[...document.querySelectorAll('nav a')].every(link => document.querySelector(link.getAttribute('href')))")
        ids = tab.value("[...document.querySelectorAll('[id]')].map(item => item.id)")
        assert len(ids) == len(set(ids))


def test_the_browser_would_notice(tab: Tab, tmp_path: Path, files: dict[str, Path]):
    """Planted faults: a wide element, pale text, a request, a script, a white page in the dark."""
    faults = tmp_path / "faults.html"
    text = files["rules"].read_text(encoding="utf-8")
    planted = '<p style="width: 2000px">wide</p><p style="color: #999; background: #aaa">pale</p><img src="https://example.invalid/x.png"><script>1</script>'
    faults.write_text(text.replace("<main", f"{planted}<main").replace("--ground: #0e1217", "--ground: #ffffff"), encoding="utf-8")
    tab.show(faults, 390, True)
    assert tab.value("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert any("wide" in found for found in tab.value(WIDE))
    assert any("pale" in found[2] for found in tab.value(CONTRASTS) if found[0] < LEAST_CONTRAST)
    assert any("Content Security Policy" in trouble for trouble in tab.troubles())
    assert min(tab.value("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")) > 192
