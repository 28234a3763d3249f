"""What nbval does not see in a notebook: one function a rule, each returning what it found, a line a finding.

A rule takes a parsed notebook and the path it lies at. ``RULES`` lists them; ``test_notebooks.py`` applies them
to every notebook and shows for each that it finds what it should.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from tools.execute_notebooks import fingerprint
from tools.solve_lessons import turns

IMG = Path(__file__).resolve().parents[1] / "img"
VARYING = "nbval-ignore-output"
ALLOWED_TAGS = {VARYING, "raises-exception"}

RULES = {}


def rule(function):
    """Enter a rule in the table under its own name."""
    RULES[function.__name__] = function
    return function


def code_cells(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    """Every code cell with its place in the notebook."""
    return ((index, cell) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code")


def markdown(notebook: NotebookNode) -> str:
    """All prose, fenced code left out."""
    prose = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    return re.sub(r"```.*?```", "", prose, flags=re.DOTALL)


def tags(cell: NotebookNode) -> set[str]:
    """The cell's tags."""
    return set(cell.metadata.get("tags", []))


def texts(cell: NotebookNode) -> str:
    """Every text that the cell has stored."""
    parts = []
    for output in cell.outputs:
        parts += [output.get("text", ""), output.get("data", {}).get("text/plain", "")]
        parts += [output.get("evalue", ""), output.get("data", {}).get("text/html", "")]
    return "\n".join(parts)


def draws(cell: NotebookNode) -> bool:
    """Whether the cell has stored a picture."""
    return any("image/png" in output.get("data", {}) for output in cell.outputs)


def explores(cell: NotebookNode) -> bool:
    """Whether the cell's last line is an explorer: a call of ``explore.…``, or the name that one was given above."""
    if not plain(cell.source):
        return False
    last = ast.parse(cell.source).body[-1:]
    shown = ast.unparse(last[0]) if last and isinstance(last[0], ast.Expr) else ""
    return bool(re.match(r"explore\.\w+\(", shown)) or bool(
        shown.isidentifier() and re.search(rf"^{shown} = explore\.", cell.source, re.MULTILINE)
    )


def asserts(cell: NotebookNode) -> bool:
    """Whether the cell asserts something: an ``assert``, or a call of an ``assert_…`` function."""
    tree = ast.parse(cell.source)
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Call) and "assert_" in ast.unparse(node.func).rsplit(".", 1)[-1])
        for node in ast.walk(tree)
    )


@rule
def every_code_cell_was_executed(notebook, path):
    """nbval does not compare a cell that has no execution count."""
    for index, cell in code_cells(notebook):
        if cell.execution_count is None or not cell.source.strip():
            yield f"cell {index}: empty or never executed, so its output is not compared"


@rule
def plain_python(notebook, path):
    """A bad magic passes nbval once its output is stored, and none works outside IPython."""
    for index, cell in code_cells(notebook):
        if re.search(r"^\s*[%!]|^[^#\n]*\?\s*$|get_ipython", cell.source, flags=re.MULTILINE):
            yield f"cell {index}: a magic, a shell line or a question mark"
            continue
        for name in ("sys.path", "os.chdir", "plt.subplots", "pip install"):
            if name in cell.source:
                yield f"cell {index}: {name}"


@rule
def pictures_rest_on_an_assert(notebook, path):
    """nbval does not compare pictures: the arrays behind them are asserted there or in the code cell beside."""
    cells = list(code_cells(notebook))
    for place, (index, cell) in enumerate(cells):
        if draws(cell):
            if not any(asserts(neighbour) for _, neighbour in cells[max(place - 1, 0) : place + 2]):
                yield f"cell {index}: a picture without an assert on the array behind it"
            if not cell.source.rstrip().endswith("plt.show()") and not explores(cell):
                yield f"cell {index}: a picture whose cell does not end with plt.show()"


