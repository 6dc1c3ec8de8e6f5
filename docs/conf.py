"""How the site is built: ``python -m sphinx -W -b html docs docs/_build/html``. No step needs a network.

``-D repository_url=https://github.com/NAME/gramplane`` adds links to the repository. With the address of a JSON file in the environment
variable ``SITE_VERSIONS``, pages have a list of versions: ``[{"version": "0.4.0", "url": "https://…/0.4.0/"}, …]``.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.pycode import ModuleAnalyzer

import gramplane

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE)]
sys.path.append(str(HERE.parent))

import examples  # noqa: E402
import make_api  # noqa: E402
import make_cli  # noqa: E402
import make_memory  # noqa: E402
import make_reference  # noqa: E402
import make_sample  # noqa: E402
import make_theory  # noqa: E402
import make_which_method  # noqa: E402

project = "gramplane"
copyright = "2026, the gramplane developers; BSD 3-clause"
version = release = gramplane.__version__

extensions = [
    "mathml",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]

# Folders of examples: files named plot_* run while the site is built, others (long_*) are shown and run by `pytest -m slow`.
EXAMPLES = ["tutorials", "gallery"]
sphinx_gallery_conf = {
    "examples_dirs": EXAMPLES,
    "gallery_dirs": [f"auto_{name}" for name in EXAMPLES],
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"/(_|make_)\w*\.py",
    "doc_module": ("gramplane",),
    "backreferences_dir": "api/backreferences",
    "subsection_order": [f"gallery/{name}" for name in examples.GALLERY],
    "within_subsection_order": "examples.place",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "show_memory": False,
    "parallel": True,  # as many at a time as `-j` says
    "write_computation_times": False,  # those pages load scripts from servers of others
    "show_signature": False,
    "download_all_examples": False,
    "plot_gallery": "True",  # a text, so that `-D plot_gallery=0` leaves the examples out
    "matplotlib_animations": False,
    "capture_repr": ("_repr_html_",),
    "reset_modules": ("matplotlib", "seaborn", "examples.stop_at_warnings"),
    "reset_modules_order": "both",
}

templates_path = ["_templates"]
html_static_path = ["_static"]
exclude_patterns = ["_build", "extensions", *EXAMPLES]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = False
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_block"]
myst_heading_anchors = 4
myst_fence_as_directive = []

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False
viewcode_line_numbers = True
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "gramplane"
html_logo = html_favicon = "_static/logo.svg"
html_context: dict[str, Any] = {}
DESCRIPTION = "Find the few features, groups, kernels or rules that matter, in data too wide or too large for memory."
html_math_renderer = "mathml"
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options: dict[str, Any] = {
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 7,
    "logo": {"text": "gramplane", "alt_text": "gramplane"},
    "show_toc_level": 2,
    "navigation_with_keys": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": {"**": ["page-toc"], "which_method": []},
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
if versions := os.environ.get("SITE_VERSIONS"):
    html_theme_options |= {"switcher": {"json_url": versions, "version_match": version}, "check_switcher": False}
    html_theme_options["navbar_end"].append("version-switcher")
html_sidebars: dict[str, list[str]] = {"index": [], "which_method": [], "benchmarks": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def foreign_words(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Take references out of documentation that scikit-learn wrote: they lead to pages of its site."""
    if not getattr(obj, "__module__", "").startswith("gramplane"):
        lines[:] = re.sub(r"Refer to the :ref:`user guide.*?how to use the API\.", "", "\n".join(lines), flags=re.DOTALL).split("\n")
        text = re.sub(r":(?:ref|term|class|func|meth|mod|doc|user):`~?\.?([^`<]+?)(?:\s*<[^>]+>)?`", r"``\1``", "\n".join(lines))
        lines[:] = re.sub(r"^ *\.\. version\w+::.*$", "", text, flags=re.MULTILINE).split("\n")


