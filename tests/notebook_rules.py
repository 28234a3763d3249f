"""What nbval does not see in a notebook: each rule yields what it finds, one line for each finding.

A rule takes a parsed notebook and its path. ``RULES`` hold for the lessons, and all but ``your_turns`` for the sources
of the assignments.
"""

import re

from nbformat import NotebookNode

from tools.execute_notebooks import VARYING, WIDGET, fingerprint
from tools.site_links import ROOT, lessons
from tools.solve_lessons import turns

ALLOWED_TAGS = {VARYING, "raises-exception"}
NOT_PLAIN = r"^\s*[%!]|^[^#\n]*\?\s*$|get_ipython|sys\.path|os\.chdir|plt\.subplots|pip install"
EXPLORER = r"^explore\.\w+\(|^(\w+) = explore\.[\s\S]*^\1\s*\Z"  # a call, or as the last line the name of one
CHECK = r"^(?:display\()?(?:checks|mine)\.\w+\(\s*(?:\d+,\s*)?(\w+)"  # mine.keep(Encoder), checks.exercise(negative)
OF_ONE_MACHINE = r"0x[0-9a-f]{6,}|(?<![\w.])/(?:root|home|work|Users|tmp)/|[A-Z]:\\\\?Users"


def code_cells(notebook: NotebookNode) -> list[tuple[int, NotebookNode]]:
    """Return every code cell with its place in the notebook."""
    return [(index, cell) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]


def texts(cell: NotebookNode) -> str:
    """Return every text that the cell has stored."""
    fields = [field for output in cell.outputs for field in (output, output.get("data", {}))]
    return "\n".join(field.get(key, "") for field in fields for key in ("text", "evalue", "text/plain", "text/html"))


def ids(notebook, path):
    """Readers' copies are brought up to date by the ids of the cells (tools/my_course.py)."""
    found = [cell.get("id", "") for cell in notebook.cells]
    for index, name in enumerate(found):
        if not name or len(name) > 50 or name in found[:index]:
            yield f"cell {index}: its id {name!r} is empty, long, or that of another cell"


def code(notebook, path):
    """nbval compares only executed cells; an output that it ignores belongs to the code above it."""
    sources = []
    for index, cell in code_cells(notebook):
        sources.append(cell.source)
        tags = set(cell.metadata.get("tags", []))
        if cell.execution_count is None or not cell.source.strip():
            yield f"cell {index}: empty or never executed, so its output is not compared"
        if found := re.search(NOT_PLAIN, cell.source, flags=re.MULTILINE):
            yield f"cell {index}: not plain Python for every place: {found[0]!r}"
        if tags - ALLOWED_TAGS:
            yield f"cell {index}: tags {sorted(tags - ALLOWED_TAGS)}"
        if VARYING in tags and cell.metadata.get("output_of") != fingerprint(sources):
            yield f"cell {index}: its output belongs to older code; run make rebuild WHAT=notebooks"


def outputs(notebook, path):
    """No error that the cell does not announce, no warning, and nothing that differs between machines."""
    for index, cell in code_cells(notebook):
        tags = cell.metadata.get("tags", [])
        for output in cell.outputs:
            if output.output_type == "error" and "raises-exception" not in tags:
                yield f"cell {index}: stored error {output.ename}"
            if output.get("name") == "stderr" and VARYING not in tags:
                yield f"cell {index}: stored warning or log {output.text[:60]!r}"
        if found := re.search(OF_ONE_MACHINE, texts(cell)):
            yield f"cell {index}: {found[0]!r} in the stored output"
        if VARYING not in tags and (found := re.search(r"\d\.\d{5,}", texts(cell))):
            yield f"cell {index}: {found[0]} has more than four decimals"


def pictures(notebook, path):
    """Words describe every picture, for screen readers and for nbval; of an explorer its still picture is stored."""
    for index, cell in code_cells(notebook):
        kinds = {kind for output in cell.outputs for kind in output.get("data", {})}
        explorer = re.search(EXPLORER, cell.source, re.MULTILINE)
        if "image/png" in kinds and not explorer and not cell.source.rstrip().endswith("plt.show()"):
            yield f"cell {index}: a picture whose cell does not end with plt.show()"
        for output in cell.outputs:
            words = output.get("data", {}).get("text/plain", "")
            if "image/png" in output.get("data", {}) and not re.match(r"(Figure: (?!nothing)|explore\.)\w", words):
                yield f"cell {index}: a picture that is described as {words!r}; draw it with plots.subplots"
        if WIDGET in kinds:
            yield f"cell {index}: a widget is stored; run make rebuild WHAT=notebooks"
        if explorer and "image/png" not in kinds:
            yield f"cell {index}: an explorer without its still picture"


