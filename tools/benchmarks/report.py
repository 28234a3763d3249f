"""Write the page of results, benchmarks/README.md, from the logs in benchmarks/results: no number is typed by hand.

    python -m tools.benchmarks.report

Each script of this folder writes the log of its own name with :func:`save`; ``machine`` is what
``machine.describe()`` returns.

throughput.json
    versions, missing  {library: version} of those that ran, {library: why it could not be imported}
    models             [{case, name, parameters, difference, memory: {mode: bytes}}]
    cases              [{case, mode, batch, flops, seconds: {name: [one a round]}, first_compiled_step, not_compiled}]
profile_step.json
    rows               [{case, mode, name, groups: {group of operators: seconds a step}}]
mixed_precision.json
    cases, without     [{case, batch, seconds: {precision: [one a round]}}], with and without the processor's
                       instructions for bfloat16
    epochs, digits     the epochs of lesson 06's recipe, {precision: [validation accuracy, one a seed]}
time_to_accuracy.json
    rows               [{recipe, source, parameters, budget, seconds, accuracy}], one a recipe and budget; ours first
    notes              [Markdown], one a paragraph

checks.json
    pairs, seconds     most pairs of mistakes per check, {check: {kind of code: the longest time of the check}}

``budget`` and ``seconds`` are seconds of training, ``accuracy`` the share of test images, 0 to 1, ``source`` a link.
"""

import json
import math
import re
import statistics
from pathlib import Path

from tools.benchmarks.cases import CASES
from tools.benchmarks.peers import COMPILED, OURS, SHORT

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
PAGE = FOLDER / "README.md"
THROUGHPUT = FOLDER / "results" / "throughput.json"
PROFILE = FOLDER / "results" / "profile_step.json"
PRECISION = FOLDER / "results" / "mixed_precision.json"
TIME_TO_ACCURACY = FOLDER / "results" / "time_to_accuracy.json"
CHECKS = FOLDER / "results" / "checks.json"

HEAD = """# Benchmarks

All measurements were made on processors with two cores.

- **Speed.** The course's Vision Transformer trains and predicts about as fast as the fastest published implementation
  that we measured: for two sizes of model, its speed is {plain} times that of the fastest. If the
  head reads only the class token, the training command also skips what this token does not need in the last block. The
  model is then {short_training} times as fast as the fastest published implementation in training, and
  {short_inference} times in inference; the other libraries could save the same work. With `torch.compile`, the whole
  model is {compiled_training} times as fast in training and {compiled_inference} times in inference,
  but the first step takes {first_least:.0f} to {first_most:.0f} s.
- **bfloat16** sped up training only for the larger of the two models, and only with the processor's instructions for
  it.
- **Time to accuracy.** On Fashion-MNIST, the course's preset *quick*, shortened to {seconds:g} s of training, reaches a
  test accuracy of {accuracy:.1%}. The best of three published recipes reaches {their_accuracy:.1%} after
  {their_seconds:g} s; it was made for MNIST, and the other two for much longer runs.
- **Checks.** When a lesson checks a reader's code, this takes at most {check:.1f} s of processor time.

The sections were not all measured on the same [machine](#machines), and other programs were running, so compare times
only within a table, and in the table of bfloat16 only within a row.
"""
MEMORY = (
    "- *Memory* is the peak resident memory of a new process during two steps, minus the memory that it used before "
    "the model was built. In training, it includes the weights, the stored activations, the gradients and the "
    "optimizer's state."
)
NO_MEMORY = "- *Memory* was not measured, because this requires Linux's `/proc`."


def save(log: dict, path: Path) -> None:
    """Write a log as JSON, a list of numbers on one line."""
    text = json.dumps(log, indent=1, ensure_ascii=False)
    lists = re.compile(r"\[[-\d.,e\s]+\]")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(lists.sub(lambda match: " ".join(match[0].split()), text) + "\n", encoding="utf-8")


def load(path: Path) -> dict:
    """Read a log."""
    return json.loads(path.read_text(encoding="utf-8"))


def fastest_published(entry: dict, published: dict[str, str]) -> str:
    """Return which of the published models has the lowest median time in a case."""
    return min(published, key=lambda name: statistics.median(entry["seconds"][name]))


def speeds(entry: dict, name: str, reference: str) -> list[float]:
    """Return how many times as fast as the reference a model is, round by round."""
    seconds = entry["seconds"]
    return [theirs / own for theirs, own in zip(seconds[reference], seconds[name], strict=True)]


def table(header: list[str], rows: list[list[str]], *, words: int = 1) -> str:
    """Return a table; its first columns hold words, the others numbers, aligned to the right."""
    rule = [" --- "] * words + [" ---: "] * (len(header) - words)
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(rule)}|", *lines[1:]])


