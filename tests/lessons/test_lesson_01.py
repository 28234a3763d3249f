"""What the sentences of lesson 01 claim about its tensors and figures."""

import contextlib
import io

import torch


def test_the_reshaped_letter_is_almost_gray_and_its_rows_are_rows_of_one_channel(lesson_01):
    letter, reshaped = lesson_01["letter"], lesson_01["attempts"]["reshape(96, 96, 3)"]
    assert torch.equal(reshaped[5].flatten(), letter[0, 15:18].flatten())
    spread = (reshaped.amax(dim=-1) - reshaped.amin(dim=-1)).mean()
    assert spread < 0.2 * (letter.amax(dim=0) - letter.amin(dim=0)).mean()


def test_the_reshaped_letter_shows_nine_small_letters(lesson_01):
    """Three next to each other per channel: each takes every third row, and three columns of it as one pixel."""
    letter, reshaped = lesson_01["letter"], lesson_01["attempts"]["reshape(96, 96, 3)"]
    nine = lesson_01["rearrange"](reshaped, "(c h) (three w) colors -> c three h w colors", c=3, three=3)
    for c in range(3):
        for start in range(3):
            assert torch.equal(nine[c, start].flatten(), letter[c, start::3].flatten())


def test_the_columns_of_both_words_are_where_the_text_says(lesson_01):
    images, word, interleaved = (lesson_01[name] for name in ("images", "word", "interleaved"))
    assert word.shape == interleaved.shape == (3, 96, 576)
    assert torch.equal(interleaved[..., 1], images[1, ..., 0])
    assert torch.equal(interleaved[..., :6], images[..., 0].permute(1, 2, 0))
    assert torch.equal(word[..., :96], images[0])


def test_naive_rows_are_eight_pixel_rows_of_one_channel_and_never_a_patch(lesson_01):
    images, naive, equal = (lesson_01[name] for name in ("images", "naive", "equal"))
    assert torch.equal(naive[0, 2], images[0, 0, 16:24].flatten())
    assert torch.equal(naive[3, 35], images[3, 2, 88:].flatten())
    assert equal.shape == (6, 36, 36)
    assert not equal.any()


def test_only_the_first_two_of_the_four_mistakes_raise_an_error(lesson_01):
    calls = [
        ("b c (gh p1) (gw p2) -> b (gh gw) (c p1 p2)", dict(p1=16)),
        ("b c (gh p) (gw p) -> b (gh gw) (c p p)", dict(p=16)),
        ("b c (p1 gh) (p2 gw) -> b (gh gw) (c p1 p2)", dict(p1=16, p2=16)),
        ("b c (gh p1) (gw p2) -> b (gw gh) (c p1 p2)", dict(p1=16, p2=16)),
    ]
    printed = []
    for pattern, sizes in calls:
        with contextlib.redirect_stdout(io.StringIO()) as text:
            lesson_01["show_error"](lesson_01["images"], pattern, **sizes)
        printed.append(text.getvalue().strip())
    assert [text == "no error" for text in printed] == [False, False, True, True]


def test_only_the_linear_layer_has_parameters(lesson_01):
    model = lesson_01["model"]
    assert sum(parameter.numel() for parameter in model.parameters()) == 768 * 8 + 8 == 6152
    assert list(model[0].parameters()) == list(model[2].parameters()) == []