def prose(notebook, path):
    """Folded blocks render, pictures lie in img/ and are described, and links and named lessons exist."""
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    if text.count("<details") != text.count("</details>"):
        yield "a <details> block is not closed"
    for found in re.findall(r"</summary>(?!\n\n).{0,30}", text):
        yield f"no empty line after {found!r}"
    if "<img" in text:
        yield "an <img> tag: write ![what one sees](../img/name.svg)"
    for is_picture, words, target in re.findall(r"(!?)\[([^\]]*)\]\(([^)#]+)(?:#[^)]*)?\)", text):
        file = path.parent / target
        if is_picture and len(words.split()) < 4:
            yield f"{target}: the alt text {words!r} does not say what one sees"
        if is_picture and (not file.is_file() or file.resolve().parent != ROOT / "img"):
            yield f"{target}: no such picture in img/"
        if not target.startswith(("http://", "https://")) and not file.exists():
            yield f"a link to {target}, which does not exist"
    numbers = {lesson.name[:2] for lesson in lessons()}
    for number in re.findall(r"\blesson (\d+)", text, flags=re.IGNORECASE):
        if number.zfill(2) not in numbers:
            yield f"lesson {number} is named and does not exist"


def your_turns(notebook, path):
    """Two to five exercises in a lesson, the last a stretch, each complete and before the reference is shown.

    The bug clinic has twelve, none a stretch, with three hints each, and its stubs hold broken code instead of none.
    """
    found = exercises(notebook)
    clinic = path.name == "10_bug_clinic.ipynb"
    hints, least, most, untouched = (3, 12, 12, "not repaired yet") if clinic else (2, 2, 5, "not written yet")
    if not path.name.startswith("00_"):
        if not least <= len(found) <= most:
            yield f"{len(found)} exercises, {least} to {most} wanted"
        if not clinic and not any(exercise.stretch for exercise in found):
            yield "no stretch exercise"
    for exercise in found:
        where = f"cell {exercise.index}, your turn:"
        if exercise.folded != [*(f"Hint {number + 1}" for number in range(hints)), "A solution"]:
            yield f"{where} folded are {exercise.folded}, wanted {hints} hints and a solution"
        if not exercise.solution:
            yield f"{where} no code in the solution"
        if exercise.names != [exercise.checked]:
            yield f"{where} the stub defines {exercise.names}, the check takes {exercise.checked}"
        if untouched not in exercise.says:
            yield f"{where} the stub's check has stored {exercise.says!r}"
        for index, cell in code_cells(notebook):
            if index != exercise.index + 1 and re.search(rf"^(def|class) {exercise.checked}\b", cell.source, re.M):
                yield f"{where} {exercise.checked} is shown in cell {index}"


RULES = (ids, code, outputs, pictures, prose, your_turns)


class Exercise:
    """One "Your turn": the prose with hints and solution, the stub, and the check in the cell after it."""

    def __init__(self, notebook: NotebookNode, index: int, head: re.Match, solution: str) -> None:
        stub, check = notebook.cells[index + 1 : index + 3]
        self.index, self.stretch = index, bool(head[1])  # the index of the cell before the stub
        self.folded = re.findall(r"<summary>(.*?)</summary>", head.string[head.start() :])
        self.stub, self.solution = stub.source, solution
        self.names = re.findall(r"^(?:def|class) (\w+)", stub.source, re.MULTILINE)  # that the stub defines
        self.checked = next(iter(re.findall(CHECK, check.source, re.MULTILINE)), None)  # what the check is given
        self.says = texts(check).strip()  # stored next to the check


def exercises(notebook: NotebookNode) -> list[Exercise]:
    """Return every exercise of a lesson."""
    return [Exercise(notebook, *turn) for turn in turns(notebook)]