def with_range(values: list[float], form: str) -> str:
    """Return the median, and in brackets the quartiles."""
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else 3 * values
    low, median, high = (format(value, form) for value in quartiles)
    return f"{median} ({low}–{high})"


def machines_section() -> str:
    """Return a row for each section: what its log says of the machine, the versions and the date."""
    rows = []
    for title, (path, _) in SECTIONS.items():
        machine = load(path)["machine"]
        versions = f"{machine['system']}, Python {machine['python']}, PyTorch {machine['torch']}"
        cores = f"{machine['processor']}, {machine['cores']} cores"
        busy = f"{machine['load']:.1f}" if machine["load"] is not None else "–"
        peak = f"{machine['matmul_flops'] / 1e9:.0f}"
        rows.append([title, machine["date"][:10], cores, versions, str(machine["threads"]), peak, busy])
    header = ["section", "date", "processor", "versions", "threads", "peak, GFLOP/s", "load average"]
    return (
        "*Peak* is the highest speed of `torch.mm` in float32 that we measured. *Load average* is roughly the number "
        "of programs that were computing or waiting for a core when the measurements began.\n\n"
        + table(header, rows, words=4)
    )


def throughput_section(log: dict) -> str:
    """Return the tables of speed and memory, and what they say about ours."""
    ran = listed([f"{name} {number}" for name, number in log["versions"].items()]) or "none"
    ran = ran.replace("Hugging Face", "Hugging Face Transformers")
    differences = {model["name"]: model["difference"] for model in log["models"] if model["difference"]}
    differing = [f" Each is alike in all libraries, except that {name}'s has {it}." for name, it in differences.items()]
    parts = [
        f"*vit_course* is the course's package; the published models come from {ran}. With each library, we built two "
        f"models. "
        f"*Ti/16* takes images of 224 × 224 pixels, cut into patches of 16 × 16, and has 12 blocks of width 192 with 3 "
        f"heads. {_small_model()}{''.join(differing)}",
        *(f"{name} did not run: {why}" for name, why in log["missing"].items()),
        f"In each of {log['rounds']} rounds, all models take one step on the same images, in an order that changes "
        "from round to round. A step is a forward pass or, in training, a complete update with the same AdamW. Times "
        "and speeds are medians with quartiles in parentheses. A dash means not measured.",
        "The course's model was timed in two more ways: compiled, and with the *short last block*, as the training "
        "command runs it. The classification head reads only the class token. In the last block, all tokens therefore "
        "still supply keys and values, but only the class token needs a query and the MLP. The logits are the same.",
        "- *Relative speed* compares a model with the reference, the published model with the lowest median time: the "
        "reference's time divided by the model's own in the same round, so a value above 1 means faster. The median of "
        "these ratios need not rank the models exactly as the median times do.\n"
        "- *Share of peak* says how well a model uses the processor. It is the number of floating-point operations in "
        "its matrix multiplications, including those inside attention, divided by the time of the whole step and by "
        "the measured peak of `torch.mm`.\n"
        + (MEMORY if any("memory" in model for model in log["models"]) else NO_MEMORY),
    ]
    for entry in log["cases"]:
        parts += [f"### {entry['case']}, batch of {entry['batch']}: {entry['mode']}", *_throughput_case(log, entry)]
    return "\n\n".join(parts)


def listed(items: list[str]) -> str:
    """Return the items with commas, and an "and" before the last."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def _small_model() -> str:
    """Return a sentence on the sizes of the model for 28 pixels; those of Ti/16 are the paper's."""
    sizes = CASES["px28"].sizes
    return (
        f"The other one, *28 pixels, patch 4*, takes images of 28 × 28 pixels with one channel, cut into patches of "
        f"4 × 4, and has "
        f"{sizes['num_layers']} blocks of width {sizes['hidden_dim']} with {sizes['num_heads']} heads and an MLP of "
        f"width {sizes['mlp_dim']}."
    )


def _throughput_case(log: dict, entry: dict) -> list[str]:
    """Return the table of one case in one mode, and its finding."""
    models = {model["name"]: model for model in log["models"] if model["case"] == entry["case"]}
    reference = fastest_published(entry, log["versions"]) if log["versions"] else None
    rows = []
    for name, seconds in entry["seconds"].items():
        model, median = models.get(name, {}), statistics.median(seconds)
        memory = model.get("memory", {}).get(entry["mode"])
        parameters = f"{(model or models[OURS])['parameters']:,}"
        milliseconds = with_range([1e3 * value for value in seconds], ".1f")
        speed = with_range(speeds(entry, name, reference), ".2f") if reference else "–"
        share = f"{entry['flops'] / median / log['machine']['matmul_flops']:.0%}" if name != SHORT else "–"
        needed = f"{memory / 2**20:.0f}" if memory else "–"
        rows.append([name, parameters, milliseconds, f"{entry['batch'] / median:,.0f}", speed, share, needed])
    header = ["model", "parameters", "ms per step", "images/s", "relative speed", "share of peak", "memory, MiB"]
    return [table(header, rows), *_findings(entry, reference)]


