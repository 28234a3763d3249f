"""An exercise solved in JupyterLab: a wrong answer is refused, a right one is kept, and the next lesson uses it."""

import subprocess
import sys

import nbformat
from lab import notebook, run_all
from lab_findings import findings
from playwright.sync_api import expect
from site_checks import Traffic

from tools.site_links import lessons
from tools.solve_lessons import turns
from vit_course.checks.verdict import COLORS, sentence
from vit_course.mine.parts import PARTS

NAMES = {path.name[:2]: path.name for path in lessons()}
STATES = {"rgb({}, {}, {})".format(*bytes.fromhex(color[1:])): state for state, color in COLORS.items()}
RESTARTED = "Connection lost, reconnecting in 0 seconds."  # what JupyterLab notes of a kernel that is restarted


class Copy:
    """A copy of a lesson, open in the browser: its worked solutions by the ids of their stubs, and its checks' ids."""

    def __init__(self, lab, page, number):
        self.lab, self.page, self.path = lab, page, f"my_course/{NAMES[number]}"
        lesson = nbformat.read(lab.root / "notebooks" / NAMES[number], as_version=4)
        self.solutions = {lesson.cells[index + 1].id: solution.rstrip() for index, _, solution in turns(lesson)}
        self.checks = [lesson.cells[index + 2].id for index, _, _ in turns(lesson)]
        lab.open(page, self.path)
        copy = nbformat.read(lab.root / self.path, as_version=4)  # in which another test may have inserted a cell
        self.order = [cell.id for cell in copy.cells]

    def cell(self, name):
        return notebook(self.page).locator(".jp-Cell").nth(self.order.index(name))

    def write(self, answers):
        """Replace stubs: an answer of two lines is typed, a longer one is pasted."""
        for name, answer in answers.items():
            self.cell(name).locator(".cm-content").click()
            self.page.keyboard.press("Control+a")
            first, *rest = answer.splitlines()
            if len(rest) == 1:
                self.page.keyboard.type(f"{first}\n{rest[0].strip()}")  # the editor indents the second line
            else:
                self.page.keyboard.insert_text(answer)

    def run(self):
        """Restart and run all; return the state of every check, what they say, and what other cells print."""
        run_all(self.page, restart=True)
        saved = self.lab.save(self.page, self.path)
        assert findings(self.page, saved) == []  # above all, each cell was run and none has stopped
        verdicts = [self.cell(name).locator("[style*=border-left]") for name in self.checks]
        colors = [each.evaluate("verdict => getComputedStyle(verdict).borderLeftColor") for each in verdicts]
        printed = [output.get("text", "") for cell in saved.cells for output in cell.get("outputs", [])]
        return [STATES[color] for color in colors], [each.inner_text() for each in verdicts], "".join(printed)


def test_what_a_reader_writes_is_kept_and_used(lab, new_page):
    page, file = new_page(), lab.root / "my_course" / "my_vit.py"
    traffic, (name,) = Traffic(page, lab.url), [name for name, part in PARTS.items() if part.lesson == "01"]
    lesson = Copy(lab, page, "01")
    lesson.write({cell: answer.replace("return ", "return 2 * ", 1) for cell, answer in lesson.solutions.items()})
    states, said, _ = lesson.run()
    assert set(states) == {"wrong"}
    assert all(text.startswith("✗ ") and "expected" in text for text in said)
    assert not file.exists()
    try:
        lesson.write(lesson.solutions)
        states, said, printed = lesson.run()
        assert set(states) == {"right"}
        assert any(sentence("mine.kept", name=name, kept=1, total=len(PARTS)) in text for text in said), said
        assert sentence("mine.yours", name=name) in printed
        command = [sys.executable, "-m", "vit_course.mine"]
        table = subprocess.run(command, cwd=lab.root, capture_output=True, text=True, check=True).stdout
        assert sentence("mine.summary", kept=1, total=len(PARTS)) in table
        Copy(lab, page, "00").run()
        expect(notebook(page).locator("pre").filter(has_text=table.splitlines()[0])).to_have_text(table.strip())
    finally:
        file.unlink(missing_ok=True)
    assert [problem for problem in traffic.problems if RESTARTED not in problem] == []
