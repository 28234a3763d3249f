"""Build the course's website: stage the sources, run Sphinx, write the copies for Google Colab.

    python docs/build.py                 into docs/_build/html; any warning fails
    python docs/build.py --into FOLDER   into FOLDER/html

With ``GITHUB_REPOSITORY=owner/name`` in the environment, as GitHub Actions sets it, the pages also have what needs the
repository's address: buttons for Binder and Colab, links to files, edit and issue links.
"""

import argparse
import sys
from pathlib import Path

import colab
import stage
from repository import published
from sphinx.cmd.build import main as sphinx

HERE = Path(__file__).resolve().parent


def render(source: Path, folder: Path) -> int:
    """Run Sphinx on staged sources, into ``folder/html``; return 0 unless there was a warning or an error."""
    flags = ["-W", "--keep-going", "-j", "auto", "-q", "-c", str(HERE), "-d", str(folder / "doctrees")]
    return sphinx([*flags, str(source), str(folder / "html")])


def main() -> int:
    """Read the command line, and build."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=HERE / "_build", help="folder to build in")
    folder = parser.parse_args().into.resolve()
    repository = published()
    stage.Staging(folder / "source", repository).all()
    code = render(folder / "source", folder)
    colab.write_copies(folder / "html", repository)
    print(f"the site was {'not built without warnings' if code else 'built'}: {folder / 'html' / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