def _findings(entry: dict, reference: str | None) -> list[str]:
    """Return what a case shows about ours, plain and compiled."""
    sentences = []
    if reference:
        sentences.append(f"The reference is {reference}.")
    if "first_compiled_step" in entry:
        sentences.append(
            f"With `torch.compile`, {OURS} is {with_range(speeds(entry, COMPILED, OURS), '.2f')} times as fast as "
            f"without, but the first step takes {entry['first_compiled_step']:.0f} s."
        )
    if "not_compiled" in entry:
        sentences.append(f"`torch.compile` did not run: {entry['not_compiled']}")
    return [" ".join(sentences)] if sentences else []


def profile_section(log: dict) -> str:
    """Return a table for each case: the share of a step's time by group of operators."""
    shares: dict[str, list[str]] = {}
    for row in log["rows"]:
        if row["name"] == OURS:
            share = row["groups"]["matrix multiplications"] / sum(row["groups"].values())
            shares.setdefault(row["case"], []).append(f"{share:.0%} in {row['mode']}")
    products = [f"{listed(of_case)} for {case.partition(',')[0]}" for case, of_case in shares.items()]
    parts = [
        "The tables in this section divide the time of a step among kinds of operators, in percent. In vit_course, "
        f"matrix multiplications take {'; '.join(products)}. In the small model, most of the time goes elsewhere. "
        "Their row includes the linear projections of the attention; its two other products, queries with keys and "
        "weights with values, are part of the row *fused attention*. The shares are means over "
        f"{log['steps']} steps, and small differences mean nothing. vit-pytorch does not use PyTorch's fused "
        "attention, so its attention appears under matrix multiplications, softmax, copies and elementwise operations. "
        "In inference, when the number of heads is even, torchvision's attention runs in a code path of its own, most "
        "of which appears under matrix multiplications and softmax. *Sums* are mainly the gradients of biases. *Python "
        "and autograd* is the time outside all operators."
    ]
    for case, mode in dict.fromkeys((row["case"], row["mode"]) for row in log["rows"]):
        columns = {row["name"]: row["groups"] for row in log["rows"] if (row["case"], row["mode"]) == (case, mode)}
        groups = [group for group in next(iter(columns.values())) if any(column[group] for column in columns.values())]
        rows = [
            [group, *(f"{100 * column[group] / sum(column.values()):.0f}" for column in columns.values())]
            for group in groups
        ]
        parts += [f"### {case}: {mode}, percent of a step", table(["operators", *columns], rows)]
    return "\n\n".join(parts)


def precision_section(log: dict) -> str:
    """Return the section of a training step in float32 and in bfloat16."""
    rows, faster = [], []
    for key, instructions in (("cases", ", ".join(log["machine"]["bfloat16"]) or "none"), ("without", "at most AVX2")):
        for entry in log[key]:
            times = [with_range([1000 * value for value in values], ".1f") for values in entry["seconds"].values()]
            ratios = speeds(entry, "bfloat16", "float32")
            rows.append([entry["case"], instructions, *times, with_range(ratios, ".2f")])
            if statistics.median(ratios) > 1:
                faster.append(f"{entry['case'].partition(',')[0]}, and only with the instructions {instructions}")
    apart = max(abs(one - two) for one, two in zip(*log["digits"].values(), strict=True))
    scores = {name: listed([f"{100 * value:.1f}%" for value in values]) for name, values in log["digits"].items()}
    return "\n\n".join(
        [
            "bfloat16 is a 16-bit floating-point format. In our measurements, it speeds up the training of vit_course "
            f"only for {' and for '.join(faster) or 'none of the models'}. The models and batch sizes are those of "
            f"the first section. In each of {log['rounds']} rounds, a training step in float32 alternates with one in "
            "bfloat16, whose forward pass uses `torch.autocast`. Times and relative speeds are again medians with "
            "quartiles; the relative speed is the time in float32 divided by that in bfloat16 in the same round. The "
            "column *instructions* shows what oneDNN, the library that computes the products, may use for bfloat16. "
            "In the last two rows, we limited it to AVX2, which has no instructions for bfloat16. This does not "
            "fully imitate an older processor, because the rest of PyTorch was not limited. Compare times within a "
            "row only, because the load on the machine varied. Before you use bfloat16, measure your own model.",
            table(["case", "instructions", "float32, ms per step", "bfloat16, ms per step", "relative speed"], rows),
            f"Does bfloat16 cost accuracy? In a small test, we saw no sign of it. After {log['epochs']} epochs of "
            "lesson 6's recipe on the digits, the validation accuracies with three seeds are "
            + ", and ".join(f"{values} in {name}" for name, values in scores.items())
            + f". With the same seed, the two differ by at most {100 * apart:.1f} points.",
        ]
    )


