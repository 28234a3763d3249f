"""The explorer as a visitor uses it: by mouse, touch and keys, and every number that it shows is PyTorch's."""

import copy
import gzip
import re
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from lessons.running import notebook
from PIL import Image
from playwright.sync_api import expect
from site_checks import DESKTOP, PHONE, WATCH_SHIFTS, problems_in_both_looks, too_wide, watch
from support import assert_equal
from test_engine import ABOUT, IMAGES, MODEL, SAMPLE, expected, random_checkpoint
from test_explore import press

from tools.site_links import ROOT
from vit_course.inside import silence_heads

RECORD = expected(MODEL, IMAGES[:1])


@pytest.fixture(scope="module")
def opened(explorer_page, new_page):
    """The explorer, opened from the disk once for all tests, and the list of what is amiss."""
    page = new_page()
    problems = watch(page, explorer_page.removesuffix("explorer.html"))
    page.goto(explorer_page + "#image=0")
    return page, problems


@pytest.fixture
def page(opened):
    """The explorer with the first image and nothing changed; at the end nothing was amiss."""
    page, problems = opened
    page.set_viewport_size(DESKTOP)
    page.get_by_role("radio", name="select").check()
    page.evaluate("explorer.set(explorer.read(''))")
    yield page
    found = [problem for problem in problems if "favicon.svg" not in problem and "ERR_FILE" not in problem]
    problems.clear()
    assert found == []


def numbers(text):
    """Return the numbers of a text, as the page writes them."""
    return [float(word.replace("−", "-")) for word in re.findall(r"(?<![\w√.])[−-]?\d+(?:\.\d+)?", text)]


def assert_bars(page, logits):
    """The bars show the probabilities that belong to these logits (1, classes)."""
    shown = [numbers(text)[-1] / 100 for text in page.locator("#bars .number").all_inner_texts()]
    assert_equal(torch.tensor(shown), logits.detach()[0].softmax(dim=-1), atol=6e-4)


def table(page):
    """Return the rows of the arithmetic: the name and the numbers."""
    cells = "rows => rows.map((row) => [...row.cells].map((cell) => cell.innerText))"
    rows = page.locator("#why tbody tr").evaluate_all(cells)
    return {name: numbers(" ".join(others)) for name, *others in rows}


def test_in_both_looks_it_fits_and_has_no_barriers(page):
    page.evaluate("explorer.set(explorer.read('layer=1&cell=layers.1.weights:0.0.30&step=6'))")
    assert problems_in_both_looks(page) == []


def test_what_changes_stays_in_sight_and_in_its_place(page):
    """The left column shows the picture again, and the switches do not drop when a line of text becomes longer."""
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(page.locator("#bars .best")).to_be_in_viewport(ratio=1)
    panel = page.locator("#image-panel")
    for button in ("#images button >> nth=23", "#shuffle", "#start-tour"):
        panel.evaluate("panel => { panel.scrollTop = 300 }")
        assert panel.evaluate("panel => panel.scrollTop") > 100
        page.locator(button).evaluate("button => button.click()")
        assert panel.evaluate("panel => panel.scrollTop") == 0
    page.locator("#tour-close").click()
    for size in (DESKTOP, PHONE):
        page.set_viewport_size(size)
        page.evaluate("explorer.set({ token: 0, off: [] })")
        assert page.locator(".switch").first.bounding_box()["height"] >= 24
        offset = "document.querySelector('#heads').offsetTop"
        before = page.evaluate(offset)
        page.evaluate("explorer.set({ token: 49, off: [...Array(12).keys()].map((i) => `${i >> 2}.${i % 4}`) })")
        assert page.evaluate(offset) == before


def test_images_that_the_model_gets_wrong_are_marked(page):
    labels, answers = SAMPLE.labels[:24], MODEL(IMAGES[:24]).argmax(dim=1)
    wrong = page.locator("#images .wrong").evaluate_all("all => all.map((image) => Number(image.dataset.image))")
    assert wrong == (labels != answers).nonzero().flatten().tolist()
    expect(page.locator("#images .wrong").first).to_have_attribute("title", re.compile("predicts T-shirt/top$"))


