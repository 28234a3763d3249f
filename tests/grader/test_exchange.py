"""nbgrader's exchange, as on a JupyterHub: from the teacher to the student and back, then marked."""

import nbformat
import pytest
from course import SOLUTION, command, rows_of, write_class
from nbgrader.apps import NbGraderApp

from grader.source import ASSIGNMENTS


@pytest.fixture
def nbgrader(tmp_path):
    """Return a function that runs one of nbgrader's own commands, as somebody with a home of their own."""
    settings = (ASSIGNMENTS / "jupyterhub" / "nbgrader_config.py").read_text(encoding="utf-8")
    exchange = tmp_path / "exchange"
    exchange.mkdir()
    exchange.chmod(0o777)

    def run(folder, home, *words):
        (home / ".jupyter").mkdir(parents=True, exist_ok=True)
        path = home / ".jupyter" / "nbgrader_config.py"
        path.write_text(settings.replace("/srv/nbgrader/exchange", str(exchange)), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            for name, value in dict(HOME=home, JUPYTER_CONFIG_DIR=path.parent, JUPYTER_DATA_DIR=home / "data").items():
                patch.setenv(name, str(value))
            program = NbGraderApp()
            program.initialize(list(words))
            program.subapp.start()
            program.subapp.clear_instance()

    return run


@pytest.mark.usefixtures("without_a_sandbox")
@pytest.mark.filterwarnings("ignore")  # nbgrader leaves files open
def test_from_the_teacher_to_the_student_and_back(tmp_path, course, nbgrader, monkeypatch):
    monkeypatch.setattr("grader.classroom.check_source", lambda source: [])
    folder, student = write_class(tmp_path / "class", course), tmp_path / "student"
    teacher, desk = tmp_path / "teacher", tmp_path / "student" / "desk"
    desk.mkdir(parents=True)
    assert command("release", "--class", folder).returncode == 0
    nbgrader(folder, teacher, "release_assignment", "assignment_01")
    nbgrader(desk, student, "fetch_assignment", "assignment_01")
    path = desk / "assignment_01" / "assignment_01.ipynb"
    notebook = nbformat.read(path, as_version=4)
    assert "SOLUTION" not in path.read_text(encoding="utf-8")
    for cell in notebook.cells:
        cell.source = SOLUTION.get(cell.id, cell.source)
    nbformat.write(notebook, path)
    nbgrader(desk, student, "submit", "assignment_01")
    nbgrader(folder, teacher, "collect", "assignment_01")
    (name,) = [each.name for each in (folder / "submitted").iterdir()]
    assert command("grade", "--class", folder).returncode == 0
    (row,) = rows_of(folder).values()
    assert (row["student_id"], row["assignment_01 (max 10)"]) == (name, "8")
    assert command("feedback", "--class", folder).returncode == 0
    nbgrader(folder, teacher, "release_feedback", "assignment_01")
    nbgrader(desk, student, "fetch_feedback", "assignment_01")
    (page,) = (desk / "assignment_01" / "feedback").rglob("*.html")
    assert "(Score: 8.0 / 10.0)" in page.read_text(encoding="utf-8")
