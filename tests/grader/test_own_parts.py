"""A my_vit.py next to a notebook: right parts are used, wrong and hostile ones cost nothing and leave a note."""

import pytest
from lessons.plain import plain_source

from grader import own_parts
from grader.confine import Limits
from grader.pool import grade_one
from grader.source import course_imports
from vit_course import encoder

pytestmark = pytest.mark.usefixtures("as_readers_run_it")

GIVEN = 'from vit_course import mine\n\nEncoderBlock = mine.part("EncoderBlock")'
TEST = {"block": "from grader import hidden\nhidden.encoder_block(EncoderBlock)"}
PARTS = [encoder.MLPBlock, encoder.EncoderBlock]  # the attention in them is the course's
RIGHT = "\n".join(["import torch.nn.functional as F", "from torch import nn", *map(plain_source, PARTS)])
COURSES, OWN = "the course's own version", "your own version, from my_vit.py"


@pytest.mark.parametrize(
    ("own", "used", "cause"),
    [
        ("", COURSES, None),
        ("def patchify(images, patch_size):\n    ...", COURSES, None),
        (RIGHT, OWN, None),
        (RIGHT.replace("eps=1e-06", "eps=1e-05"), COURSES, "EncoderBlock: "),
        (RIGHT + "\nimport os\nos._exit(3)", COURSES, "ended itself"),
        (RIGHT + "\nfrom grader import hidden", COURSES, "ImportError: "),
        (RIGHT + "\nfrom vit_course import VisionTransformer\nVisionTransformer()", COURSES, "NameError: "),
    ],
)
def test_a_right_part_is_used_and_a_wrong_or_hostile_file_costs_no_points(own, used, cause):
    result = grade_one([(1, GIVEN)], TEST, frozenset(course_imports(GIVEN)), Limits(cell_seconds=2), False, own)
    assert result.outputs[1][0]["text"] == f"EncoderBlock: {used}\n"
    assert (result.answers["block"].passed, len(result.notes)) == (True, bool(cause))
    for note in result.notes:
        assert note.startswith("my_vit.py: ")
        assert note.endswith("; the course's version was used instead")
        assert cause in note


def test_the_file_is_read_like_a_strangers(tmp_path):
    assert own_parts.read(tmp_path) == ("", [])
    path = tmp_path / own_parts.FILE
    path.write_text("\ufeffx = 1", encoding="utf-8")
    assert own_parts.read(tmp_path) == ("x = 1", [])
    path.unlink()
    path.symlink_to("/etc/hostname")
    text, (note,) = own_parts.read(tmp_path)
    assert text == ""
    assert note.startswith("my_vit.py was left out: the file is a link to another one.")
