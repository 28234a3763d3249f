"""The parts that the lessons ask for: each once, and with the reference's code as its worked solution."""

import ast
import re

import pytest
from lessons.plain import Plain, plain_source
from lessons.running import lesson, solutions

from tools.site_links import lessons
from vit_course.mine.parts import PARTS

NUMBERS = [path.name[:2] for path in lessons() if path.name[:2].isdigit()]


def written(number):
    """Return the parts that a lesson asks for, with the worked solution of each."""
    notebook = lesson(number)
    cells = {index: notebook.cells[index + 1].source for index in solutions(notebook)}
    kept = {index: re.match(r"mine\.keep\((\w+)\)", source) for index, source in cells.items()}
    return {match[1]: solutions(notebook)[index] for index, match in kept.items() if match}


def test_every_part_is_written_once_in_its_lesson():
    found = {name: number for number in NUMBERS for name in written(number)}
    assert found == {name: part.lesson for name, part in PARTS.items()}


@pytest.mark.parametrize("name", PARTS)
def test_the_worked_solution_is_the_references_code(name):
    """Apart from annotations, docstrings and checks of arguments."""
    tree = Plain().visit(ast.parse(written(PARTS[name].lesson)[name]))
    assert ast.unparse(tree) == plain_source(PARTS[name].reference)
