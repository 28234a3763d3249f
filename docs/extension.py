"""What the site adds to Sphinx: pictures with words and sizes, the buttons of a lesson, the line at a page's foot."""

import ast
import inspect
import json
import re
import shutil
import struct
import textwrap
from html import escape
from pathlib import Path

import stage
from docutils import nodes
from pygments.lexers import TextLexer
from repository import published
from sphinx import addnodes
from sphinx.application import Sphinx
from verified import FILE as VERIFIED

SIGNATURE = re.compile(r'<dt class="sig .*?</dt>', re.DOTALL)
SIZES = re.compile(r'style="width: (\d+)px; height: (\d+)px;"')
POINTS = 96 / 72  # pixels of the screen in a point of an SVG file


def picture_size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG or SVG file, in pixels of the screen."""
    data = path.read_bytes()
    if path.suffix == ".png":
        return struct.unpack(">II", data[16:24])
    width, height = (float(re.search(rf'\b{name}="([\d.]+)pt"', data.decode())[1]) for name in ("width", "height"))
    return round(width * POINTS), round(height * POINTS)


def describe_pictures(app: Sphinx, doctree: nodes.document) -> None:
    """Give every picture its size, so that nothing jumps, and every output its own words as its alternative text."""
    for bundle in doctree.findall(
        lambda node: node.get("nb_element") == "mime_bundle" if hasattr(node, "get") else False
    ):
        words = [part.astext() for part in bundle.children if part.get("mime_type") == "text/plain"]
        for picture in bundle.findall(nodes.image):
            picture["alt"] = " ".join(words[0].split()) if words else ""
    for quoted in doctree.findall(addnodes.desc_sig_literal_string):
        quoted.children = [nodes.Text(quoted.astext().replace("'", '"'))]
    for index, picture in enumerate(doctree.findall(nodes.image)):
        path = Path(app.srcdir, picture["uri"])
        if path.exists():
            width, height = picture_size(path)
            picture["width"], picture["height"] = f"{width}px", f"{height}px"
            picture["classes"] += ["wide"] * (width > 600)
        if index:
            picture["loading"] = "lazy"


def add_buttons(app: Sphinx, doctree: nodes.document) -> None:
    """Put the buttons of a lesson or an assignment below its title, and a word below pictures that can be touched."""
    name = f"{app.env.docname}.ipynb"
    if not (stage.ROOT / name).exists():
        return
    title = next(doctree.findall(nodes.title), None)
    buttons, repository = [(Path(name).name, "Download the notebook", "download")], published()
    if repository:
        buttons.insert(0, (repository.binder(name), "Open in JupyterLab, on Binder", "binder"))
        if stage.ROOT / name in stage.lessons():
            buttons.insert(1, (repository.colab(f"colab/{Path(name).name}"), "Open in Colab", "colab"))
    items = "".join(
        f'<a class="course-button {kind}" href="{escape(address)}"{" download" * (kind == "download")}>{text}</a>'
        for address, text, kind in buttons
    )
    bar = nodes.raw("", f'<p class="course-buttons d-print-none">{items}</p>', format="html")
    title.parent.insert(title.parent.index(title) + 1, bar)
    where = f'<a href="{escape(repository.binder(name))}">JupyterLab on Binder</a>' if repository else "JupyterLab"
    for cell in doctree.findall(
        lambda node: isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"
    ):
        code = next(cell.findall(nodes.literal_block)).astext()
        if re.search(r"\bexplore\.\w+\(", code) and any(cell.findall(nodes.image)):
            words = f"A still of a picture that answers when touched: open this lesson in {where}."
            cell.append(nodes.raw("", f'<p class="course-touch">{words}</p>', format="html"))


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
            lines[index:index] = ["::", ""]


def source_of(page: str) -> str:
    """The file of the repository that a page is made of."""
    if (stage.ROOT / f"{page}.ipynb").exists():
        return f"{page}.ipynb"
    if page == "api/index":
        return "docs/pages/api.md"
    kind, _, module = page.partition("/")
    if kind == "api":
        file = f"vit_course/{module}.py"
        return file if (stage.ROOT / file).exists() else f"vit_course/{module}/__init__.py"
    return f"docs/pages/{page}.md"


def lines_of_a_signature(signature: str) -> str:
    """Arguments on lines of their own are no list of definitions."""
    lines = signature.replace("<dl>", '<span class="sig-lines">').replace("</dl>", "</span>")
    return lines.replace("<dd>", '<span class="sig-line">').replace("</dd>", "</span>")


def fill_page(app: Sphinx, page: str, template: str, context: dict, doctree: nodes.document | None) -> None:
    """Give the templates what they show."""
    repository = published()
    context["site_repository"] = repository
    context["verified"] = json.loads(VERIFIED.read_text(encoding="utf-8")) if VERIFIED.exists() else None
    if repository and doctree is not None:
        context["edit_address"] = repository.edit(source_of(page))
        context["issue_address"] = repository.issue(context["title"])
    # as attributes the browser knows the shape of a picture before it is there
    body = SIZES.sub(r'width="\1" height="\2"', context.get("body") or "")
    context["body"] = SIGNATURE.sub(lambda match: lines_of_a_signature(match[0]), body)
    # what unfolds a part of the sidebar has no words of its own
    tree = context["generate_toctree_html"]
    name = '<summary aria-label="Pages of this part">'
    context["generate_toctree_html"] = lambda *args, **options: str(tree(*args, **options)).replace("<summary>", name)
    # the icons are a font; the script that could draw them, too, is as large as the rest of the site's code
    context["without_icon_script"] = lambda head: re.sub(r"<script[^>]*fontawesome\.js[^>]*></script>", "", head)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Put every notebook beside its page, as it is in the repository; drop what no page asks for."""
    if error is None:
        for path in [*stage.lessons(), *stage.assignments()]:
            target = Path(app.outdir, path.relative_to(stage.ROOT))
            if target.with_suffix(".html").exists():
                shutil.copyfile(path, target)
        for pattern in ("**/*.map", "**/*.html", "**/fontawesome.js*"):
            for path in Path(app.outdir, "_static").glob(pattern):
                path.unlink()


def setup(app: Sphinx) -> dict:
    """Connect all of it."""
    app.add_config_value("site_state", "", "env")
    app.connect("doctree-read", describe_pictures, priority=600)
    app.connect("doctree-read", add_buttons, priority=610)
    app.connect("autodoc-process-signature", shapes_as_written)
    app.connect("autodoc-process-docstring", tables_in_docstrings)
    app.connect("html-page-context", fill_page, priority=900)
    app.connect("build-finished", finish)
    app.add_lexer("csv", TextLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
