"""The newcomer's path: exercises solved in JupyterLab, parts kept, the course updated, an exercise started over.

The course is a git clone with the reader's copies of the lessons, served as by ``make lab``.
"""

import re
import subprocess
import sys

import nbformat
import pytest
from lab import COPIED, COURSE, copy_course, notebook, run_all, running_lab
from lab_findings import findings
from playwright.sync_api import expect
from site_checks import Traffic

from tools.site_links import lessons
from tools.solve_lessons import turns
from vit_course.checks.verdict import COLORS, sentence
from vit_course.mine.parts import PARTS

NAMES = {path.name[:2]: path.name for path in lessons()}
WRITTEN = [name for name, part in PARTS.items() if part.lesson in ("01", "02", "03")]
STATES = {"rgb({}, {}, {})".format(*bytes.fromhex(color[1:])): state for state, color in COLORS.items()}
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@example.org")
PYTHON = (sys.executable, "-m")
RESTARTED = "Connection lost, reconnecting in 0 seconds."  # what JupyterLab notes of a kernel that is restarted


def call(folder, *words):
    """Run a command in a folder, and return what it prints."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A fresh clone of the course as it is in this working tree; the lessons import its package."""
    origin, clone = tmp_path / "origin", tmp_path / "course"
    copy_course(origin, [*COPIED, "tools"])
    (origin / ".gitignore").write_bytes((COURSE / ".gitignore").read_bytes())
    for words in (["init"], ["add", "."], ["commit", "-m", "first"], ["clone", ".", str(clone)]):
        call(origin, *GIT, *words)
    monkeypatch.setenv("PYTHONPATH", str(clone))
    return clone


class Copy:
    """A copy of a lesson, open in the browser: its worked solutions by the ids of their stubs, and its checks' ids."""

    def __init__(self, lab, page, number):
        self.lab, self.page, self.path = lab, page, f"my_course/{NAMES[number]}"
        lesson = nbformat.read(lab.root / "notebooks" / NAMES[number], as_version=4)
        self.solutions = {lesson.cells[index + 1].id: solution.rstrip() for index, _, solution in turns(lesson)}
        self.checks = [lesson.cells[index + 2].id for index, _, _ in turns(lesson)]
        lab.open(page, self.path)

    def sources(self):
        """Save; return the source of every cell by its id, in their order."""
        return {cell.id: cell.source for cell in self.lab.save(self.page, self.path).cells}

    def cells(self, ids):
        order = [*self.sources()]
        return [notebook(self.page).locator(".jp-Cell").nth(order.index(each)) for each in ids]

    def reload(self):
        self.page.evaluate("async () => { await jupyterapp.commands.execute('docmanager:reload') }")

    def write(self, answers):
        """Replace stubs: an answer of two lines is typed, a longer one is pasted."""
        for cell, answer in zip(self.cells(answers), answers.values(), strict=True):
            cell.locator(".cm-content").click()
            self.page.keyboard.press("Control+a")
            first, *rest = answer.splitlines()
            if len(rest) == 1:
                self.page.keyboard.type(f"{first}\n{rest[0].strip()}")  # the editor indents the second line
            else:
                self.page.keyboard.insert_text(answer)
        assert answers.items() <= self.sources().items()

    def run(self):
        """Restart and run all; return the state of every check, what they say, and what other cells print."""
        run_all(self.page, restart=True)
        saved = self.lab.save(self.page, self.path)
        assert findings(self.page, saved) == []  # above all, each cell was run and none has stopped
        verdicts = [cell.locator("[style*=border-left]") for cell in self.cells(self.checks)]
        colors = [each.evaluate("verdict => getComputedStyle(verdict).borderLeftColor") for each in verdicts]
        printed = [output.get("text", "") for cell in saved.cells for output in cell.get("outputs", [])]
        return [STATES[color] for color in colors], [each.inner_text() for each in verdicts], "".join(printed)


def test_what_a_reader_writes_is_kept_used_and_never_lost(clone, new_page):
    with running_lab(clone.parent) as lab:
        page, file = new_page(), clone / "my_course" / "my_vit.py"
        traffic = Traffic(page, lab.url)

        for number in ("01", "02", "03"):
            lesson = Copy(lab, page, number)
            before = file.exists() and file.read_bytes()
            lesson.write({name: each.replace("return ", "return 2 * ", 1) for name, each in lesson.solutions.items()})
            states, said, _ = lesson.run()
            assert set(states) == {"wrong"}
            assert all(text.startswith("✗ ") and "expected" in text for text in said)
            assert (file.exists() and file.read_bytes()) == before
            lesson.write(lesson.solutions)
            states, said, printed = lesson.run()
            assert set(states) == {"right"}
            for name, part in PARTS.items():
                if part.lesson == number:
                    kept = sentence("mine.kept", name=name, kept=1 + WRITTEN.index(name), total=len(PARTS))
                    assert any(kept in text for text in said), said
                    assert sentence("mine.yours", name=name) in printed

        lesson = Copy(lab, page, "04")
        states, _, printed = lesson.run()
        assert set(states) == {"empty"}
        taken = re.findall(r'mine\.part\("(\w+)"\)', "\n".join(lesson.sources().values()))
        assert set(taken) & set(WRITTEN)
        for name in taken:
            assert (sentence("mine.yours", name=name) in printed) == (name in WRITTEN)

        table = call(clone, *PYTHON, "vit_course.mine")
        assert re.findall(r"(\w+) +yours\n", table) == WRITTEN
        assert sentence("mine.summary", kept=len(WRITTEN), total=len(PARTS)) in table
        Copy(lab, page, "00").run()
        expect(notebook(page).locator("pre").filter(has_text=table.splitlines()[0])).to_have_text(table.strip())

        lesson = Copy(lab, page, "02")
        kept, solved, origin = file.read_bytes(), lesson.solutions, clone.parent / "origin"
        path = origin / "notebooks" / NAMES["02"]
        newest = nbformat.read(path, as_version=4)
        stub = next(cell for cell in newest.cells if cell.source.startswith(f"class {WRITTEN[1]}"))
        stub.source += "\n# a newer stub"
        newest.cells[0].source += " (newer)"
        nbformat.write(newest, path)
        with (origin / "vit_course" / "embedding.py").open("a") as module:
            module.write("# newer\n")  # kept parts are checked again
        call(origin, *GIT, "commit", "-am", "second")
        call(clone, *PYTHON, "tools.my_course", "--pull")  # with the next one, this is make update
        assert "with all that you wrote" in call(clone, *PYTHON, "tools.my_course")
        lesson.reload()
        expect(notebook(page).locator(".jp-MarkdownCell").first).to_contain_text("(newer)")
        sources = lesson.sources()
        assert solved.items() <= sources.items()
        assert "# a newer stub" in sources[f"{stub.id}-newer"]
        assert call(clone, *PYTHON, "vit_course.mine") == table

        call(clone, *PYTHON, "tools.my_course", "--fresh", "02", "--exercise", WRITTEN[1])
        lesson.reload()
        sources = lesson.sources()
        assert {cell.id: cell.source for cell in newest.cells} | solved | {stub.id: stub.source} == sources
        states, _, printed = lesson.run()
        assert dict(zip(solved, states, strict=True)) == dict.fromkeys(solved, "right") | {stub.id: "empty"}
        assert sentence("mine.yours", name=WRITTEN[1]) in printed
        assert file.read_bytes() == kept
        assert [problem for problem in traffic.problems if RESTARTED not in problem] == []
    assert call(clone, "git", "status", "--porcelain") == ""
