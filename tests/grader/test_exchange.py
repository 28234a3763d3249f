"""nbgrader's exchange, as on a JupyterHub: from the teacher to the student and back, then marked."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import nbformat
from course import SOLUTION, command, write_class

from grader.source import ASSIGNMENTS

HUB = ASSIGNMENTS / "jupyterhub"


def nbgrader(folder, home, *words):
    """Run one of nbgrader's own commands as somebody with a home of their own."""
    settings = home / ".jupyter"
    settings.mkdir(parents=True, exist_ok=True)
    text = (HUB / "nbgrader_config.py").read_text(encoding="utf-8")
    exchange = home.parent / "exchange"
    exchange.mkdir(exist_ok=True)
    exchange.chmod(0o777)
    (settings / "nbgrader_config.py").write_text(
        text.replace("/srv/nbgrader/exchange", str(exchange)), encoding="utf-8"
    )
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "HOME": str(home), "PATH": path, "JUPYTER_CONFIG_DIR": str(settings)}
    environment["JUPYTER_DATA_DIR"] = str(home / "data")
    done = subprocess.run(["nbgrader", *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_from_the_teacher_to_the_student_and_back(tmp_path, course):
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
    assert command("grades", "--class", folder).returncode == 0
    with (folder / "grades.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["student_id"], row["assignment_01 (max 10)"]) == (name, "8")
    assert command("feedback", "--class", folder).returncode == 0
    nbgrader(folder, teacher, "release_feedback", "assignment_01")
    nbgrader(desk, student, "fetch_feedback", "assignment_01")
    (page,) = (desk / "assignment_01" / "feedback").rglob("*.html")
    assert "(Score: 8.0 / 10.0)" in page.read_text(encoding="utf-8")
