"""Run the notebooks anew, store their outputs, and leave nothing in them that depends on the machine.

    python -m tools.execute_notebooks                        the lessons and the sources of the assignments
    python -m tools.execute_notebooks notebooks/03_*.ipynb   some
    python -m tools.execute_notebooks --check                run nothing; fail if a notebook is not normalized

Run twice it changes nothing.

An output that differs from run to run (timings, training logs) stands in a cell tagged ``nbval-ignore-output``: it is
kept as it is stored, until its code or code before it changes, or ``--refresh`` is given.
"""

import argparse
import base64
import copy
import hashlib
import io
import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from PIL import Image

from tools.lesson_figures import WIDTH, stills
from tools.site_links import ROOT, lessons
from vit_course.explore.figure import STORED

ASSIGNMENTS = ROOT / "notebooks" / "assignments"  # where the sources' hidden tests find the grader
SOURCES = sorted((ASSIGNMENTS / "source").glob("*/*.ipynb"))
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
KEPT = ("nbgrader", "tags")  # of a cell's metadata: what graders and the tests read
VARYING = "nbval-ignore-output"
# A widget lives as long as its kernel; what is stored is the picture next to it.
WIDGET = "application/vnd.jupyter.widget-view+json"
SHOWN = {"width": WIDTH}  # of a still picture, in pixels of the page
TIMEOUT = 600  # seconds a cell may take


def fingerprint(sources: list[str]) -> str:
    """Short hash of a cell's code and all code before it, stored beside an output that nbval does not compare."""
    return hashlib.sha256("\n\n".join(sources).encode()).hexdigest()[:16]


def normalize(notebook: nbformat.NotebookNode, stored: nbformat.NotebookNode | None = None) -> None:
    """Number the code cells, tidy outputs and metadata; keep outputs of ``stored`` that vary by nature."""
    notebook.metadata = nbformat.from_dict(METADATA)
    kept = {
        (cell.id, cell.metadata.get("output_of")): cell.outputs
        for cell in (stored.cells if stored else [])
        if cell.cell_type == "code"
    }
    sources = []
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({key: cell.metadata[key] for key in KEPT if cell.metadata.get(key)})
        cell.source = "\n".join(line.rstrip() for line in cell.source.rstrip().splitlines())
        if cell.cell_type != "code":
            continue
        sources.append(cell.source)
        cell.execution_count = len(sources)
        if VARYING in tags:
            cell.metadata["output_of"] = fingerprint(sources)
            cell.outputs = kept.get((cell.id, cell.metadata["output_of"]), cell.outputs)
        cell.outputs = merge_streams(cell.outputs)
        for output in cell.outputs:
            if output.output_type in ("display_data", "execute_result"):
                figure = output.metadata.get(STORED)
                output.metadata = nbformat.from_dict({STORED: figure, "image/png": SHOWN} if figure else {})
                output.data.pop(WIDGET, None)
                if "image/png" in output.data:
                    output.data["image/png"] = slim(output.data["image/png"])
            if output.output_type == "execute_result":
                output.execution_count = len(sources)


def merge_streams(outputs: list) -> list:
    """Join neighboring pieces of one stream, and keep of a progress bar what is left on the screen."""
    merged = []
    for output in outputs:
        if merged and output.output_type == "stream" == merged[-1].output_type and output.name == merged[-1].name:
            merged[-1].text += output.text
        else:
            merged.append(output)
    for output in merged:
        if "text" in output:
            output.text = re.sub(r"[^\n]*\r(?=[^\n])", "", output.text)
    return merged


def execute(path: Path, *, refresh: bool = False) -> nbformat.NotebookNode:
    """Run one notebook in its folder; return it as it is to be stored."""
    stored = nbformat.read(path, as_version=4)
    notebook = copy.deepcopy(stored)
    where = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(notebook, timeout=TIMEOUT, resources=where, extra_arguments=["--log-level=ERROR"])
    found = os.pathsep.join([str(ASSIGNMENTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    client.execute(env=os.environ | {"PYTHONPATH": found})
    add_stills(notebook)
    normalize(notebook, None if refresh else stored)
    return notebook


def add_stills(notebook: nbformat.NotebookNode) -> None:
    """Add to the outputs of explorers the pictures that GitHub and paper show."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    outputs = [output for output in outputs if STORED in output.get("metadata", {})]
    for output, still in zip(outputs, stills([output.metadata[STORED] for output in outputs]), strict=True):
        output.data["image/png"] = base64.b64encode(still).decode()


def slim(data: str) -> str:
    """Store a picture with 256 colors, chosen for it: a third of the size, and the eye sees no difference."""
    image = picture(data)
    if image.mode == "P":
        return data
    how = dict(method=Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    colors = image.convert("RGB").quantize(256, **how)
    buffer = io.BytesIO()
    colors.save(buffer, format="png", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()


def picture(data: str) -> Image.Image:
    """Decode a stored PNG file."""
    return Image.open(io.BytesIO(base64.b64decode(data)))


def unnormalized(path: Path) -> bool:
    """Whether normalizing the notebook would change the file."""
    notebook = nbformat.read(path, as_version=4)
    normalize(notebook)
    return nbformat.writes(notebook) + "\n" != path.read_text(encoding="utf-8")


def main() -> bool:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, help="which; all by default")
    parser.add_argument("--refresh", action="store_true", help="also store anew what differs from run to run")
    parser.add_argument("--check", action="store_true", help="run nothing, fail if a notebook is not normalized")
    options = parser.parse_args()
    paths = options.notebooks or lessons() + SOURCES
    if options.check:
        bad = [path.name for path in paths if unnormalized(path)]
        wrong = f"not normalized: {', '.join(bad)}; run make rebuild WHAT=notebooks"
        print(wrong if bad else f"{len(paths)} notebooks are normalized")
        return bool(bad)
    for path in paths:
        print(path.name, flush=True)
        nbformat.write(execute(path, refresh=options.refresh), path)
    return False


if __name__ == "__main__":
    sys.exit(main())
