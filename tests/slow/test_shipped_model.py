"""The shipped model, on all test images of Fashion-MNIST: what its card says of it is true."""

import pytest
import torch

from tools.write_run_pages import SHIPPED, read
from vit_course.data import load_dataset
from vit_course.weights import load_trained

(RESULT,) = [run["result"] for run in read("fashion_mnist") if run["name"] == SHIPPED]


def test_the_shipped_model_gives_the_recorded_accuracy_on_the_real_test_images():
    try:
        train_set, test_set = load_dataset("fashion_mnist")
    except FileNotFoundError:
        pytest.skip("Fashion-MNIST is not on this machine, and there is no network")
    model, about = load_trained("fashion_mnist")
    torch.testing.assert_close(train_set.mean, torch.tensor(about["mean"]))
    torch.testing.assert_close(train_set.std, torch.tensor(about["std"]))
    with torch.no_grad():
        logits = torch.cat([model(images) for images in test_set.normalized().images.split(500)])
    wrong = logits.argmax(dim=-1) != test_set.labels
    accuracy = 1 - wrong.float().mean().item()
    assert abs(accuracy - RESULT["test_accuracy"]) <= 0.0002  # two images: another processor rounds otherwise
    loss = torch.nn.functional.cross_entropy(logits, test_set.labels).item()
    assert abs(loss - RESULT["test_loss"]) < 1e-4
    tops = torch.tensor([about["class_names"].index(name) for name in ("T-shirt/top", "Shirt", "Pullover", "Coat")])
    confused = wrong & torch.isin(logits.argmax(dim=-1), tops) & torch.isin(test_set.labels, tops)
    assert 0.6 < confused.sum() / wrong.sum() < 0.7  # "two thirds", says the card