@rule
def stored_pictures_are_described(notebook, path):
    """Beside a picture stands what it shows, in words: for screen readers, and for nbval, which compares it."""
    for index, cell in code_cells(notebook):
        for output in cell.outputs:
            words = output.get("data", {}).get("text/plain", "")
            if "image/png" in output.get("data", {}) and not re.match(r"(Figure: (?!nothing)|explore\.)\w", words):
                yield f"cell {index}: a picture that is described as {words!r}; draw it with plots.subplots"


@rule
def explorers_are_stored_as_pictures(notebook, path):
    """A widget dies with its kernel: of an explorer, the still picture is stored, and nothing else."""
    for index, cell in code_cells(notebook):
        kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
        if any("widget" in kind for kind in kinds):
            yield f"cell {index}: a widget is stored; run make rebuild WHAT=notebooks"
        if explores(cell) and "image/png" not in kinds:
            yield f"cell {index}: an explorer without its still picture"


@rule
def no_stored_errors(notebook, path):
    """No error outside a cell that announces it, and no warning anywhere that is compared."""
    for index, cell in code_cells(notebook):
        for output in cell.outputs:
            if output.output_type == "error" and "raises-exception" not in tags(cell):
                yield f"cell {index}: stored error {output.ename}"
            if output.get("name") == "stderr" and VARYING not in tags(cell):
                yield f"cell {index}: stored warning or log {output.text[:60]!r}"


@rule
def pictures_in_the_prose_are_described(notebook, path):
    """Pictures in the prose lie in img/, whose files a script draws, and say in words what one sees."""
    prose = markdown(notebook)
    if "<img" in prose:
        yield "an <img> tag: write ![what one sees](../img/name.svg)"
    for words, target in re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", prose):
        if len(words.split()) < 4:
            yield f"{target}: the alt text {words!r} does not say what one sees"
        if not (path.parent / target).is_file() or (path.parent / target).resolve().parent != IMG:
            yield f"{target}: no such picture in img/"


@rule
def no_addresses_or_paths(notebook, path):
    """Addresses of objects and places on a disk differ on every machine."""
    for index, cell in code_cells(notebook):
        found = re.search(r"0x[0-9a-f]{6,}|(?<![\w.])/(root|home|work|Users|tmp)/|[A-Z]:\\\\?Users", texts(cell))
        if found:
            yield f"cell {index}: {found[0]!r} in the stored output"


@rule
def four_decimals_at_most(notebook, path):
    """More digits than that are not the same on every machine."""
    for index, cell in code_cells(notebook):
        found = re.search(r"\d\.\d{5,}", texts(cell))
        if found and VARYING not in tags(cell):
            yield f"cell {index}: {found[0]} has more than four decimals"


@rule
def what_varies_is_asserted(notebook, path):
    """An output that nbval ignores stands in a cell that asserts what must hold, and belongs to its source."""
    sources = []
    for index, cell in code_cells(notebook):
        sources.append(cell.source)
        if tags(cell) - ALLOWED_TAGS:
            yield f"cell {index}: tags {sorted(tags(cell) - ALLOWED_TAGS)}"
        if VARYING in tags(cell):
            if not asserts(cell):
                yield f"cell {index}: its output is ignored and nothing is asserted"
            if cell.metadata.get("output_of") != fingerprint(sources):
                yield f"cell {index}: its output belongs to older code; run make rebuild WHAT=notebooks"


