"""The reader's own model: what is kept, what is refused and why, and that nothing of the reader's is ever lost."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from filelock import FileLock
from lessons.plain import plain_source
from lessons.running import cell
from support import as_run_by_readers

import vit_course
from vit_course import checks, mine
from vit_course.mine import __main__ as command
from vit_course.mine import file
from vit_course.mine.parts import PARTS

pytestmark = pytest.mark.usefixtures("as_readers_run_it")
IMPORTS = """
import math
import torch
import torch.nn.functional as F
from einops import einsum, rearrange, reduce
from torch import nn
"""
MODEL = [name for name, part in PARTS.items() if part.lesson <= "05"]
SOURCES = {name: plain_source(PARTS[name].reference) for name in MODEL}


class Notebook:
    """A notebook's names; each call runs a cell."""

    def __init__(self):
        self.names = {"__name__": "__main__", "mine": mine, "checks": checks}
        self(IMPORTS)

    def __call__(self, source):
        cell(source, self.names, f"<cell {hash(source)}>")

    def keep(self, name, source=None):
        """Run a part's source and keep it."""
        source = source or SOURCES[name]
        self.names |= {other: mine.part(other) for other in MODEL if other in source}
        self(source)
        return mine.keep(self.names[name])


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Return a fresh notebook that works in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return Notebook()


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """Return a folder in which every part of the model is kept, each as ruff formats it."""
    folder = tmp_path_factory.mktemp("complete")
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", "-"]
    with contextlib.chdir(folder), as_run_by_readers():
        for name in MODEL:
            done = subprocess.run(ruff, input=SOURCES[name], capture_output=True, text=True, check=True)
            verdict = Notebook().keep(name, done.stdout)
            assert verdict.passed
    assert "you have now written 10 of 20 parts. Your Vision Transformer is complete." in verdict
    return folder


def text():
    """Return what is in my_vit.py."""
    return Path("my_vit.py").read_text(encoding="utf-8")


def refuses(notebook, says, *part):
    """Assert that a part is not kept, with what is said of it, and that the file stays as it is."""
    before = text()
    with pytest.raises(checks.CheckFailed, match=says):
        notebook.keep(*part)
    assert text() == before


def test_a_decorator_is_kept_with_its_function(notebook):
    source = plain_source(PARTS["evaluate"].reference)
    notebook("from torch.utils.data import DataLoader")
    assert notebook.keep("evaluate", f"@torch.no_grad()\n{source}").passed
    assert "@torch.no_grad()\ndef evaluate(" in text()


def test_the_complete_file_is_formatted_in_course_order_and_imports_torch_and_einops_only(complete):
    written = (complete / "my_vit.py").read_text(encoding="utf-8")
    imports = [line for line in written.splitlines() if line.startswith(("import", "from"))]
    assert {line.split()[1].partition(".")[0] for line in imports} == {"torch", "einops"}
    assert [name for name in file.definitions(written) if name in PARTS] == MODEL
    for words in (["format", "--check", "--isolated"], ["check", "--select", "E,F,I", "--isolated"]):
        subprocess.run([sys.executable, "-m", "ruff", *words, complete / "my_vit.py"], check=True)


def test_run_alone_names_what_is_missing_and_then_runs(complete, monkeypatch, capsys, notebook):
    mine.run_alone()
    assert capsys.readouterr().out.startswith("my_vit.py is not complete yet. Still missing, or not passing")
    monkeypatch.chdir(complete)
    mine.run_alone()
    assert capsys.readouterr().out == "my_vit.py runs without vit_course: (6, 3, 96, 96) -> (6, 10)\n"


def test_a_part_is_the_readers_the_courses_or_a_mixture(notebook, capsys):
    assert mine.part("PatchEmbedding") is vit_course.PatchEmbedding
    assert capsys.readouterr().out == "PatchEmbedding: the course's own version\n"
    verdict = notebook.keep("PatchEmbedding")
    assert verdict.passed
    assert "Kept in my_vit.py: you have now written 1 of 20 parts." in verdict
    capsys.readouterr()
    own = mine.part("PatchEmbedding")
    assert own is not vit_course.PatchEmbedding
    assert own.__module__ == "my_vit"
    mixed = mine.part("VisionTransformer")
    assert capsys.readouterr().out.splitlines() == [
        "PatchEmbedding: your own version, from my_vit.py",
        "VisionTransformer: the course's own version, built with your PatchEmbedding",
    ]
    model = mixed(image_size=8, patch_size=4, num_layers=1, num_heads=2, hidden_dim=8, mlp_dim=8, num_classes=3)
    assert type(model.embedding.patch_embedding) is own
    assert type(model.encoder) is vit_course.Encoder
    assert mine.part("MLPBlock") is vit_course.MLPBlock


