"""What the sentences of lesson 4 say about its numbers."""

import torch.nn.functional as F


def test_the_class_token_is_small_and_normed_over_tokens_the_mean_of_the_others_with_the_opposite_sign(lesson):
    deviations = lesson.tokens.std(dim=-1)
    assert abs(deviations[:, 0].mean() - 0.02) < 0.002
    assert abs(deviations[:, 1:].mean() - 0.6) < 0.05
    letter, wrong = lesson.letter, lesson.normed["over tokens"]
    assert F.cosine_similarity(wrong[0, 0], -letter[0, 1:].mean(dim=0), dim=0) > 0.8
    ours, default = (F.layer_norm(letter[0, 0], (768,), eps=eps).norm() for eps in (1e-6, 1e-5))
    assert round(100 * (1 - default / ours).item(), 1) == 1.0  # percent


def test_the_letter_survives_dropout_on_the_branch_only(lesson):
    image, run_stream = lesson.image, lesson.run_stream
    kept, faded = (run_stream(image, on_branch)[-1] for on_branch in (True, False))
    assert (kept - image).std() < 0.15 < image.std()
    assert (faded > 100).sum() == 10 < 300 < (faded > 0.3).sum()  # those are 808 times as large as in the image


def test_gradients_along_the_stream(lesson):
    pre, post = lesson.along["pre-norm"], lesson.along["post-norm"]
    assert pre.min() > 0.9
    assert pre.max() < 2
    assert post[:8].max() < 0.25
