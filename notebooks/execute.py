"""Run the notebooks anew, store their outputs, and leave nothing in them that depends on the machine.

    python notebooks/execute.py                        all of them
    python notebooks/execute.py notebooks/03_*.ipynb   some
    python notebooks/execute.py --check                change nothing; fail if a notebook is not normalised

Run twice it changes nothing. An output that differs from run to run (timings, training logs) stands in a cell tagged
``nbval-ignore-output``: it is kept as it is stored, until the cell's source changes or ``--refresh`` is given.
"""

import argparse
import hashlib
import os
import re
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
VARYING = "nbval-ignore-output"
TIMEOUT = 600  # seconds a cell may take


def fingerprint(source: str) -> str:
    """Short hash of a cell's source, stored beside an output that nbval does not compare."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def normalize(notebook: nbformat.NotebookNode, stored: nbformat.NotebookNode | None = None) -> None:
    """Number the code cells, tidy outputs and metadata; keep outputs of ``stored`` that vary by nature."""
    notebook.metadata = nbformat.from_dict(METADATA)
    kept = {
        (cell.id, cell.metadata.get("output_of")): cell.outputs
        for cell in (stored.cells if stored else [])
        if cell.cell_type == "code"
    }
    count = 0
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        cell.source = "\n".join(line.rstrip() for line in cell.source.rstrip().splitlines())
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        for output in cell.outputs:
            output.metadata = nbformat.from_dict({})
        cell.outputs = merge_streams(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
        if VARYING in tags:
            cell.metadata["output_of"] = fingerprint(cell.source)
            cell.outputs = kept.get((cell.id, cell.metadata["output_of"]), cell.outputs)


def merge_streams(outputs: list) -> list:
    """Join neighbouring pieces of one stream, and keep of a progress bar what is left on the screen."""
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


def execute(path: Path, *, refresh: bool) -> None:
    """Run one notebook in its folder and write it back."""
    stored = nbformat.read(path, as_version=4)
    notebook = nbformat.from_dict(stored)
    NotebookClient(notebook, timeout=TIMEOUT, resources={"metadata": {"path": str(HERE)}}).execute()
    normalize(notebook, None if refresh else stored)
    temporary = path.with_suffix(".tmp")
    nbformat.write(notebook, temporary)
    os.replace(temporary, path)


def unnormalized(path: Path) -> bool:
    """Whether normalising the notebook would change the file."""
    notebook = nbformat.read(path, as_version=4)
    normalize(notebook)
    return nbformat.writes(notebook) + "\n" != path.read_text(encoding="utf-8")


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, help="which; all by default")
    parser.add_argument("--refresh", action="store_true", help="also store anew what differs from run to run")
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a notebook is not normalised")
    options = parser.parse_args()
    paths = options.notebooks or sorted(HERE.glob("[0-9][0-9]_*.ipynb"))
    if options.check:
        bad = [path.name for path in paths if unnormalized(path)]
        print(
            f"not normalised: {', '.join(bad)}; run make notebooks" if bad else f"{len(paths)} notebooks are normalised"
        )
        return bool(bad)
    for path in paths:
        print(path.name, flush=True)
        execute(path, refresh=options.refresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