def test_an_assignment_takes_parts_from_the_folder_of_the_lessons(complete, tmp_path, monkeypatch, capsys):
    notebook = tmp_path / "my_course" / "assignments" / "release" / "assignment_05"
    notebook.mkdir(parents=True)
    monkeypatch.chdir(notebook)
    mine.part("Encoder")
    shutil.copy(complete / "my_vit.py", tmp_path / "my_course")
    mine.part("Encoder")
    own = "Encoder: your own version, from my_vit.py"
    assert capsys.readouterr().out.splitlines() == ["Encoder: the course's own version", own]


def test_stubs_and_wrong_parts_and_the_courses_own_are_not_kept(notebook):
    stub = notebook.keep("patchify", "def patchify(images, patch_size):\n    ...")
    assert (stub.state, stub) == ("empty", "patchify: not written yet.")
    with pytest.raises(checks.CheckFailed, match="patchify: "):
        notebook.keep("patchify", "def patchify(images, patch_size):\n    return images")
    assert "the course's own version" in mine.keep(vit_course.patchify)
    with pytest.raises(ValueError, match=r"under its own name: patchify, .*; got 'my_patchify'"):
        notebook("def my_patchify(images, patch_size): ...\nmine.keep(my_patchify)")
    assert not Path("my_vit.py").exists()


HELPERS = '''
GRID = "b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)"  # a constant


def cut(images, p):
    return rearrange(images, GRID, p1=p, p2=p)


# I cut the images here.
def patchify(images, patch_size):
    """Cut images into patches."""
    return cut(images, patch_size)  # one line
'''


def test_helpers_constants_and_comments_come_with_the_part(notebook):
    assert "Kept in my_vit.py with GRID and cut, which it uses" in notebook.keep("patchify", HELPERS)
    written = text()
    assert "from einops import rearrange\n" in written
    assert "# I cut the images here.\ndef patchify" in written
    assert "# one line" in written
    assert list(file.definitions(written)) == ["GRID", "cut", "patchify"]
    assert mine.part("patchify")(torch.zeros(1, 3, 4, 4), 2).shape == (1, 4, 12)


def test_a_new_version_replaces_the_old_one_which_stays_in_the_history(notebook):
    notebook.keep("patchify")
    notebook.keep("PatchEmbedding")
    replaced = notebook.keep("patchify", HELPERS)
    assert list(file.definitions(text())) == ["GRID", "cut", "patchify", "PatchEmbedding"]
    paths = sorted(Path(".my_vit").glob("*.py"))
    assert f"Its earlier version is in {paths[-1]}." in replaced
    kept = [path.read_text(encoding="utf-8") for path in paths]
    assert len(kept) == 2
    assert "def cut" not in kept[-1]
    assert "class PatchEmbedding" in kept[-1]
    wrong = "def patchify(images, patch_size):\n    return images"
    refuses(notebook, r"my_vit\.py still has your earlier version", "patchify", wrong)
    assert "This is your version from my_vit.py." in mine.keep(mine.part("patchify"))


DATA = """from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple
class Order(IntEnum):
    FIRST = 0
class Grid(NamedTuple):
    side: int
NOTHING = None
ORDERS = {"patches": ["b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)"]}
LOW = -math.inf
@dataclass
class Config:
    side: int = 0
@lru_cache
def side_of(size):
    return max(LOW, size + Config().side + Order.FIRST)
def patchify(images, patch_size):
    return rearrange(images, ORDERS["patches"][0], p1=patch_size, p2=Grid(side_of(patch_size)).side, **NOTHING or {})
"""


