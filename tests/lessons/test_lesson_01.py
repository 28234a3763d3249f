"""What the sentences of lesson 01 claim about its tensors and figures."""

import torch
from einops import rearrange


def test_the_reshaped_letter_is_almost_gray_and_shows_nine_small_letters(lesson):
    """Three next to each other per channel: each takes every third row, and three columns of it as one pixel."""
    letter, reshaped = lesson.letter, lesson.attempts["reshape(96, 96, 3)"]
    spread = (reshaped.amax(dim=-1) - reshaped.amin(dim=-1)).mean()
    assert spread < 0.2 * (letter.amax(dim=0) - letter.amin(dim=0)).mean()
    nine = rearrange(reshaped, "(c h) (three w) colors -> c three h (w colors)", c=3, three=3)
    assert torch.equal(nine, rearrange(letter, "c (h three) w -> c three h w", three=3))


def test_the_columns_of_both_words_and_the_naive_rows_hold_the_pixels_that_the_text_says(lesson):
    images, word, interleaved, naive = lesson.images, lesson.word, lesson.interleaved, lesson.naive
    assert word.shape == interleaved.shape == (3, 96, 576)
    assert torch.equal(interleaved[..., :6], images[..., 0].permute(1, 2, 0))
    assert torch.equal(word[..., :96], images[0])
    assert torch.equal(naive[0, 2], images[0, 0, 16:24].flatten())  # eight pixel rows of one channel
    assert torch.equal(naive[3, 35], images[3, 2, 88:].flatten())
