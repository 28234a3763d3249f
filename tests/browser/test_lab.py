"""Every lesson in a real JupyterLab at 1280 px: nothing is cut off or scrolls, and no formula or picture is missing.

nbval runs the lessons and compares their outputs; here they are seen as they are stored. At the end a reader solves the
exercises of one: a wrong answer is refused, a right one is kept, and the next lesson uses it.
"""

import subprocess
import sys

import nbformat
import pytest
from lab import choose, notebook, run_all
from lab_findings import findings, visible_findings
from playwright.sync_api import expect
from site_checks import Traffic

from tools.my_course import Copies
from tools.site_links import lessons
from tools.solve_lessons import turns
from vit_course.checks.verdict import COLORS, sentence
from vit_course.mine.parts import PARTS

LESSONS = [path.name for path in lessons()]
STATES = {"rgb({}, {}, {})".format(*bytes.fromhex(color[1:])): state for state, color in COLORS.items()}


@pytest.fixture(scope="module")
def page(new_page):
    """One page for all lessons as they are stored, which share a kernel there."""
    return new_page()


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_fits(lab, page, name):
    traffic = Traffic(page, lab.url)
    lab.open(page, f"notebooks/{name}")  # whose outputs are stored
    assert visible_findings(page) == []
    assert traffic.problems == []


def test_a_link_between_lessons_opens_the_other_lesson(lab, new_page):
    page = new_page()  # with a kernel of its own, which runs in the folder of the copies
    lab.open(page, f"my_course/{LESSONS[0]}")
    notebook(page).get_by_role("link", name="Lesson 1 – Einops primer").click()
    expect(page).to_have_url(f"{lab.url}lab/tree/my_course/{LESSONS[1]}")
    expect(notebook(page).locator("h1")).to_contain_text("Einops primer")
    expect(page.locator(".jp-Dialog")).to_have_count(0)


def test_a_save_counts_as_no_change_and_a_cell_of_the_readers_stays(lab, new_page):
    """JupyterLab writes its own version of Python into a notebook; then the course gets a newer version of it."""
    page = new_page()
    path, lesson = f"my_course/{LESSONS[1]}", lab.root / "notebooks" / LESSONS[1]
    stored = lesson.read_text(encoding="utf-8")
    try:
        lab.open(page, path)
        notebook(page).locator("h1").click()
        page.keyboard.press("b")
        page.keyboard.press("Enter")
        page.keyboard.type("print('mine')")
        saved = lab.save(page, path)
        assert saved.metadata.language_info.version
        newest = nbformat.reads(stored, as_version=4)
        newest.cells[0].source += " (newer)"
        lesson.write_text(nbformat.writes(newest), encoding="utf-8")
        assert LESSONS[1] in Copies(lab.root).update()[0]
        choose(page, "File", "Reload Notebook from Disk")
        expect(notebook(page).locator("h1, h2, p").filter(has_text="(newer)").first).to_be_visible()
        expect(notebook(page).locator(".jp-CodeCell").first).to_contain_text("print('mine')")
        merged = nbformat.read(lab.root / path, as_version=4)
        assert [cell.source for cell in merged.cells if cell.id not in {each.id for each in newest.cells}] == [
            "print('mine')"
        ]
        assert len(merged.cells) == len(newest.cells) + 1
    finally:
        lesson.write_text(stored, encoding="utf-8")


class Copy:
    """A copy of a lesson, open in the browser: its worked solutions by the ids of their stubs, and its checks' ids."""

    def __init__(self, lab, page, number):
        self.lab, self.page, self.path = lab, page, f"my_course/{LESSONS[number]}"
        lesson = nbformat.read(lab.root / "notebooks" / LESSONS[number], as_version=4)
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
        """Run all cells; return the state of every check, what they say, and what other cells print."""
        run_all(self.page)
        saved = self.lab.save(self.page, self.path)
        assert findings(self.page, saved) == []  # above all, each cell was run and none has stopped
        verdicts = [self.cell(name).locator("[style*=border-left]") for name in self.checks]
        colors = [each.evaluate("verdict => getComputedStyle(verdict).borderLeftColor") for each in verdicts]
        printed = [output.get("text", "") for cell in saved.cells for output in cell.get("outputs", [])]
        return [STATES[color] for color in colors], [each.inner_text() for each in verdicts], "".join(printed)


def test_what_a_reader_writes_is_kept_and_used(lab, new_page):
    page, file = new_page(), lab.root / "my_course" / "my_vit.py"
    traffic, (name,) = Traffic(page, lab.url), [name for name, part in PARTS.items() if part.lesson == "01"]
    lesson = Copy(lab, page, 1)
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
        Copy(lab, page, 0).run()
        expect(notebook(page).locator("pre").filter(has_text=table.splitlines()[0])).to_have_text(table.strip())
    finally:
        file.unlink(missing_ok=True)
    assert traffic.problems == []