def plain(source: str) -> bool:
    """Whether the source is Python at all."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


@rule
def folded_answers_render(notebook, path):
    """Markdown inside <details> needs an empty line after the summary, and each is closed."""
    prose = markdown(notebook)
    if prose.count("<details") != prose.count("</details>"):
        yield "a <details> block is not closed"
    for found in re.findall(r"</summary>(?!\n\n).{0,30}", prose):
        yield f"no empty line after {found!r}"


@rule
def links_lead_somewhere(notebook, path):
    """Links to other files of the course exist, and so do the lessons that are named."""
    for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)#]+)(?:#[^)]*)?\)", markdown(notebook)):
        if not target.startswith(("http://", "https://")) and not (path.parent / target).exists():
            yield f"a link to {target}, which does not exist"
    there = {file.name[:2] for file in [*path.parent.glob("[0-9][0-9]_*.ipynb"), path]}
    for number in re.findall(r"\blesson (\d+)", markdown(notebook), flags=re.IGNORECASE):
        if number.zfill(2) not in there:
            yield f"lesson {number} is named and does not exist"


@rule
def your_turns(notebook, path):
    """Two to five exercises a lesson, the last a stretch, each whole and before the reference is shown.

    The bug clinic has twelve, with three hints each, and its stubs hold broken code instead of none.
    """
    found = list(exercises(notebook))
    clinic = path.name == "09_bug_clinic.ipynb"
    hints, least, most, untouched = (3, 12, 12, "not repaired yet") if clinic else (2, 2, 5, "not written yet")
    if not path.name.startswith("00_") and not least <= len(found) <= most:
        yield f"{len(found)} exercises, {least} to {most} wanted"
    if not path.name.startswith("00_") and not any(exercise.stretch for exercise in found):
        yield "no stretch for the quick"
    for exercise in found:
        where = f"cell {exercise.index}, your turn:"
        if exercise.folded != [*(f"Hint {number + 1}" for number in range(hints)), "A solution"]:
            yield f"{where} folded are {exercise.folded}, wanted {hints} hints and a solution"
        if not exercise.solution:
            yield f"{where} no code in the solution"
        if exercise.names != [exercise.checked] or not re.match(r"my_|My", exercise.checked or ""):
            yield f"{where} the stub defines {exercise.names}, the check takes {exercise.checked}"
        if untouched not in exercise.says:
            yield f"{where} the stub's check has stored {exercise.says!r}"
        reference = re.sub(r"^(my_|My)", "", exercise.checked or "")
        shown = [
            index
            for index, cell in code_cells(notebook)
            if re.search(rf"^(def|class) {reference}\b", cell.source, re.M)
        ]
        if shown and shown[0] < exercise.index:
            yield f"{where} {reference} is shown before, in cell {shown[0]}"


@dataclass
class Exercise:
    """One "Your turn": the prose with hints and solution, the stub in the next cell, the check in the one after."""

    index: int
    stretch: bool
    folded: list[str]
    solution: str
    names: list[str]  # that the stub defines
    checked: str | None  # what the check is given
    check: str
    says: str  # stored beside the check


def exercises(notebook: NotebookNode) -> Iterator[Exercise]:
    """Every exercise of a lesson."""
    for index, head, solution in turns(notebook):
        cell = notebook.cells[index]
        stub, check = [*notebook.cells[index + 1 : index + 3], *[new_code_cell()] * 2][:2]
        body = ast.parse(stub.source).body if stub.cell_type == "code" else []
        yield Exercise(
            index=index,
            stretch=bool(head[1]),
            folded=re.findall(r"<summary>(.*?)</summary>", cell.source[cell.source.index("**Your turn") :]),
            solution=solution,
            names=[getattr(node, "name", "?") for node in body],
            checked=checked(check.source) if check.cell_type == "code" else None,
            check=check.source,
            says=texts(check).strip() if check.cell_type == "code" else "",
        )


def checked(source: str) -> str | None:
    """Return the name that a cell's last line hands to a check: ``checks.part(name)``, ``checks.clinic(1, name)``."""
    last = ast.parse(source).body[-1:]
    if last and isinstance(last[0], ast.Expr) and isinstance(last[0].value, ast.Call):
        call = last[0].value
        names = [argument.id for argument in call.args if isinstance(argument, ast.Name)]
        if ast.unparse(call.func).startswith("checks.") and names:
            return names[0]
    return None
