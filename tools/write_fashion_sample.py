"""Write ``resources/fashion_mnist_sample.npz``: the first 1,000 test images of Fashion-MNIST, with labels.

    python -m tools.write_fashion_sample

They come along so that lesson 7 and the explorers have real images without a network. Fashion-MNIST is by Zalando
Research (Xiao, Rasul and Vollgraf, 2017), MIT license. None of these images was trained on.
"""

from pathlib import Path

import numpy as np

from vit_course.data import load_dataset

COUNT = 1000
PATH = Path(__file__).resolve().parents[1] / "resources" / "fashion_mnist_sample.npz"


def sample() -> dict[str, np.ndarray]:
    """Return ``images`` ``(1000, 28, 28)`` and ``labels`` ``(1000,)``, both whole numbers of 8 bits."""
    _, test_set = load_dataset("fashion_mnist")
    images = (test_set.images[:COUNT, 0] * 255).round().byte().numpy()
    return dict(images=images, labels=test_set.labels[:COUNT].byte().numpy())


if __name__ == "__main__":
    np.savez_compressed(PATH, **sample())
