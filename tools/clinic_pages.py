"""Pages of the website for the bug clinic: the lesson is cut into an index and a notebook for each case."""

import json
import re

from tools.site_links import CLINIC, ROOT, case_page

WHERE = """\
This is one of the twelve cases of the [bug clinic](10_bug_clinic.ipynb). Each shows faulty code of a **Vision
Transformer** (ViT), a model that cuts an image into small squares, the patches, and represents each patch by a vector,
its **token**. Predict the result of a measurement for each possible cause of the symptom, measure, repair the code in
its own cell, and run the check again. There may be a second fault. **[How to work on a
case](10_bug_clinic.ipynb#How-to-work-on-a-case)** explains these steps and the messages of a check, and a table
explains [the terms](10_bug_clinic.ipynb#Terms-that-several-cases-use). To run the code, [install the
course](../docs/pages/install.md)."""


def clinic_pages() -> dict[str, str]:
    """Return the notebooks of the site, by their path: the lesson without its cases, and every case on its own."""
    notebook = json.loads((ROOT / CLINIC).read_text(encoding="utf-8"))
    parts: dict[int, list[dict]] = {0: []}
    titles, number = {}, 0
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and text.startswith("## "):
            heading = re.match(r"## 10\.(\d+) (.+)\n\n.+", text)  # with the line of links, in place of which is WHERE
            number = int(heading[1]) if heading else 0
            if heading:
                titles[number] = heading[2]
                title = f"# Bug clinic {number} – {heading[2]}\n\n{WHERE}"
                cell = cell | {"source": text.replace(heading[0], title, 1)}
        parts.setdefault(number, []).append(cell)
    rows = [f"{number}. [{title}](#10.{number}-)" for number, title in titles.items()]
    tree = ["```{toctree}", ":hidden:", "", *(f"/{case_page(number)}" for number in titles), "```"]
    list_of_cases = "\n".join(["## The cases", "", *rows, "", *tree])
    place = next(k for k, cell in enumerate(parts[0]) if "## Beyond the twelve cases" in "".join(cell["source"]))
    parts[0].insert(place, {"cell_type": "markdown", "id": "cases", "metadata": {}, "source": list_of_cases})
    pages = {case_page(number) if number else CLINIC: cells for number, cells in parts.items()}
    return {path: json.dumps(notebook | {"cells": cells}, ensure_ascii=False) for path, cells in pages.items()}