def test_classes_without_methods_and_collections_come_with_the_part(notebook):
    helpers = "with Grid, NOTHING, ORDERS, Config, LOW, Order and side_of, which it uses"
    assert helpers in notebook.keep("patchify", DATA)
    own = SOURCES["MLPBlock"].replace("class MLPBlock", "class Base") + "\n\n\nclass MLPBlock(Base):\n    pass"
    assert "with Base, which it uses" in notebook.keep("MLPBlock", own)
    assert mine.load().kept == ["patchify", "MLPBlock"]


BASE = "class Base(nn.Module):\n    def size(self):\n        return len(list(self.parameters()))"
EPS = "EPS = 1e-6\ndef norm(d, eps=EPS):\n    return nn.LayerNorm(d, eps=eps)"


def test_every_helper_stands_before_its_first_use_so_that_python_can_import_the_file(notebook):
    notebook("def norm(d):\n    return nn.LayerNorm(d, eps=1e-6)")
    block = SOURCES["EncoderBlock"].replace("nn.LayerNorm(hidden_dim, eps=1e-06)", "norm(hidden_dim)")
    notebook.keep("EncoderBlock", block)
    notebook(BASE)
    for name in ("Encoder", "MLPBlock"):
        notebook.keep(name, SOURCES[name].replace("(nn.Module)", "(Base)"))
    notebook(EPS)
    assert notebook.keep("EncoderBlock", block).passed
    assert list(file.definitions(text())) == ["Base", "MLPBlock", "EPS", "norm", "EncoderBlock", "Encoder"]
    exec(compile(text(), "my_vit.py", "exec"), {"__name__": "my_vit"})
    of_itself = "class Encoder(Encoder):\n    def extra_repr(self):\n        return 'mine'"
    refuses(notebook, "not by itself in my_vit.py. It stops with NameError: name 'Encoder'", "Encoder", of_itself)


def test_a_file_edited_by_hand_is_respected(notebook, capsys):
    notebook.keep("PatchEmbedding")
    edited = text().replace("class PatchEmbedding", "# my note\nSECRET = 3\n\n\nclass PatchEmbedding") + "\n# the end\n"
    Path("my_vit.py").write_text(edited, encoding="utf-8")
    notebook.keep("patchify")
    notebook.keep("MLPBlock")
    for line in ("# my note", "SECRET = 3", "# the end"):
        assert line in text()
    # a part that is broken by hand no longer counts
    Path("my_vit.py").write_text(text().replace("F.gelu", "F.relu"), encoding="utf-8")
    assert mine.part("MLPBlock") is vit_course.MLPBlock
    mine.part("VisionTransformer")
    printed = " ".join(capsys.readouterr().out.split())
    assert "MLPBlock: the course's own version, because yours in my_vit.py does not pass its check." in printed
    assert "built with your patchify and PatchEmbedding, but with the course's MLPBlock, because yours does" in printed
    assert "04  MLPBlock                      in my_vit.py, but it does not pass" in repr(mine.progress())


def test_a_notebook_shows_every_part_that_a_cell_keeps(notebook, monkeypatch):
    shown = []
    monkeypatch.setattr(mine, "shell", lambda: True)
    monkeypatch.setattr("IPython.display.display", shown.append)
    verdict = notebook.keep("patchify")
    assert shown == [verdict]
    verdict._ipython_display_()  # what a cell does with its last value
    assert shown == [verdict]


def test_a_syntax_error_in_the_file_is_named_and_nothing_is_overwritten(notebook, capsys):
    notebook.keep("patchify")
    Path("my_vit.py").write_text(text() + "\ndef half(:\n", encoding="utf-8")
    assert mine.part("patchify") is vit_course.patchify
    line = len(text().splitlines())
    assert f"Python cannot read my_vit.py: line {line}" in " ".join(capsys.readouterr().out.split())
    refuses(notebook, f"line {line}", "PatchEmbedding")


def test_a_helper_that_another_part_uses_is_not_replaced(notebook):
    notebook.keep("patchify", HELPERS)
    notebook.keep("PatchEmbedding", SOURCES["PatchEmbedding"].replace("patchify(images", "cut(images"))
    other = HELPERS.replace("p1=p, p2=p)", "p1=p, p2=p) + 0")
    refuses(notebook, r"its helper cut differs from the one in my_vit\.py, which PatchEmb", "patchify", other)


