"""What the site adds to Sphinx and its theme: links, pictures with words and sizes, two buttons, signatures."""

import ast
import inspect
import json
import re
import shutil
import struct
import textwrap
from pathlib import Path

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from pygments.lexers import TextLexer
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

from tools.build_site import module_file
from tools.lesson_figures import live, scripts
from tools.site_links import (
    ROOT,
    assignments,
    cases_on_their_pages,
    lessons,
    on_the_site,
    published,
    whole_notebook,
    with_address,
)
from vit_course.explore.figure import STORED

POINTS = 96 / 72  # pixels of the screen in a point of an SVG file

MISREAD = {  # what docutils takes otherwise than LaTeX: 1/2 for 12, the index of a letter for a limit of its accent
    r"(\\[dt]?frac)\s*(\w)\s*(\w)": r"\1{\2}{\3}",
    r"(\\(?:bar|hat|tilde)\s*(?:\w|\{[^{}]*\}))([_^])": r"\1{}\2",
}
LOGGER = logging.getLogger(__name__)


def lead_links_of_a_notebook(app: Sphinx, page: str, content: list[str]) -> None:
    """Lead the links of a notebook to the site, and those of a page to the bug clinic's cases; keep its figures."""
    if page.startswith("notebooks/"):
        notebook = json.loads(content[0])
        figures = app.env.temp_data["figures"] = {}
        for index, cell in enumerate(notebook["cells"]):
            if cell["cell_type"] == "markdown":
                cell["source"] = on_the_site("".join(cell["source"]), whole_notebook(page))
            for output in cell.get("outputs", []):
                if STORED in output.get("metadata", {}):
                    figures[index] = output["metadata"][STORED]
        content[0] = json.dumps(notebook, ensure_ascii=False)
    else:
        content[0] = with_address(cases_on_their_pages(content[0]))


def lead_links_of_an_included_file(app: Sphinx, file: Path, page: str, content: list[str]) -> None:
    """Lead the links of a file of the repository to the site, where a page includes it."""
    if not file.name.startswith("_"):  # those are written by build_site.py
        content[0] = on_the_site(content[0], file.as_posix())


def picture_size(path: Path) -> tuple[int, int]:
    """Return the width and height of a PNG or SVG file, in pixels of the screen."""
    data = path.read_bytes()
    if path.suffix == ".png":
        return struct.unpack(">II", data[16:24])
    width, height = (float(re.search(rf'\b{name}="([\d.]+)pt"', data.decode())[1]) for name in ("width", "height"))
    return round(width * POINTS), round(height * POINTS)


def parts_of_a_notebook(doctree: nodes.document, kind: str) -> list[nodes.container]:
    """Return what MyST-NB has made of the cells or the outputs of a notebook."""
    return [node for node in doctree.findall(nodes.container) if node.get("nb_element") == kind]