def test_an_attention_weight_is_laid_over_the_image_outlined_and_explained(page):
    """Query, key, their products, the score, the softmax, and weight times value: all as PyTorch computes them."""
    layer, head, i, j = 2, 1, 25, 17
    for name in ("Show layer 2, head 1", "Play through the layers"):
        page.get_by_role("radio", name="effect").check()
        page.get_by_role("button", name=name, exact=True).click()
        expect(page.get_by_role("radio", name="attention")).to_be_checked()
    page.locator("#play").click()  # stops
    page.evaluate("explorer.set({ layer: 2 })")
    press(page.locator('[data-part="weights"]'), (i, j), (50, 50))
    words = "layer 2, head 1, patch 24 (row 3, column 3) attends to patch 16 (row 2, column 2)"
    expect(page.locator("#why .place")).to_have_text(words)
    for part in ("keys", "values"):
        mark = page.locator(f'[data-part="{part}"] .row')
        assert mark.evaluate_all("marks => marks.map((mark) => mark.style.top)") == ["34%"]  # row 17 of 50
    other = page.locator("#picture .other").evaluate("mark => [mark.style.top, mark.style.left].map(parseFloat)")
    assert other == pytest.approx([200 / 7, 200 / 7], abs=0.01)
    record = {name.removeprefix(f"layers.{layer}."): tensor for name, tensor in RECORD.items()}
    query, key = record["queries"][head, i], record["keys"][head, j]
    score, weight = record["scores"][head, i, j], record["weights"][head, i, j]
    assert page.locator("#why .value output").inner_text() == f"{weight:.4f}"
    rows = enumerate(torch.stack([query, key, query * key], dim=1).tolist())
    assert table(page) == {str(feature): pytest.approx(row, abs=6e-4) for feature, row in rows}
    exponentials = ((record["scores"][head, i] - record["scores"][head, i].max()) / 4).exp()
    value = record["values"][head, j]
    weighted = weight * value[value.abs().argmax()]
    *steps, exponential, their_sum, shown, product, total = [
        numbers(line)[-1] for line in page.locator("#why li, #why .sum").all_inner_texts()
    ]
    wanted = torch.stack([score, score / 4, weighted, score]).tolist()
    assert [*steps, product, total] == pytest.approx(wanted, abs=6e-4)
    wanted = torch.stack([exponentials[j], exponentials.sum(), weight]).tolist()
    assert [exponential, their_sum, shown] == pytest.approx(wanted, abs=6e-5)


def test_a_long_sum_shows_its_largest_products_and_on_request_the_others(page):
    page.evaluate("explorer.set({ cell: 'layers.2.mlp_output:3.5' })")
    products = RECORD["layers.2.mlp_activated"][3] * MODEL.encoder.layers[2].mlp.linear_2.weight[5]
    largest = products.abs().argsort(descending=True)
    first = table(page)
    assert list(first)[:-1] == [str(i) for i in largest[:16].tolist()]
    assert first["112 smaller ones"] == pytest.approx([products[largest[16:]].sum().item()], abs=6e-4)
    page.get_by_role("button", name="112 smaller ones").click()
    assert list(table(page)) == [str(i) for i in largest.tolist()]


