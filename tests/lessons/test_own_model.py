"""The parts that the lessons ask for: each once, and with the reference's code as its worked solution."""

import pytest
from lessons.plain import plain, plain_source
from lessons.running import parts_of

from tools.site_links import lessons
from vit_course.mine.parts import PARTS


def test_every_part_is_written_once_in_its_lesson():
    numbers = [path.name[:2] for path in lessons() if path.name[:2].isdigit()]
    found = {name: number for number in numbers for name in parts_of(number)}
    assert found == {name: part.lesson for name, part in PARTS.items()}


@pytest.mark.parametrize("name", PARTS)
def test_the_worked_solution_is_the_references_code(name):
    """Apart from annotations, docstrings and checks of arguments."""
    assert plain(parts_of(PARTS[name].lesson)[name]) == plain_source(PARTS[name].reference)