def describe_pictures(app: Sphinx, doctree: nodes.document) -> None:
    """Give every picture its size, so that nothing jumps, and every output its own words as its alternative text."""
    for bundle in parts_of_a_notebook(doctree, "mime_bundle"):
        words = [part.astext() for part in bundle.children if part.get("mime_type") == "text/plain"]
        for picture in bundle.findall(nodes.image):
            picture["alt"] = " ".join(words[0].split()) if words else ""
    for index, picture in enumerate(doctree.findall(nodes.image)):
        path = Path(app.srcdir, picture["uri"])
        if path.exists():
            scale = 2 if picture.get("alt", "").startswith("explore.") else 1  # tools/lesson_figures.py
            width, height = (size // scale for size in picture_size(path))
            picture["width"], picture["height"] = str(width), str(height)
            picture["classes"] += ["wide"] * (width > 600)
        if index:
            picture["loading"] = "lazy"


def bring_figures_to_life(app: Sphinx, doctree: nodes.document) -> None:
    """Put the live figure next to the still picture of an explorer, which it replaces where scripts run."""
    figures = app.env.temp_data.get("figures", {})  # by the number of the cell
    if figures:
        kinds = [stored["kind"] for stored in figures.values()]
        doctree.append(nodes.raw("", scripts(kinds, "../figures"), format="html"))
    for cell in parts_of_a_notebook(doctree, "cell_code"):
        if cell["cell_index"] in figures:
            cell.append(nodes.raw("", live(figures[cell["cell_index"]]), format="html"))


def shapes_as_written(app: Sphinx, what: str, name: str, thing: object, options: object, arguments: str, result: str):
    """Show a signature as the source has it: ``Float[Tensor, "b s d"]``, and not what Python made of it."""
    function = thing.__init__ if inspect.isclass(thing) else thing
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    except (OSError, TypeError, SyntaxError, IndentationError):
        return None
    if not isinstance(tree, ast.FunctionDef) or arguments is None:
        return None
    if what in ("method", "class") and tree.args.args and tree.args.args[0].arg in ("self", "cls"):
        del tree.args.args[0]
    returns = ast.unparse(tree.returns) if tree.returns and what != "class" else None
    return f"({ast.unparse(tree.args)})", returns


def tables_in_docstrings(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Show a block that a module's docstring sets in columns as it stands."""
    lines[:] = [line.replace("**options", r"\**options") for line in lines]  # names of arguments, not bold letters
    for index in range(len(lines) - 1, 0, -1):
        begins = lines[index].startswith("    ") and not lines[index - 1].strip()
        if what == "module" and begins and index > 1 and not lines[index - 2].startswith(" "):
            lines[index:index] = [".. code-block:: text", ""]


def quotes_as_written(app: Sphinx, doctree: nodes.document) -> None:
    """Show the strings of a signature with double quotes, as the source has them."""
    for quoted in doctree.findall(addnodes.desc_sig_literal_string):
        quoted.children = [nodes.Text(quoted.astext().replace("'", '"'))]


def mark_commands_to_complete(app: Sphinx, doctree: nodes.document) -> None:
    """Give a command in which the reader has to put an address no button that copies it."""
    for block in doctree.findall(nodes.literal_block):
        if "git clone ADDRESS" in block.astext():
            block["classes"].append("no-copy")


def write_formula(self: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    r"""Write a formula as MathML, which browsers show by themselves; a mistake in it fails the build.

    A formula of its own can break where ``\qquad`` is; ``\tag`` at its end is its number.
    """
    text = node.astext()
    for misread, clear in MISREAD.items():
        text = re.sub(misread, clear, text)
    text, number = re.fullmatch(r"(.*?)(?:\\tag\{(.*)\})?\s*", text, re.DOTALL).groups()
    is_block = isinstance(node, nodes.math_block)
    parts = [part for part in text.split(r"\qquad") if part.strip()]
    try:
        formula = "".join(re.sub(r"\n\s*", "", tex2mathml(part, as_block=is_block)) for part in parts)
    except MathError as error:
        LOGGER.warning("%s: %s", node.astext(), error, location=node)
        raise nodes.SkipNode from error
    if is_block:  # the theme's script makes boxes of this class reachable by keyboard where they scroll
        number = f'<span class="eqno">({number})</span>' if number else ""
        formula = f'<div class="math pst-scrollable-table-container">{formula}{number}</div>\n'
    self.body.append(formula)
    raise nodes.SkipNode


class Translator(HTML5Translator):
    """Sphinx's own, save for the lines of a long signature and the cells of a wide table."""

    def starttag(self, node: nodes.Node, tagname: str, suffix: str = "\n", **attributes) -> str:
        """Write an opening tag."""
        if isinstance(node, addnodes.desc_parameterlist) and tagname == "dl":
            attributes["role"] = "presentation"  # screen readers pass over this list of definitions, which is none
        if isinstance(node, nodes.entry) and tagname == "td" and len(node.parent) > 3:
            heads = node.parent.parent.parent.next_node(nodes.row)
            attributes["data-label"] = heads[node.parent.index(node)].astext()  # shown where a table is a list
        return super().starttag(node, tagname, suffix, **attributes)


def source_of(page: str) -> str:
    """Return the file of the repository that a page, such as ``glossary.md`` or ``api/model.md``, is made of."""
    if page.startswith("notebooks/"):
        return whole_notebook(page.removesuffix(".ipynb"))
    module = page.removeprefix("api/").removesuffix(".md")
    return module_file(module) if page.startswith("api/") and module != "index" else f"docs/pages/{page}"


def fill_context(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Give the templates the repository, the page's first paragraph, and the file that a page is made of."""
    context |= {"site_repository": published(), "source_of": source_of}
    words = (
        (part.astext() for part in doctree.findall(nodes.paragraph) if not part.next_node(nodes.image))
        if doctree
        else ()
    )
    context["description"] = next(
        (textwrap.shorten(text, 200, placeholder=" …") for text in words if len(text) > 40), ""
    )


def add_buttons(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Add to the theme's buttons: Colab, which opens a copy of the lesson, and the notebook itself."""
    for group in context["header_buttons"]:
        if group["label"] == "source-buttons":  # GitHub's mark would load a second font of 110 kB
            group["icon"] = group["buttons"][0]["icon"] = "fas fa-code-branch"
    if doctree is None or not page.startswith("notebooks/"):
        return
    repository = published()
    buttons, name = context["header_buttons"], f"{Path(page).name}.ipynb"
    whole = ROOT / whole_notebook(page)
    if repository and whole in lessons():
        launch = next(button for button in buttons if button["label"] == "launch-buttons")
        for button in launch["buttons"]:  # a case of the bug clinic is part of a notebook of the repository
            button["url"] = re.sub(r"(/|%2F)case_\d+\.ipynb", ".ipynb", button["url"])
        words = dict(text="Colab", tooltip="Launch on Colab", icon="_static/images/logo_colab.png")
        launch["buttons"].append(dict(type="link", url=repository.colab(whole.name), **words))
    words = dict(text="", tooltip="Download the notebook", icon="fas fa-download", label="download-notebook-button")
    buttons.append(dict(type="link", url=name, **words))


def finish(app: Sphinx, error: Exception | None) -> None:
    """Put every notebook next to its page, as it is in the repository; drop what no page needs."""
    if error is None and app.builder.name == "html":
        for path in [*lessons(), *assignments()]:
            target = Path(app.outdir, path.relative_to(ROOT))
            if target.with_suffix(".html").exists():
                shutil.copyfile(path, target)
        for path in Path(app.srcdir, "notebooks").glob("*/case_*.ipynb"):
            shutil.copyfile(path, Path(app.outdir, path.relative_to(app.srcdir)))
        for pattern in ("**/*.map", "**/*.html"):
            for path in Path(app.outdir, "_static").glob(pattern):
                path.unlink()
        # Icons are drawn by a font. This script, which could draw them too, is as large as all other code of a page.
        Path(app.outdir, "_static", "scripts", "fontawesome.js").write_text("// not used: the icons are a font\n")


def setup(app: Sphinx) -> dict:
    """Connect all of it."""
    app.set_translator("html", Translator)
    app.add_html_math_renderer("mathml", (write_formula, None), (write_formula, None))
    app.connect("source-read", lead_links_of_a_notebook)
    app.connect("include-read", lead_links_of_an_included_file)
    app.connect("doctree-read", describe_pictures, priority=600)
    app.connect("doctree-read", bring_figures_to_life, priority=610)
    app.connect("doctree-read", quotes_as_written)
    app.connect("doctree-read", mark_commands_to_complete)
    app.connect("autodoc-process-signature", shapes_as_written)
    app.connect("autodoc-process-docstring", tables_in_docstrings)
    app.connect("html-page-context", fill_context, priority=400)  # before the theme makes its buttons, at 501
    app.connect("html-page-context", add_buttons, priority=600)
    app.connect("build-finished", finish)
    app.add_lexer("csv", TextLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
