"""Formulas as MathML, made when the site is built: browsers draw it without a script, so that pages need no network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

# What the converter does not know, in words that it knows.
SPELLINGS = (
    (r"\\arg\\min", r"\\mathrm{argmin}"),
    (r"\\[bB]ig(?=\\)", ""),  # before a brace, a bar or a name: parentheses alone can be large
    (r"\\tfrac", r"\\frac"),
    (r"\\operatorname\*?\{(\w+)\}", r"\\mathrm{\1}"),
    (r"\\mathbb\{1\}", "1"),
)


def _spelled(text: str) -> str:
    for pattern, words in SPELLINGS:
        text = re.sub(pattern, words, text)
    return text


def _primes(math: str) -> str:
    """Set primes beside their letters: browsers without a font for formulas draw the superscript so small that it is lost."""
    for tag, rest in (("msubsup", "msub"), ("msup", "mrow")):
        pattern = rf"<{tag}>((?:(?!<{tag}>).)*?)<mi>&#x02032;</mi></{tag}>"
        math = re.sub(pattern, rf'<mrow><{rest}>\1</{rest}><mo lspace="0" rspace="0.1em">&#x02032;</mo></mrow>', math)
    return math


def formula(text: str, display: str) -> str:
    """Return a formula of LaTeX as an element of MathML, which holds the text as well, for those who copy it."""
    math = _primes(convert(_spelled(text), display=display))
    note = text.replace("&", "&amp;").replace("<", "&lt;")
    return math.replace("</math>", f'<annotation encoding="application/x-tex">{note}</annotation></semantics></math>').replace(
        "<mrow>", "<semantics><mrow>", 1
    )


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(formula(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    text = node.astext()
    lines = [text] if "\\begin" in text else text.split(r"\\")
    formulas = "".join(formula(line, "block") for line in lines)
    translator.body.append(f'<div class="math-block" tabindex="0">{formulas}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