def plain_signs(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Set names that end with an underscore, and absolute values, as they are meant: reStructuredText has a meaning of its own for both."""
    for i, line in enumerate(lines):
        if not re.match(r" *(>>>|\.\.|:\w+:|.*\\[a-zA-Z])", line):
            parts = re.split(r"(``.*?``|`[^`]*`|\*\*[^*]*\*\*)", line)
            parts[::2] = [re.sub(r"(?<![\w.])([A-Za-z][\w.]*_)(?!\w)", r"``\1``", part).replace("|", "\\|") for part in parts[::2]]
            lines[i] = "".join(parts)


BIBTEX = dict(re.findall(r"^% (\d+)\n(@.*?^})", (HERE / "references.bib").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
SYSTEMS = {name: info for info in gramplane.METHODS.values() for name in info.public_names}


def links(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Lead from an estimator to its theory, and to what helps to use it; after numpydoc, behind the first paragraph."""
    info = SYSTEMS.get(name.rpartition(".")[2]) if what == "class" else None
    if info is not None:
        first = next(i for i, line in enumerate(lines) if line)
        ways = (
            f":doc:`theory </theory/{info.system}>`",
            ":doc:`which method? </which_method>`",
            ":doc:`choosing parameters </guides/choosing>`",
            ":doc:`reading certificates </guides/certificates>`",
        )
        at = lines.index("", first)
        lines[at:at] = ["", f"Command ``{info.name}``. See {', '.join(ways)}."]


def grouped(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Group the parameters of an estimator by what they decide; after numpydoc, which has set them as one field."""
    if what != "class" or SYSTEMS.get(name.rpartition(".")[2]) is None or ":Parameters:" not in lines:
        return
    first = lines.index(":Parameters:") + 1
    last = next((i for i in range(first, len(lines)) if lines[i] and not lines[i].startswith(" ")), len(lines))
    groups: dict[str, list[str]] = {group: [] for group in make_api.GROUPS}
    group = make_api.GROUPS[0]
    for line in lines[first:last]:
        if entry := re.match(r"    \*\*(\w+)", line):
            group = make_api.GROUP_OF.get(entry[1], make_api.GROUPS[0])
        groups[group].append(line)
    fields = [[f":{group}:", "", *part, ""] for group, part in groups.items() if any(part)]
    lines[first - 1 : last] = [line for part in fields for line in part]


def short_signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, given: str | None, returned: str | None) -> Any:
    """Show the first parameters of an estimator alone: all of them follow in groups."""
    if what != "class" or name.rpartition(".")[2] not in SYSTEMS:
        return None
    parameters = [str(one.replace(annotation=one.empty)) for one in inspect.signature(obj).parameters.values()]
    return f"({', '.join([*parameters[:3], '…'])})", returned


def bibtex(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Close the page of an estimator with the BibTeX entries of the sources that its theory names."""
    info = SYSTEMS.get(name.rpartition(".")[2]) if what == "class" else None
    if info is not None:
        theory = (HERE / "theory" / f"{info.system}.md").read_text(encoding="utf-8").partition("## ")[0]
        entries = [entry for number, entry in BIBTEX.items() if f"references.md#ref-{number})" in theory]
        text = ["", ".. dropdown:: BibTeX", "", "   .. code-block:: bibtex", ""]
        lines += text + [f"      {line}" for line in "\n".join(entries).split("\n")] + [""]


def data(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Say of a constant what the text below it in its own module says: here it is looked for where it is imported."""
    if name == "gramplane.METHODS":
        lines[:] = [*ModuleAnalyzer.for_module("gramplane.pipeline.registry").find_attr_docs()["", "METHODS"]]


def no_requests(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the methods of scikit-learn that only say which arguments meta-estimators pass on."""
    return True if re.fullmatch(r"set_\w+_request|get_metadata_routing", name) else None


def repository_links(app: Sphinx, config: Any) -> None:
    """Lead to the repository from every page, where the build is told its address."""
    if url := config.repository_url.rstrip("/"):
        config.html_theme_options["icon_links"] = [
            {"name": "GitHub", "url": url, "icon": "fa-brands fa-github"},
            {"name": "Report an issue", "url": f"{url}/issues/new", "icon": "fa-solid fa-bug"},
        ]
        config.html_theme_options["secondary_sidebar_items"]["**"].append("edit-this-page")
        config.html_theme_options["navbar_end"].append("navbar-icon-links")
        config.html_theme_options["use_edit_page_button"] = True
        config.html_context |= {"edit_page_url_template": f"{url}/edit/main/docs/{{{{ file_name }}}}", "edit_page_provider_name": "GitHub"}


def page_context(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Give the template what search engines and previews show."""
    context.update(description=DESCRIPTION, html_baseurl=app.config.html_baseurl)


def make_pages() -> None:
    """Write the pages that are not in the repository, where they changed: Sphinx reads again what is newer."""
    pages = make_api.pages() | make_cli.pages() | make_reference.pages() | make_theory.pages()
    pages |= {one.PAGE: one.page() for one in (make_memory, make_which_method)}
    for page, text in pages.items():
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.parent.mkdir(exist_ok=True)
            page.write_text(text, encoding="utf-8")


def sample_report(app: Sphinx, error: Exception | None) -> None:
    """Put a report beside the pages, as `gramplane report` writes it."""
    if error is None and app.builder.format == "html":
        make_sample.write(Path(app.outdir))


def setup(app: Sphinx) -> None:
    """Write what follows from the code, and connect what changes documentation on its way: before numpydoc reads it, and after."""
    make_pages()  # before Sphinx looks which pages there are
    app.connect("autodoc-process-docstring", data)
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-docstring", links, priority=650)
    app.connect("autodoc-process-docstring", grouped, priority=660)
    app.connect("autodoc-process-docstring", bibtex, priority=670)
    app.add_config_value("repository_url", "", "html")
    app.connect("config-inited", repository_links)
    app.connect("html-page-context", page_context)
    app.connect("build-finished", sample_report)
    app.connect("autodoc-skip-member", no_requests)
    app.connect("autodoc-process-docstring", foreign_words, priority=400)
    app.connect("autodoc-process-docstring", plain_signs, priority=600)