OF_EINOPS = """
from einops import einsum


def attention_weights(query, key):
    return (einsum(query, key, "b h i e, b h j e -> b h i j") * query.shape[-1] ** -0.5).softmax(dim=-1)
"""
OF_TORCH = """
from torch import einsum


def scaled_dot_product_attention(query, key, value):
    return einsum("bhij,bhje->bhie", attention_weights(query, key), value)
"""


def test_a_part_that_would_break_another_one_is_not_kept(notebook):
    notebook.keep("attention_weights", OF_EINOPS)
    says = r"with it in my_vit\.py, attention_weights would no longer pass"
    refuses(notebook, says, "scaled_dot_product_attention", OF_TORCH)


def test_a_part_that_the_file_cannot_run_is_not_kept(notebook):
    notebook.keep("patchify")
    Path("my_vit.py").write_text(text() + "\nHALF = 1 / 0\n", encoding="utf-8")
    refuses(notebook, r"not by itself in my_vit\.py\. It stops with ZeroDivisionError", "MLPBlock")


def test_layers_made_in_another_order_are_kept_with_a_note(notebook):
    own = SOURCES["MLPBlock"].replace("super().__init__()", "super().__init__()\n        torch.rand(1)")
    assert "other random numbers" in notebook.keep("MLPBlock", own)
    assert "other random numbers" not in notebook.keep("MLPBlock")


def test_an_import_that_is_changed_by_hand_is_checked_again(notebook):
    notebook.keep("MLPBlock", "from torch.nn.functional import gelu\n" + SOURCES["MLPBlock"].replace("F.gelu", "gelu"))
    assert mine.load().kept == ["MLPBlock"]
    Path("my_vit.py").write_text(text().replace("import gelu", "import relu as gelu"), encoding="utf-8")
    assert mine.load().kept == []
    Path("my_vit.py").write_text(text().replace("from torch import nn\n", ""), encoding="utf-8")
    assert "name 'nn' is not defined" in mine.load().problems["MLPBlock"]


def test_what_else_is_on_the_line_of_an_import_stays(notebook):
    line = "from torch import nn; WIDTH = 3  # mine\n"
    Path("my_vit.py").write_text(line, encoding="utf-8")
    annotated = SOURCES["MLPBlock"].replace("forward(self, x)", "forward(self, x: Tensor)")
    notebook.keep("MLPBlock", "from torch import Tensor\n" + annotated)
    assert line in text()


def test_two_notebooks_that_keep_at_the_same_time_both_succeed(notebook, monkeypatch):
    """The other one writes while this one waits for the lock."""
    notebook.keep("patchify")
    others = Path("my_vit.py").rename("others.py")
    about_to_wait, source_of = threading.Event(), mine.source_of
    monkeypatch.setattr(mine, "source_of", lambda part: about_to_wait.set() or source_of(part))
    with ThreadPoolExecutor() as pool, FileLock(Path(file.HISTORY) / "lock"):
        kept = pool.submit(notebook.keep, "MLPBlock")
        assert about_to_wait.wait(timeout=60)
        time.sleep(0.2)
        others.rename("my_vit.py")
    assert kept.result().passed
    assert list(file.definitions(text())) == ["patchify", "MLPBlock"]


def test_a_folder_that_cannot_be_written_to_ends_in_one_line(notebook, monkeypatch):
    notebook.keep("patchify")
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(28, "No space left on device")))
    refuses(notebook, r"could not be written in .*: No space left on device\. Your part is", "MLPBlock")


def test_a_check_runs_once_for_a_source_and_again_when_it_changes(notebook, monkeypatch):
    ran = []
    monkeypatch.setattr("vit_course.checks.declare.Check.verify", lambda self, *rest: ran.append(self.name))
    notebook.keep("patchify")
    ran.clear()
    mine.loaded_text.cache_clear()
    mine.part("patchify")
    assert ran == []
    Path("my_vit.py").write_text(text().replace("patch_size", "side"), encoding="utf-8")
    mine.part("patchify")
    assert ran == ["patchify"]


