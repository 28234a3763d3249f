"""How long a visitor of the explorer waits, by the browser's own clock: the first picture, a click, another image.

Call it as ``python -m tools.benchmarks.explorer``; it needs Chromium.
"""

import os
import statistics
import tempfile
from pathlib import Path

from tools.explorer_page import write_explorer
from tools.lesson_figures import chromium

CHOICES = {
    "another layer, head and token": "(i) => explorer.set({ layer: i % 4, head: (i + 1) % 4, token: i })",
    "another number": "(i) => explorer.set({ cell: `layers.${i % 4}.weights:0.${i}.3` })",
    "another image": "(i) => explorer.set({ image: i })",
    "a head switched off": "(i) => explorer.set({ off: [`${i % 4}.${(i >> 2) % 4}`] })",
}
MEASURE = """async () => {
    const times = [];
    for (let i = 1; i <= 32; i++) {
        await new Promise(requestAnimationFrame);
        const began = performance.now();
        (CHOICE)(i);
        document.body.offsetHeight;
        times.push(performance.now() - began);
    }
    return times.slice(2);
}"""


def main() -> None:
    """Print the times, at full speed and with the processor slowed four times."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        write_explorer(Path(folder))
        address = Path(folder, "explorer.html").as_uri()
        print(f"load of the machine: {os.getloadavg()[0]:.1f}")
        for slower in (1, 4):
            page = browser.new_page()
            page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
            page.goto(f"{address}#layer=1")
            page.wait_for_selector("body:not(.loading)")
            first = page.evaluate("performance.getEntriesByName('first picture')[0].duration")
            print(f"processor slowed {slower} times: first picture after {first:.0f} ms")
            for name, choice in CHOICES.items():
                times = page.evaluate(MEASURE.replace("CHOICE", choice))
                tenth = statistics.quantiles(times, n=10)[-1]
                print(f"  {name}: {statistics.median(times):.1f} ms, 9 of 10 within {tenth:.1f} ms")


if __name__ == "__main__":
    main()
