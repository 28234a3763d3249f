"""Where the files that come with the course are: test images, a sample of Fashion-MNIST, and a trained model."""

from pathlib import Path


def resource(name: str) -> Path:
    """Return the path of a file of ``resources/``: inside an installed package, and next to the package in a clone."""
    package = Path(__file__).resolve().parent
    installed = package / "resources" / name
    return installed if installed.exists() else package.parent / "resources" / name
