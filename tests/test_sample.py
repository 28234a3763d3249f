"""The images that come along: Fashion-MNIST's own first thousand, and what is said when the file is damaged."""

import dataclasses

import numpy as np
import pytest
import torch

from tools.write_sample import COUNT
from vit_course import datasets, inside
from vit_course.runs import load_trained


def test_the_sample_is_read_as_the_model_needs_it():
    model, about = load_trained("fashion_mnist")
    sample = inside.load_sample()
    assert sample.images.shape == (COUNT, 1, 28, 28)
    assert (sample.images.min(), sample.images.max(), len(sample.images.unique())) == (0, 1, 256)
    assert list(sample.class_names) == about["class_names"]
    assert (sample.mean.tolist(), sample.std.tolist()) == (
        torch.tensor(about["mean"]).tolist(),
        torch.tensor(about["std"]).tolist(),
    )
    normalized = sample.normalized()
    torch.testing.assert_close(normalized.images, (sample.images - about["mean"][0]) / about["std"][0])
    with torch.no_grad():
        right = (model(normalized.images).argmax(dim=-1) == sample.labels).float().mean()
    assert 0.90 < right < 0.93  # its accuracy on all 10,000 is 91.37 %


def test_the_sample_is_the_start_of_the_published_test_set(monkeypatch, tmp_path):
    published = dataclasses.replace(datasets.PUBLISHED["fashion_mnist"], urls=("offline://",))
    monkeypatch.setitem(datasets.PUBLISHED, "fashion_mnist", published)  # found on this machine, or not at all
    try:
        _, (images, labels), _ = datasets.fashion_mnist(tmp_path)
    except FileNotFoundError:
        pytest.skip("fashion_mnist is not on this machine: sudo apt install dataset-fashion-mnist")
    sample = inside.load_sample()
    assert torch.equal(sample.images, torch.from_numpy(images[:COUNT]))
    assert torch.equal(sample.labels, torch.from_numpy(labels[:COUNT]))


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (dict(images=np.zeros((10, 28, 28), np.uint8), labels=np.zeros(10, np.uint8)), r"\(10, 28, 28\)"),
        (dict(images=np.zeros((1000, 28, 28)), labels=np.zeros(1000, np.uint8)), "float64"),
        (dict(images=np.zeros((1000, 28, 28), np.uint8)), "labels"),
    ],
)
def test_a_sample_that_is_another_file_is_refused(monkeypatch, tmp_path, arrays, says):
    np.savez(tmp_path / "sample.npz", **arrays)
    monkeypatch.setattr(inside, "SAMPLE", tmp_path / "sample.npz")
    with pytest.raises(ValueError, match=f"sample.npz must hold the 1,000 images.*{says}.*git restore"):
        inside.load_sample()


def test_a_missing_or_cut_sample_is_refused(monkeypatch, tmp_path):
    cut = tmp_path / "cut.npz"
    cut.write_bytes(inside.SAMPLE.read_bytes()[:2000])
    for path in (cut, tmp_path / "nothing.npz"):
        monkeypatch.setattr(inside, "SAMPLE", path)
        with pytest.raises(ValueError, match=f"{path.name} must hold the 1,000 images"):
            inside.load_sample()