def test_every_kind_of_number_has_its_arithmetic(page):
    """The last number of the arithmetic is the number that is explained, and its line of code is in the course."""
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "vit_course").glob("*.py"))
    sources += "".join(cell.source for cell in notebook("05").cells)
    codes = {}
    for name, tensor in RECORD.items():
        part = name.split(".")[-1]
        if name.startswith(("layers.0", "layers.3")) or name in ("image", "patch_tokens"):
            continue
        index = tuple(size * 2 // 3 for size in tensor.shape)
        page.evaluate("cell => explorer.set({ cell })", f"{name}:{'.'.join(map(str, index))}")
        digits = 4 if part in ("weights", "probabilities") else 3
        wanted = tensor[index].item()
        shown = numbers(page.locator("#why .value output").inner_text())
        assert shown == pytest.approx([wanted], abs=0.6 * 10**-digits)
        text = page.locator("#why .sum, #why li").all_inner_texts()
        if part not in ("positions", "merged", "pooled", "weights"):
            found = numbers(text[-1])
            if part.startswith("ln"):
                found = [found[0] * found[1] + found[2]]
            assert found[-1] == pytest.approx(wanted, abs=2 * 10**-digits), (name, text)
        codes[part] = page.locator("#why code").inner_text()
        assert codes[part] in sources, name
    assert len(codes) == 23
    assert "self.projection(" in codes["tokens"]
    assert "/ self.std" in codes["patches"]
    page.evaluate("explorer.set({ token: 0, cell: 'tokens:0.0' })")  # the class token, which has no pixels
    expect(page.locator("#why code")).to_contain_text("torch.cat")
    expect(page.locator("#zoom figcaption")).to_be_hidden()


def test_a_head_that_is_switched_off_changes_the_bars_to_pytorch_s(page):
    page.locator('#images button[data-image="4"]').click()
    assert_bars(page, MODEL(IMAGES[4:5]))
    for layer, head in [(0, 1), (2, 3)]:
        page.get_by_role("switch", name=f"Layer {layer}, head {head} is on").press("Space")
    assert_bars(page, silence_heads(MODEL, [(0, 1), (2, 3)])(IMAGES[4:5]))
    expect(page.locator("#before-words")).to_have_text("The marks show the unchanged model: T-shirt/top, 52.2%.")
    page.locator("#reset").click()
    assert_bars(page, MODEL(IMAGES[4:5]))


def test_positions_and_the_order_of_patches(page):
    """Without positions, a shuffle changes no probability; with them, it does."""
    page.locator("#shuffle").click()
    order = page.evaluate("explorer.order()")
    assert sorted(order) == list(range(49))
    patches = IMAGES[:1].unfold(2, 4, 4).unfold(3, 4, 4).reshape(49, 4, 4)[order].reshape(7, 7, 4, 4)
    shuffled = patches.permute(0, 2, 1, 3).reshape(1, 1, 28, 28)
    assert_bars(page, MODEL(shuffled))
    page.get_by_role("switch", name="position embeddings").uncheck()
    without = copy.deepcopy(MODEL)
    torch.nn.init.zeros_(without.embedding.pos_embedding)
    assert_bars(page, without(shuffled))
    assert_bars(page, without(IMAGES[:1]))
    expect(page.locator("#before-words")).to_contain_text("the order of the patches makes no difference")
    for _ in range(2):
        page.locator("#shuffle").click()
    assert page.evaluate("explorer.order()") != order


@torch.no_grad()
def test_patches_that_are_left_out_and_their_effects(page):
    """As lesson 9 does it: the other tokens go on without them."""
    tokens = MODEL.embedding(IMAGES[:1])

    def logits_without(*patches):
        keep = [token for token in range(50) if token - 1 not in patches]
        return MODEL.head(MODEL.encoder(tokens[:, keep])[:, 0])

    before = MODEL(IMAGES[:1])[0, 9]
    falls = torch.stack([before - logits_without(patch)[0, 9] for patch in range(49)])
    row, column = divmod(falls.argmax().item(), 7)
    patch_name = f"patch {falls.argmax()} (row {row}, column {column})"
    page.get_by_role("radio", name="effect").check()
    for image in (1, 0):  # while the effects are measured
        page.evaluate("image => new Promise(setTimeout).then(() => explorer.set({ image }))", image)
    expect(page.locator("#overlay-words")).to_contain_text(f"without {patch_name}")
    assert f"{before:.2f}" == "4.16"  # the last step of the tour says both
    assert falls.max() < 0.06
    assert_equal(torch.tensor(page.evaluate("explorer.falls")), falls, atol=1e-4)
    picture = page.locator("#picture")

    def told(patch):
        press(picture, divmod(patch, 7), (7, 7), how="hover")
        return page.locator(".vit-tip").inner_text()

    assert f"falls by {falls.max():.3f}" in told(falls.argmax().item())
    assert f"rises by {-falls.min():.3f}" in told(falls.argmin().item())
    opacity = "at => document.querySelector('.overlay').getContext('2d').getImageData(...at, 1, 1).data[3]"
    fixed = 210 * (falls.max().item() / 2) ** 0.5  # the same scale for all images
    assert page.evaluate(opacity, [column, row]) == pytest.approx(fixed, abs=1)
    for without in ([19], [19, 38]):  # the strongest patch of each time
        page.get_by_role("button", name="Leave out the strongest patch").click()
        assert page.evaluate("explorer.state.without") == without
    assert_bars(page, logits_without(19, 38))
    page.locator("#reset").click()
    page.get_by_role("radio", name="leave out").check()
    expect(page.locator("#without-words")).to_be_visible()
    for patch in [(2, 5), (3, 4)]:
        press(picture, patch, (7, 7))
    assert told(2 * 7 + 5).endswith("left out")
    assert_bars(page, logits_without(2 * 7 + 5, 3 * 7 + 4))


def current_picture(page):
    """Return the picture that the model reads, normalized."""
    pixels = torch.tensor(page.evaluate("[...explorer.picture.data]")).reshape(1, 1, 28, 28)
    return (pixels - ABOUT["mean"][0]) / ABOUT["std"][0]


def test_a_drawing_is_classified_as_it_grows(page):
    page.get_by_role("radio", name="draw").check()
    page.evaluate("explorer.set({ without: [3] })")
    page.locator("#clear").click()
    page.wait_for_function("explorer.state.image === null && !explorer.changed()")
    expect(page.locator("#label")).to_have_text("Your drawing has no label.")
    box = page.locator("#picture .vit-cells").bounding_box()
    page.mouse.move(box["x"] + 60, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 200, steps=12)
    page.mouse.up()
    page.wait_for_function("explorer.picture.data.some((value) => value > 0.8)")
    page.evaluate("new Promise(requestAnimationFrame)")
    assert_bars(page, MODEL(current_picture(page)))
    picture = page.locator("#picture .vit-cells")  # and by keys
    drawn = page.evaluate("explorer.picture.data.filter((value) => value > 0.5).length")
    picture.focus()
    for key in ("Home", "ArrowDown", "Enter"):
        picture.press(key)
    page.wait_for_function(f"explorer.picture.data.filter((value) => value > 0.5).length > {drawn}")
    drawing = current_picture(page)  # comes back after the tour
    page.locator("#start-tour").click()
    page.locator("#tour-next").click()
    expect(page.locator("#label")).to_contain_text("Test image 0.")
    page.locator("#tour-close").click()
    expect(page.locator("#label")).to_have_text("Your drawing has no label.")
    assert current_picture(page).equal(drawing)
    assert_bars(page, MODEL(drawing))


def test_a_photo_is_cut_reduced_and_inverted(page, tmp_path):
    """As lesson 7.9: the square in the middle, averaged over areas, the light background dark."""
    pixels = np.full((112, 192, 3), 255, np.uint8)
    pixels[20:90, 70:120] = [30, 60, 90]
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    page.locator("#file").set_input_files(tmp_path / "photo.png")
    expect(page.locator("#label")).to_contain_text("inverted because the background is light")
    wanted = 1 - torch.tensor(pixels[:, 40:152]).float().mean(dim=-1) / 255
    wanted = torch.nn.functional.interpolate(wanted[None, None], size=(28, 28), mode="area")
    wanted = (wanted - ABOUT["mean"][0]) / ABOUT["std"][0]
    assert_equal(current_picture(page), wanted, atol=0.02)
    (tmp_path / "broken.png").write_bytes(b"no picture")
    page.locator("#file").set_input_files(tmp_path / "broken.png")
    expect(page.locator("#problem")).to_have_text("broken.png is not a picture that this browser can read.")


def test_another_checkpoint_takes_the_model_s_place(page, tmp_path):
    sizes = dict(image_size=[8, 8], patch_size=2, in_channels=1, num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=12)
    model, packed = random_checkpoint(sizes | dict(num_classes=3, pool="token"), mean=[0.3], std=[0.4])
    (tmp_path / "weights.safetensors").write_bytes(packed)
    page.locator("#file").set_input_files(tmp_path / "weights.safetensors")
    expect(page.locator("#bars li")).to_have_count(3)
    expect(page.locator("#heads button")).to_have_count(4)
    pixels = torch.tensor(page.evaluate("[...explorer.picture.data]")).reshape(1, 1, 8, 8)
    assert_bars(page, model((pixels - 0.3) / 0.4))
    press(page.locator('[data-part="embedding"]'), (3, 5), (17, 8))
    expect(page.locator("#why .place")).to_have_text("patch 2 (row 0, column 2), feature 5")
    page.locator("#zoom .vit-cells").click(position={"x": 40, "y": 40})  # the last of 2 x 2 pixels, 24 px each
    expect(page.locator("#why .place")).to_have_text("patch 2, value 3")
    (tmp_path / "cut.safetensors").write_bytes(packed[:-4])
    page.locator("#file").set_input_files(tmp_path / "cut.safetensors")
    refused = "This is not a checkpoint that the course's training command saved. (it is cut short)"
    expect(page.locator("#problem")).to_have_text(refused)
    page.reload()  # with the shipped model


def test_by_keys_alone_and_in_words(page):
    """Arrow keys say each number, Enter explains it, its parts lead on, and Back leads back."""
    queries = page.locator('[data-part="queries"] .vit-cells')
    queries.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        queries.press(key)
    value = RECORD["layers.0.queries"][0]  # of head 0
    status = page.locator("#status")
    where = re.search(r"patch (\d+) .*feature (\d+)", status.inner_text())
    row, column = int(where[1]) + 1, int(where[2])
    assert numbers(status.inner_text())[-1] == pytest.approx(value[row, column].item(), abs=6e-4)
    queries.press("Enter")
    expect(status).to_contain_text("Query, layer 0, head 0, patch")
    page.locator("#why tbody button").first.press("Enter")
    expect(page.locator("#why .value b")).to_have_text("LayerNorm before attention")
    page.go_back()
    expect(page.locator("#why .value b")).to_have_text("Query")


def test_the_address_holds_the_state(page, explorer_page):
    def shown():
        return page.evaluate("explorer.state"), page.locator("#bars").inner_text()

    changes = dict(image=5, token=12, layer=2, head=3, off=["1.0"], shuffle=7, positions=False)
    page.evaluate("changes => explorer.set(changes)", changes)
    page.wait_for_function("location.hash.endsWith('positions=false')")
    before = shown()
    page.reload()
    assert shown() == before
    page.locator(".skip").press("Enter")  # a link to a place on the page leaves the state alone
    assert shown() == before
    page.goto(
        explorer_page + "#image=99&token=-1&layer=x&off=9.9,0.1.2&without=77,1.5&cell=logits:0.99&overlay=no&step=99"
    )
    page.reload()
    assert_bars(page, MODEL(IMAGES[:1]))
    expect(page.locator("#why-empty")).to_be_visible()


def test_on_a_phone_by_touch(explorer_page, new_page):
    page = new_page(viewport=PHONE, has_touch=True)
    page.goto(explorer_page + "#image=0")
    page.locator('[data-part="scores"] .vit-cells').tap(position={"x": 100, "y": 60})
    expect(page.locator("#why .value b")).to_have_text("Score")
    expect(page.locator("#why")).to_be_in_viewport()
    page.locator("#start-tour").tap()
    expect(page.locator("#why-empty")).to_be_hidden()  # next to the tour
    page.locator("#tour-close").tap()
    expect(page.locator("#why-empty")).to_be_hidden()  # the sheet is closed
    page.locator("#sheet").tap()
    expect(page.locator("#why-empty")).to_be_visible()
    page.locator("#sheet").tap()
    expect(page.locator("#why")).to_be_hidden()
    page.locator(".switch input").first.tap()  # a change leaves it closed
    expect(page.locator("#reset")).to_be_enabled()
    expect(page.locator("#why")).to_be_hidden()
    page.locator("#bars button").first.tap()
    expect(page.locator("#why .value b")).to_have_text("Probability")
    expect(page.locator("#why")).to_be_in_viewport()
    uncovered = """part => document.querySelector(`[data-part=${part}] .pin`).getBoundingClientRect().bottom
        < document.querySelector("aside").getBoundingClientRect().top"""  # the sheet does not hide what it explains
    cells = page.locator('[data-part="tokens"] .vit-cells')
    cells.evaluate("map => scrollBy(0, map.getBoundingClientRect().top - 500)")
    cells.tap(position={"x": 100, "y": 150})
    assert page.evaluate(uncovered, "tokens")
    page.evaluate("explorer.goToStep(4)")
    page.locator("#tour-next").tap()
    assert page.evaluate(uncovered, "scores")


def test_only_what_has_changed_is_computed_and_drawn(page):
    """On a slow phone, a click on a layer or a patch takes a frame."""
    work = """choices => {
        let drawn = 0;
        const { prototype } = CanvasRenderingContext2D;
        const { putImageData } = prototype;
        prototype.putImageData = function (...all) { drawn++; putImageData.apply(this, all); };
        const before = explorer.version;
        explorer.set(choices);
        Object.assign(prototype, { putImageData });
        return [explorer.version - before, drawn];
    }"""
    page.evaluate("explorer.set({ token: 3 })")
    assert page.evaluate(work, {"layer": 1}) == [0, 15 + 1]  # the maps of a layer, and the overlay
    assert page.evaluate(work, {"token": 4}) == [0, 16 + 1 + 1]  # the heads, the overlay, and the patch
    assert page.evaluate(work, {"token": 4, "off": [], "without": []}) == [0, 0]


def test_the_tour_of_a_first_visit_is_true_and_at_the_second_nothing_jumps(home, site, new_page):
    """What the steps do leads to what their words say; of layout shifts a sum below 0.1 is called good.

    It stands at the end because it needs the whole website, which another process may still be building.
    """
    page = new_page()
    problems = watch(page, home)
    page.add_init_script(WATCH_SHIFTS)
    page.goto(home + "explorer.html")
    answer, tour = page.locator("#answer"), page.locator("#tour")
    expect(answer).to_have_text("Ankle boot 90.9%")
    expect(tour).to_be_visible()
    words = []
    while tour.is_visible():
        words.append(page.locator("#tour-words").inner_text())
        expect(page.locator("#tour-title")).to_have_text(re.compile(rf"^{len(words)} of 12: \w+"))
        expect(page.locator(".toured")).to_have_count(1)
        expect(page.locator(".toured")).to_be_in_viewport()
        problems += too_wide(page)
        if len(words) == 6:
            weights = RECORD["layers.1.weights"][0, 0]
            assert weights.argmax() == 30
            assert f"patch 29 the weight {weights[30]:.4f}" in words[-1]
        if len(words) == 10:
            assert_bars(page, silence_heads(MODEL, [(0, 1)])(IMAGES[4:5]))
        if len(words) == 11:
            effect = "most (by 2.65) without patch 3 (row 0, column 3)"
            expect(page.locator("#overlay-words")).to_contain_text(effect)
            assert re.search(r"Patch 3, .* falls by 2\.65", words[-1])
        page.locator("#tour-next").click()
    assert len(words) == 12
    assert "“Shirt”, with 79." in words[9]
    assert "“Shirt”, with 91." in words[11]
    expect(page).not_to_have_url(re.compile("step="))  # the address is written after the page is drawn
    page.reload()
    expect(answer).to_have_text("T-shirt/top 52.2%")  # the image of the last step, unchanged
    expect(tour).to_be_hidden()
    for number in range(1, 4):
        page.locator(f'#images button[data-image="{number}"]').click()
        page.evaluate("explorer.set({ layer: 2, cell: 'layers.2.scores:0.3.4' })")
    page.evaluate("new Promise((done) => setTimeout(done, 300))")
    assert page.evaluate("window.shift") < 0.1
    assert problems == []
    for address in page.evaluate("Object.values(explorer.LESSONS)"):
        file, anchor = unquote(address).split("#")
        assert f'id="{anchor}"' in (site / "notebooks" / file).read_text(encoding="utf-8"), address
    shared = [site / "figures" / name for name in ("drawing.js", "drawing.css")]
    parts = {site / "explorer.html", *(site / "explorer").iterdir(), *shared, site / "_static" / "favicon.svg"}
    assert sum(len(gzip.compress(path.read_bytes())) for path in parts) <= 600_000
