"""The explorers from Python: what they show against what the package computes, and what they say.

That they answer in a browser is shown in tests/browser/test_explore.py.
"""

import io
import re
from functools import partial

import einops
import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image
from support import assert_equal, parameters_of, small_model

from vit_course import explore, inside, patchify
from vit_course.data import load_test_images
from vit_course.explore.picture import GridPicture
from vit_course.plots import COLORS, DIVERGING, SEQUENTIAL
from vit_course.training import learning_rate_schedule

LETTERS = load_test_images()
ABOUT = dict(mean=[0.4, 0.5, 0.6], std=[0.2, 0.25, 0.5], class_names=["one", "two", "three", "four", "five"])
IMAGES = torch.rand(9, 3, 8, 12, generator=torch.Generator().manual_seed(2)).double()
MEAN, STD = (torch.tensor(ABOUT[key], dtype=torch.float64)[:, None, None] for key in ("mean", "std"))
NORMALISED = (IMAGES - MEAN) / STD
LABELS = torch.arange(9) % 5


def decoded(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=int)


KINDS = {  # an explorer of each kind, small
    "attention": lambda: explore.attention(small_model(), IMAGES[0]),
    "einops": lambda: explore.einops(LETTERS[0], "c h w -> c w h"),
    "head_ablation": lambda: explore.head_ablation(small_model(), IMAGES, LABELS),
    "patches": lambda: explore.patches(LETTERS[0, :, :48, :48]),
    "positions": lambda: explore.positions(small_model()),
    "schedule": lambda: explore.schedule(total_steps=60, warmup_steps=6),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def middles(view: explore.Explorer, place: int) -> np.ndarray:
    """The colour in the middle of every cell, (rows, columns, 3)."""
    picture = decoded(view.picture.png)
    (left, top, width, height), (rows, columns) = view.picture.places[place], view.picture.shape
    y = (top + height * (np.arange(rows) + 0.5) / rows) * picture.shape[0]
    x = (left + width * (np.arange(columns) + 0.5) / columns) * picture.shape[1]
    return picture[y.astype(int)[:, None], x.astype(int)]


# Attention


@pytest.mark.parametrize("query", [None, (0, 2), (1, 0)])
def test_attention_is_the_row_of_the_query_token(query):
    model = small_model()
    with torch.no_grad():
        maps = inside.attention_maps(model, IMAGES[:1])
    view = explore.attention(model, IMAGES[0])
    view.picture.selected = query
    row = 0 if query is None else 1 + 3 * query[0] + query[1]  # the grid is 2 x 3
    for layer in range(2):
        view.controls["layer"].value = layer
        for head, expected in {"mean": maps[layer][0, :, row].mean(dim=0), 1: maps[layer][0, 1, row]}.items():
            view.controls["head"].value = head
            assert_equal(view.values, expected)
        view.controls["rollout"].value = True
        assert_equal(view.values, inside.attention_rollout(maps[: layer + 1])[0, row])
        view.controls["rollout"].value = False


def test_attention_normalises_what_about_says_and_names_the_answer():
    model = small_model().train()  # it is used in eval mode, and stays as it was
    raw, normalised = IMAGES[3], NORMALISED[3]
    view = explore.attention(model, raw, about=ABOUT)
    assert all(module.training for module in model.modules())
    assert_equal(view.values, explore.attention(model, normalised).values)
    assert not torch.allclose(view.values, explore.attention(model, raw).values)
    with torch.no_grad():
        chances = model.eval()(normalised[None])[0].softmax(dim=-1)
    words = {text.get_text() for text in view.figure.findobj() if hasattr(text, "get_text")}
    assert f"the model: {ABOUT['class_names'][chances.argmax()]}, {100 * chances.max():.0f}\u00a0%" in words


def test_attention_is_summarized_by_how_near_it_stays():
    model = small_model(image_size=(20, 24))  # a grid of 5 x 6
    view = explore.attention(model, torch.rand(3, 20, 24).double())
    view.controls["layer"].value, view.controls["head"].value, view.picture.selected = 1, 0, (3, 2)
    cells = [(row, column) for row in range(5) for column in range(6)]
    near = [index for index, cell in enumerate(cells, start=1) if (cell[0] - 3) ** 2 + (cell[1] - 2) ** 2 <= 4]
    best = view.values[1:].argmax().item()
    assert view.text.replace("\u00a0", " ") == (
        f"Patch (3, 2), layer 1, head 0: {100 * view.values[near].sum():.0f} % of its attention stays within 2 patches "
        f"({100 * len(near) / 31:.0f} % if it attended uniformly), {100 * view.values[0]:.0f} % goes to the class "
        f"token. Most goes to patch {cells[best]}: {100 * view.values[1 + best]:.0f} %."
    )


def test_an_image_beyond_0_and_1_is_drawn_stretched_and_a_constant_one_is_drawn_too():
    for image in (3 * IMAGES[0] - 1, torch.full((3, 8, 12), 2.0).double()):
        view = explore.attention(small_model(), image)
        drawn = view._image_frame.axes.images[0].get_array()
        expected = (image - image.min()) / (image.max() - image.min()).clamp(min=1e-9)
        assert_equal(torch.as_tensor(np.asarray(drawn)), expected.permute(1, 2, 0))


def test_the_class_token_is_chosen_by_its_box_and_by_the_picture():
    view = explore.attention(small_model(), IMAGES[0])
    box, picture = view.controls["class_token"], view.picture
    picture.selected = (0, 2)
    box.value = True
    assert picture.selected is None
    assert view.text.startswith("Class token, layer 1")
    box.value = False
    assert picture.selected == (0, 2)
    picture.selected = None
    assert box.value
    picture.selected = (1, 1)
    assert not box.value
    assert view.text.startswith("Patch (1, 1), layer 1")


# Patches


def test_a_patch_is_what_patchify_cuts_and_another_patch_size_keeps_the_cell_on_the_grid():
    image = LETTERS[2, :, :48]  # 48 x 96: a grid with other rows than columns
    view = explore.patches(image, patch_size=8)
    for patch_size, cell, now in ((8, (0, 11), (0, 11)), (8, (5, 1), (5, 1)), (24, (5, 9), (1, 3))):
        view.controls["patch_size"].value = 8
        view.picture.selected = cell
        view.controls["patch_size"].value = patch_size
        assert view.picture.shape == (48 // patch_size, 96 // patch_size)
        assert view.picture.selected == now
        top, left = now[0] * patch_size, now[1] * patch_size
        pixels = image[:, top : top + patch_size, left : left + patch_size]
        view.controls["order"].value = "(c p1 p2)"
        assert_equal(view.values, pixels.flatten(), atol=0)
        number = now[0] * view.picture.shape[1] + now[1]
        assert_equal(view.values, patchify(image[None], patch_size)[0, number], atol=0)
        view.controls["order"].value = "(p1 p2 c)"
        assert_equal(view.values, pixels.permute(1, 2, 0).flatten(), atol=0)


def test_the_maps_have_the_colours_of_their_values():
    view = explore.attention(small_model(), IMAGES[0])
    for layer, query in ((0, (1, 0)), (1, (0, 2))):
        view.controls["layer"].value, view.picture.selected = layer, query
        values = view.values[1:].reshape(2, 3)
        expected = 255 * matplotlib.colormaps[SEQUENTIAL]((values / values.max()).numpy())[..., :3]
        assert abs(middles(view, 1) - expected).max() < 2
    view = explore.positions(small_model())
    limit = inside.position_similarity(small_model()).reshape(6, 6).fill_diagonal_(0).abs().max()
    for query in ((1, 0), (0, 2)):
        view.picture.selected = query
        expected = 255 * matplotlib.colormaps[DIVERGING]((view.values.numpy() / limit.item() + 1) / 2)[..., :3]
        assert abs(middles(view, 0) - expected).max() < 2


def test_a_cell_lies_where_its_patch_is_drawn_and_framed():
    """Rows are not columns, and up is not down."""
    colors = torch.arange(6).reshape(2, 3) / 5
    view = explore.patches(colors.repeat_interleave(10, 0).repeat_interleave(10, 1).expand(3, 20, 30), patch_size=10)
    assert view.picture.shape == (2, 3)
    assert abs(middles(view, 0) - 255 * colors.numpy()[..., None]).max() <= 1
    purple = 255 * np.array(matplotlib.colors.to_rgb(COLORS["query"]))
    left, top, width, height = view.picture.places[0]
    for row, column in ((0, 2), (1, 0)):
        view.picture.selected = (row, column)
        picture = decoded(view.picture.png)
        found = np.argwhere(abs(picture - purple).max(axis=-1) < 3) / picture.shape[:2]
        corner = np.array([top + height * row / 2, left + width * column / 3])
        assert abs(found.min(axis=0) - corner).max() < 0.006  # three pixels
        assert abs(found.max(axis=0) - corner - (height / 2, width / 3)).max() < 0.006


# Einops


def test_a_pattern_gives_what_einops_gives():
    view = explore.einops(LETTERS[0], "c (gh p1) (gw p2) -> c (p1 gh) (p2 gw)", p1=16, p2=16)
    assert_equal(view.values, einops.rearrange(LETTERS[0], "c (g p) (k q) -> c (p g) (q k)", p=16, q=16), atol=0)
    view.controls["operation"].value = "reduce"
    view.controls["pattern"].value = "c (gh p1) (gw p2) -> c gh gw"
    view.controls["reduction"].value = "max"
    assert_equal(view.values, torch.nn.functional.max_pool2d(LETTERS[0], 16), atol=0)
    view.controls["operation"].value = "repeat"
    view.controls["pattern"].value = "c h w -> c h (n w)"
    view.controls["sizes"].value = " n = 2 "
    assert_equal(view.values, torch.cat([LETTERS[0]] * 2, dim=-1), atol=0)
    assert view.message is None
    assert view.text == 'repeat(image, "c h w -> c h (n w)") has the shape (3, 96, 192), drawn as c h w.'


NO_ARROW = "A pattern has one arrow, ->: the axes as they are, the arrow, the axes as they shall be."
WRONGLY_TYPED = [("pattern", written, NO_ARROW) for written in ["", "c h w - h w c", "c h w -> h -> w"]]
WRONGLY_TYPED += [("pattern", written, None) for written in ["c h w -> h c", "c (h w -> c h w", "-> "]]  # einops' own
WRONGLY_TYPED += [
    ("sizes", written, f"sizes must read like p1=16, p2=16; got {written!r}")
    for written in ["p1", "p1=x", "p1=-1", "p1=1.5", "p1=16 p2=16"]
]


@pytest.mark.parametrize(("control", "written", "message"), WRONGLY_TYPED)
def test_what_is_typed_wrongly_is_explained_until_it_is_right(control, written, message):
    view = explore.einops(LETTERS[0], "c h w -> h w c")
    right = view.controls[control].value
    view.controls[control].value = written
    if message is None:
        with pytest.raises(einops.EinopsError) as raised:
            einops.rearrange(LETTERS[0], written)
        message = str(raised.value).strip()
    assert view.values is None
    assert view.message == message
    assert view.text.endswith(f"stops: {message.splitlines()[-1].strip()}")
    view.controls[control].value = right
    assert view.message is None
    assert_equal(view.values, LETTERS[0].permute(1, 2, 0), atol=0)


@pytest.mark.parametrize("pattern", ["$x_{ c h w -> h w", "c h w -> " + 400 * "h w ", "c h w -> " + 400 * "h"])
def test_whatever_is_typed_is_drawn(pattern):
    """A $ begins no formula, and a long text does not cover the picture."""
    view = explore.einops(LETTERS[0], "c h w -> h w c")
    view.controls["pattern"].value = pattern
    assert view.message
    assert view._headline.get_text().count("\n") <= 1
    box = view._note.get_window_extent(view.figure.canvas.get_renderer())
    assert box.x1 <= view.figure.bbox.x1
    assert box.y0 > view._footer.get_window_extent().y1


def test_a_gigantic_result_is_refused_before_it_is_made():
    view = explore.einops(LETTERS, "b c h w -> b c h (n w)", operation="repeat", n=2)
    assert view.values.shape == (6, 3, 96, 192)
    for count, message in ((100000, "The result (6, 3, 96, 9600000) would have 16,588,800,000 values;"), (10**30, "")):
        view.controls["sizes"].value = f"n={count}"
        assert view.values is None
        assert view.message.startswith(message)


@pytest.mark.parametrize(
    ("pattern", "shape", "reading"),
    [
        ("c h w -> h w c", (96, 96, 3), "h w c"),
        ("c h w -> c h w", (3, 96, 96), "c h w"),
        ("c h w -> h (w c)", (96, 288), "h w"),
        ("c h w -> (c h w) 1", (27648, 1), "h w"),
        ("c h w -> h c w", (96, 3, 96), None),
    ],
)
def test_what_is_no_picture_says_so(pattern, shape, reading):
    view = explore.einops(LETTERS[0], pattern)
    assert tuple(view.values.shape) == shape
    assert view.text.endswith(f", drawn as {reading}." if reading else f" has the shape {shape}.")
    assert ("needs two axes" in " ".join(view._note.get_text().split())) == (reading is None)


def test_a_marked_part_is_found_again_in_the_result():
    view = explore.einops(LETTERS[0], "c h w -> c w h")
    before, values = decoded(view.picture.png), view.values
    view.picture.selected = (1, 4)  # rows 16 to 31, columns 64 to 79
    assert_equal(view.values, values, atol=0)
    changed = abs(decoded(view.picture.png) - before).max(axis=-1) > 30
    changed[:, : changed.shape[1] // 2] = False
    right = np.argwhere(changed)
    left, top, width, height = explore.drawing.place(view._result.axes)
    size = np.array(changed.shape)
    assert abs(right.min(axis=0) - size * (top + height * 64 / 96, left + width * 16 / 96)).max() < 4
    assert abs(right.max(axis=0) - size * (top + height * 80 / 96, left + width * 32 / 96)).max() < 4
    view.picture.selected = None
    assert (decoded(view.picture.png) == before).all()


# Positions


def test_positions_are_cosines_of_the_embeddings():
    model = small_model()
    similarity = inside.position_similarity(model)
    view = explore.positions(model)
    for cell in ((0, 2), (1, 0)):
        view.picture.selected = cell
        assert_equal(view.values, similarity[cell])
    view.picture.selected = None
    token, *patches = model.embedding.pos_embedding[0].detach()
    expected = torch.stack([token @ patch / (token.norm() * patch.norm()) for patch in patches])
    assert_equal(view.values, expected.reshape(2, 3))
    assert view.text.startswith("The class token's position")


def test_positions_say_what_is_near_and_far():
    view = explore.positions(small_model(image_size=(20, 24)))  # a grid of 5 x 6
    view.picture.selected = (2, 3)
    rows, columns = torch.meshgrid(torch.arange(5), torch.arange(6), indexing="ij")
    near = (rows - 2).abs().maximum((columns - 3).abs()) <= 1
    groups = {
        "with its neighbors": near & ((rows != 2) | (columns != 3)),
        "with the rest of its row": (rows == 2) & ~near,
        "with the rest of its column": (columns == 3) & ~near,
        "elsewhere": (rows != 2) & (columns != 3) & ~near,
    }
    means = ", ".join(f"{view.values[group].mean():.2f} {name}" for name, group in groups.items())
    assert view.text == f"Position of patch (2, 3): its cosine similarity is on average {means}."


# Schedule


def test_the_schedule_is_the_package_s():
    view = explore.schedule(peak=2e-3, total_steps=50, warmup_steps=10, final=5e-4)
    new = dict(total_steps=30, peak=0.01, warmup_steps=4, final=0.2)  # the last one a share of the peak
    for options in (dict(total_steps=50, warmup_steps=10, peak=2e-3, final=5e-4), new | dict(final=0.002)):
        rates = [learning_rate_schedule(step, **options) for step in range(options["total_steps"])]
        assert_equal(view.values, torch.tensor(rates, dtype=torch.float64))
        for name, value in new.items():
            view.controls[name].value = value
    view.picture.selected = (0, 29)
    assert view.text.startswith("Step 29 of 0 to 29: a learning rate of 2.00e-03, 20\u00a0% of the peak.")
    assert f"{100 * view.values.mean() / 0.01:.0f}\u00a0% of the peak." in view.text
    view.controls["total_steps"].value = 3  # takes warm-up and the step that is read along
    assert (view.controls["warmup_steps"].value, view.picture.shape, view.picture.selected) == (3, (1, 3), (0, 2))


# Head ablation


@pytest.mark.parametrize("pool", ["token", "mean"])
def test_heads_that_are_off_are_silenced(pool):
    model = small_model(pool=pool)
    before = parameters_of(model)
    view = explore.head_ablation(model, IMAGES, LABELS, about=ABOUT, count=7)
    with torch.no_grad():
        for off in ([], [(0, 1)], [(1, 1), (0, 0)], [(0, 0), (0, 1), (1, 0), (1, 1)]):
            view.picture.pressed = off
            answers = inside.silence_heads(model, off)(NORMALISED[:7]).argmax(dim=-1)
            assert_equal(view.values, (answers == LABELS[:7]).float())
    assert_equal(view.alone, inside.head_ablation(model, NORMALISED[:7], LABELS[:7]))
    assert "4 of 4 heads are off" in view.text
    assert "of 7 images" in view.text
    assert_equal(parameters_of(model), before, atol=0)


def test_the_menu_of_heads_and_the_clicks_keep_in_step():
    view = explore.head_ablation(small_model(), IMAGES, LABELS)
    menu = view.controls["heads"]
    every_head = [(0, 0), (0, 1), (1, 0), (1, 1)]
    for choice, off in {"layer 1 off": every_head[2:], "all off": every_head, "all on": []}.items():
        view.picture.pressed = [(1, 0)]
        assert menu.value == "as clicked"
        menu.value = choice
        assert view.picture.pressed == off
    assert view.text.startswith("No head is off")


# All of them

CHANGES = {
    "attention": [("layer", 0), ("head", 1), ("rollout", True), ("class_token", True)],
    "einops": [("operation", "repeat"), ("pattern", "c h w -> h w c"), ("pattern", "c h"), ("sizes", "x=3")],
    "head_ablation": [("heads", "all off")],
    "patches": [("patch_size", 12), ("order", "(p1 p2 c)")],
    "positions": [("class_token", True)],
    "schedule": [("peak", 1e-2), ("total_steps", 90), ("warmup_steps", 0), ("final", 0.5)],
}


@every_kind
def test_every_control_and_cell_changes_the_picture(kind):
    view = KINDS[kind]()
    assert {name for name, _ in CHANGES[kind]} | {"reduction"} >= set(view.controls)
    for name, value in CHANGES[kind]:
        before = view.picture.png, view.text
        old = view.controls[name].value
        view.controls[name].value = value
        assert view.picture.png != before[0], name
        view.controls[name].value = old
        assert (view.picture.png, view.text) == before, name
    before = view.picture.png
    cell, name = tuple(size - 1 for size in view.picture.shape), "selected"
    if kind == "head_ablation":
        cell, name = [cell], "pressed"
    setattr(view.picture, name, cell)
    assert view.picture.png != before


@every_kind
def test_the_stored_output_is_a_labelled_picture(kind):
    view = KINDS[kind]()
    with matplotlib.rc_context({"text.color": "red", "axes.titlesize": 20, "font.size": 6}):  # plotted before it
        assert KINDS[kind]().still() == view.still()
    bundle = view._repr_mimebundle_()
    assert set(bundle) == {"application/vnd.jupyter.widget-view+json", "image/png", "text/plain"}
    assert bundle["text/plain"].startswith(f"explore.{kind}: {view.text}\n")
    assert "JupyterLab" in bundle["text/plain"]
    assert all(control.description for control in view.controls.values())
    still, live = decoded(view.still()), decoded(view.picture.png)
    assert still.shape == live.shape
    assert still.shape[1] <= 8.5 * 110
    foot = round(still.shape[0] * 0.92)
    assert (still[:foot] == live[:foot]).all()  # the same but for the line below it
    assert (still[foot:] != live[foot:]).any()
    assert view.picture.label.startswith(f"{kind}. ")


@every_kind
def test_all_letters_fit_on_the_picture(kind):
    view = KINDS[kind]()
    renderer = view.figure.canvas.get_renderer()
    for text in view.figure.findobj(lambda artist: hasattr(artist, "get_fontsize") and artist.get_visible()):
        if text.get_text():
            box = text.get_window_extent(renderer)
            assert box.x1 <= view.figure.bbox.x1 + 1, text.get_text()
            assert text.get_fontsize() >= 9, text.get_text()


# Wrong input

attention = partial(explore.attention, small_model())
ablation = partial(explore.head_ablation, small_model())
WRONG = [
    (
        partial(explore.attention, "B/16", IMAGES[0]),
        "model must be a VisionTransformer, with the names of the course's modules; got str",
    ),
    (partial(attention, IMAGES[0, :, :, :8]), "image must have shape (c=3, h=8, w=12); got"),
    (partial(attention, IMAGES[0] * 3 - 1, about=ABOUT), "image must hold values in [0, 1], as"),
    (partial(attention, IMAGES[0], about=dict(mean=[0.5], std=[1])), "about must have one mean"),
    (partial(explore.patches, LETTERS[0].permute(1, 2, 0)), "image must have 1 or 3 channels in front"),
    (partial(explore.patches, LETTERS[0] * 255), "image must hold values in [0, 1]; got"),
    (partial(explore.patches, LETTERS[0] * torch.nan), "image must hold values in [0, 1]; got nan"),
    (partial(explore.patches, LETTERS[0], patch_size=17), "patch_size must be one of 3, 4, 6, 8, 12, 16, 24, 32,"),
    (partial(explore.patches, torch.zeros(3, 97, 101)), "image must have sides with a common patch size; got 97 x 101"),
    (partial(explore.einops, LETTERS[0], operation="pack"), "operation must be one of 'rearrange', 'reduce', 'repeat'"),
    (partial(explore.schedule, peak=1.0), "peak must lie in 1e-5 to 0.1; got 1.0"),
    (partial(explore.schedule, total_steps=10, warmup_steps=11), "warmup_steps must be at most total_steps=10; got 11"),
    (partial(explore.schedule, total_steps=10**6), "total_steps must be at most MOST_STEPS=2000"),
    (partial(ablation, IMAGES, LABELS + 1), "labels must lie in 0 .. 4"),
    (partial(ablation, IMAGES, LABELS, count=0), "count must be a whole number of at least 1"),
    (partial(setattr, GridPicture(), "selected", (0, -1)), "selected must lie in the grid of 1 x 1 cells"),
    (partial(setattr, GridPicture(), "pressed", [(0, 0), (0, 2)]), "pressed must lie in the grid of 1 x 1 cells"),
]


@pytest.mark.parametrize(("call", "says"), WRONG, ids=[says for _, says in WRONG])
@pytest.mark.usefixtures("as_readers_run_it")
def test_wrong_input_is_named(call, says):
    with pytest.raises(ValueError, match=f"^{re.escape(says)}"):
        call()