def time_to_accuracy_section(log: dict) -> str:
    """Return accuracy by recipe and budget."""
    rows = log["rows"]
    budgets = sorted({row["budget"] for row in rows})
    lines = []
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        runs = [row for row in rows if row["recipe"] == recipe]
        source = f" ([source]({runs[0]['source']}))" if runs[0]["source"] else ""
        accuracies = {run["budget"]: f"{run['accuracy']:.1%}" for run in runs}
        cells = [accuracies.get(budget, "–") for budget in budgets]
        lines.append([recipe + source, f"{runs[0]['parameters']:,}", *cells])
    header = ["recipe", "parameters", *(f"after {budget:g} s" for budget in budgets)]
    measure = (
        "The table shows the test accuracy after the given training time. In the row of *quick*, each entry is a "
        "separate run, with one seed, whose schedule ends at that time. Each of the other rows is a single run of a "
        "published recipe, tested at several times. A dash means not measured."
    )
    return "\n\n".join([measure, table(header, lines), *log["notes"]])


def checks_section(log: dict) -> str:
    """Return the longest time of each check, the slowest first."""
    kinds = ["right", "one", "two", "unknown"]
    slowest = sorted(log["seconds"].items(), key=lambda item: -max(item[1].values()))
    rows = [[name, *(f"{found[kind]:.2f}" for kind in kinds)] for name, found in slowest if max(found.values()) >= 0.3]
    return "\n\n".join(
        [
            "The lessons check the functions and classes that readers write. The table shows the processor time of "
            "these checks in seconds, on one thread, the slowest first. We ran each check on correct code and on "
            "three kinds of wrong code: with one mistake that the check can name, with two such mistakes (up to "
            f"{log['pairs']} pairs per check), and with a mistake that it detects but cannot name (*unknown mistake*). "
            "Each entry is the longest time over all versions of its kind. The other "
            f"{len(slowest) - len(rows)} checks take less than 0.3 s.",
            table(["check", "correct code", "one mistake", "two mistakes", "unknown mistake"], rows),
        ]
    )


SECTIONS = {
    "The same step in several libraries": (THROUGHPUT, throughput_section),
    "Where the time goes": (PROFILE, profile_section),
    "Training in bfloat16": (PRECISION, precision_section),
    "Time to accuracy: Fashion-MNIST": (TIME_TO_ACCURACY, time_to_accuracy_section),
    "How long a check takes": (CHECKS, checks_section),
}


def in_short() -> dict[str, str | float]:
    """Return the numbers of the first paragraph."""
    throughput, timed, checks = load(THROUGHPUT), load(TIME_TO_ACCURACY)["rows"], load(CHECKS)["seconds"]
    numbers: dict[str, list[float]] = {}
    for entry in throughput["cases"]:
        reference, mode = fastest_published(entry, throughput["versions"]), entry["mode"]
        for kind, name, against in (
            ("plain", OURS, reference),
            (f"short_{mode}", SHORT, reference),
            (f"compiled_{mode}", COMPILED, OURS),
        ):
            numbers.setdefault(kind, []).append(statistics.median(speeds(entry, name, against)))
    first_steps = [entry["first_compiled_step"] for entry in throughput["cases"]]
    first = min((row for row in timed if row["recipe"] == timed[0]["recipe"]), key=lambda row: row["budget"])
    best = max((row for row in timed if row["recipe"] != timed[0]["recipe"]), key=lambda row: row["accuracy"])
    return dict(
        **{kind: f"{min(medians):.2f} to {max(medians):.2f}" for kind, medians in numbers.items()},
        first_least=min(first_steps),
        first_most=max(first_steps),
        accuracy=first["accuracy"],
        seconds=first["budget"],
        their_accuracy=best["accuracy"],
        their_seconds=best["budget"],
        check=math.ceil(10 * max(max(times.values()) for times in checks.values())) / 10,
    )


def page() -> str:
    """Return the page of results."""
    sections = [f"## {title}\n\n{section(load(path))}" for title, (path, section) in SECTIONS.items()]
    machines = f"## Machines\n\n{machines_section()}"
    return "\n\n".join([HEAD.format(**in_short()).rstrip("\n"), *sections, machines]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
