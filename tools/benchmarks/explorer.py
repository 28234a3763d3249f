"""How long a visitor of the explorer waits: the first picture, the picture after a click, a new image, and its weight.

    python -m tools.benchmarks.explorer

Measured in Chromium with its own clock, at full speed and with the processor slowed four times, as a phone might be.
"""

import gzip
import os
import shutil
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tools.explorer_page import write_explorer

CLICKS = {
    "another layer and head": "(i) => explorer.set({ layer: i % 4, head: (i + 1) % 4, token: i })",
    "another number": "(i) => explorer.set({ cell: `layers.${i % 4}.weights:0.${i}.3` })",
    "another image": "(i) => explorer.set({ image: i })",
    "a head switched off": "(i) => explorer.set({ off: [`${i % 4}.${(i >> 2) % 4}`] })",
}
MEASURE = """async () => {
    const times = [];
    for (let i = 1; i <= 12; i++) {
        await new Promise(requestAnimationFrame);
        const began = performance.now();
        (CHOOSE)(i);
        document.body.offsetHeight;
        times.push(performance.now() - began);
    }
    return times.slice(2);
}"""


def main() -> None:
    """Print all of it."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    options = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        write_explorer(Path(folder))
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        print(f"compressed: {sum(len(gzip.compress(path.read_bytes())) for path in files) / 1000:.0f} kB")
        print(f"load of the machine: {os.getloadavg()[0]:.1f}")
        browser = playwright.chromium.launch(executable_path=program, args=options)
        for slower in (1, 4):
            page = browser.new_page()
            session = page.context.new_cdp_session(page)
            session.send("Emulation.setCPUThrottlingRate", {"rate": slower})
            page.goto(Path(folder, "explorer.html").as_uri() + "#layer=1")
            first = page.evaluate("performance.getEntriesByName('first picture')[0].duration")
            print(f"processor slowed {slower} times: first picture {first:.0f} ms")
            for name, choose in CLICKS.items():
                times = page.evaluate(MEASURE.replace("CHOOSE", choose))
                print(f"  {name}: {statistics.median(times):.0f} ms, at most {max(times):.0f}")
        browser.close()


if __name__ == "__main__":
    main()