def test_progress_shows_every_part_and_the_command_prints_it(notebook, monkeypatch, capsys):
    notebook.keep("attention_weights")
    shown = repr(mine.progress()).splitlines()
    assert len(shown) == len(PARTS) + 1
    assert "03  attention_weights             yours" in shown
    assert "02  PatchEmbedding                not written yet" in shown
    assert shown[-1] == "You have written 1 of 20 parts."
    monkeypatch.setattr(sys, "argv", ["vit_course.mine"])
    command.main()
    assert capsys.readouterr().out.splitlines()[-len(shown) :] == shown


# what is said, of which part, and what is replaced in it
REFUSED = [
    (r"grid_size\. .* it should be \(4, 4\); got \(4\.0, 4\.0\)", "PatchEmbedding",
     {"height // p": "height / p", "width // p": "width / p"}),
    ("uses the name lost", "patchify", {"return": "return lost if 0 else"}),
    ("uses load_test_images, which comes from", "patchify", {"return": "return load_test_images if 0 else"}),
    ("it uses weights, a Tensor of this notebook", "patchify", {"return": "return weights if 0 else"}),
    ("it uses half under the name halved, so", "patchify", {"return": "return halved if 0 else"}),
    (r"in float64, .*'dtype' do not match", "patchify", {"rearrange(images,": "rearrange(images.float(),"}),
    (r"in float64, .* not close", "attention_weights",
     {"scores * query.shape[-1] ** (-0.5)": "scores / torch.sqrt(torch.tensor(float(query.shape[-1])))"}),
    ("its state dict also holds scale, and", "MLPBlock",
     {"super().__init__()": "super().__init__(); self.register_buffer('scale', torch.ones(1))"}),
    ("its helper half uses np from numpy, and", "patchify", {"return": "return half(0) if 0 else"}),
    (r"an attribute grid_size\. For image_size=16, .* it should be \(4, 4\); got None",
     "PatchEmbedding", {"self.grid_size =": "grid_size ="}),
    (r"projection\.weight does not start as the lesson asks",
     "PatchEmbedding", {"std=self": "std=3 * self"}),
    (r"projection\.weight does not start .* should be about 0\.14\d, and is 0\.12\d",
     "PatchEmbedding", {"std=self": "std=0.88 * self"}),
    (r"ln_1\.weight does not start .* should be about 1\.000, and is 0\.600",
     "EncoderBlock", {"self.self_attention =": "nn.init.constant_(self.ln_1.weight, 0.6); self.self_attention ="}),
    (r"layers\.0\..* and layers\.1\..* start with the same random values",
     "Encoder", {"self.ln = ": "self.layers[-1].load_state_dict(self.layers[0].state_dict()); self.ln = "}),
    (r"linear_1\.weight does not start",
     "MLPBlock", {"nn.init.xavier_uniform_(self.linear_1.weight)": "pass"}),
    (r"qkv\.weight does not start as the lesson asks: its largest value .* normal distribution",
     "MultiHeadSelfAttention", {"xavier_uniform_(self.qkv": "xavier_normal_(self.qkv"}),
    (r"encoder\.layers\.0\..* does not start as the lesson asks",
     "VisionTransformer", {"self.head =": "nn.init.normal_(self.encoder.layers[0].mlp.linear_1.weight); self.head ="}),
    (r"later lessons call its method forward_features, and it has none",
     "VisionTransformer", {"forward_features": "features"}),
    (r"its method forward_features does not return the normalized tokens",
     "VisionTransformer", {"self.forward_features(images)": "self.encoder(self.embedding(images))",
                           "return self.encoder(self.embedding(images))": "return self.embedding(images)"}),
]  # fmt: skip


@pytest.mark.parametrize(("says", "name", "edits"), REFUSED)
def test_a_right_part_that_later_lessons_could_not_use_is_refused(says, name, edits, notebook):
    notebook("from vit_course.data import load_test_images\nimport numpy as np\nweights = torch.ones(1)")
    notebook("def half(x):\n    return np.abs(x)\nhalved = half")
    source = SOURCES[name]
    for old, new in edits.items():
        assert old in source
        source = source.replace(old, new)
    with pytest.raises(checks.CheckFailed, match=says):
        notebook.keep(name, source)
    assert not Path("my_vit.py").exists()
