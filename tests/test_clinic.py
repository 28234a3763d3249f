"""The bug clinic: every broken piece is told its symptom, every repair passes, every half repair is refused and named.

The broken pieces and the repairs are lesson 09's own, taken from the notebook. Wrong repairs, and right ones in other
styles, are edits of the lesson's repair, so that they stay one step away from it.
"""

import ast
import linecache
import re
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
import torch
from notebook_rules import exercises

from vit_course import checks
from vit_course.checks.clinic import NAMES

pytestmark = pytest.mark.usefixtures("as_readers_run_it")
NOTEBOOK = nbformat.read(Path(__file__).parents[1] / "notebooks" / "10_bug_clinic.ipynb", as_version=4)
IMPORTS = next(cell.source for cell in NOTEBOOK.cells if cell.cell_type == "code")


@dataclass(frozen=True)
class Lesson:
    """One case as the lesson has it."""

    number: int
    name: str  # of what is to be repaired
    broken: str
    stub: str
    repair: str
    says: str  # stored beside the check of the untouched stub


def cases() -> list[Lesson]:
    """Return the lesson's twelve."""
    found = []
    broken = [cell.source for cell in NOTEBOOK.cells if re.match(r"(def broken_|class Broken)", cell.source)]
    for piece, turn in zip(broken, exercises(NOTEBOOK), strict=True):
        stub, check = NOTEBOOK.cells[turn.index + 1], NOTEBOOK.cells[turn.index + 2]
        number, name = re.fullmatch(r"checks\.clinic\((\d+), (\w+)\)", check.source).groups()
        found.append(Lesson(int(number), name, piece, stub.source, turn.solution, turn.says))
    return found


CASES = cases()
BY_NUMBER = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number}-{case.name}")


def built(source: str, name: str):
    """Run a piece of code behind the lesson's imports, and return what it defines."""
    namespace = {}
    whole, place = f"{IMPORTS}\n\n{source}", f"<lesson 9, {hash(source)}>"
    linecache.cache[place] = len(whole), None, whole.splitlines(keepends=True), place  # as a notebook does
    exec(compile(whole, place, "exec"), namespace)
    return namespace[name]


def broken_name(case: Lesson) -> str:
    """Return the name that the broken piece defines."""
    return ast.parse(case.broken).body[0].name


# --- what the lesson holds -------------------------------------------------------------------------------------------


def test_there_are_twelve_cases_in_order():
    assert [case.number for case in CASES] == list(range(1, len(NAMES) + 1))


@BY_NUMBER
def test_the_stub_is_the_broken_piece_under_another_name(case):
    assert case.stub == re.sub(rf"\b{broken_name(case)}\b", case.name, case.broken)
    assert re.match(r"my_|My", case.name)


@BY_NUMBER
def test_three_hints_a_solution_and_a_folded_diagnosis(case):
    (turn,) = [turn for turn in exercises(NOTEBOOK) if NOTEBOOK.cells[turn.index + 1].source == case.stub]
    assert turn.folded == ["Hint 1", "Hint 2", "Hint 3", "A solution"]
    after = NOTEBOOK.cells[turn.index + 3].source
    diagnosis, _, rest = after.partition("</details>")
    assert diagnosis.startswith("<details><summary>Diagnosis")
    assert rest.strip().startswith("**Checkpoint.**")
    assert re.search(r"https://github\.com/|A\.3", diagnosis)


# --- broken, repaired, not written -----------------------------------------------------------------------------------

SYMPTOMS = {
    1: r"rows still sum to 0\.1021, not to 1",
    2: r"still get \d+\.\d% of the attention",
    3: r"still shows in 3 tokens, not in 1",
    4: r"still costs 1\.4612 with ten classes",
    5: r"two calls with one image give different tokens.* 0 parameters",
    6: r"the caller's tensor is doubled.* no backward",
    7: r"at step 190, beyond the plan of 100 steps, the rate is back at 2, its peak",
    8: r"all 5 tokens of an image are still moved by one and the same vector",
    9: r"8 right answers of 10 still make an accuracy of 0\.6667 in batches of 4",
    10: r"with 3 heads the output is still not torch's",
    11: r"44% of the tokens' numbers are lost in one block",
    12: r"still move when the class token alone is changed",
}


@BY_NUMBER
def test_the_broken_piece_is_told_its_symptom_quietly(case):
    before = torch.random.get_rng_state()
    verdict = checks.clinic(case.number, built(case.broken, broken_name(case)))
    assert not verdict
    assert re.match(rf"case {case.number}, {NAMES[case.number - 1]}: not repaired yet: ", verdict)
    assert re.search(SYMPTOMS[case.number], verdict)
    assert case.says.startswith(repr(verdict))
    assert torch.equal(before, torch.random.get_rng_state())


@BY_NUMBER
def test_the_repair_passes_by_number_and_by_name(case):
    before = torch.random.get_rng_state()
    name = NAMES[case.number - 1]
    verdicts = [checks.clinic(key, built(case.repair, case.name)) for key in (case.number, name)]
    assert all(verdicts)
    assert verdicts[0] == verdicts[1]
    assert verdicts[0].startswith(f"case {case.number}, {name}: ")
    assert "\n" not in verdicts[0]
    assert "repaired yet" not in verdicts[0]
    assert torch.equal(before, torch.random.get_rng_state())


@BY_NUMBER
def test_an_emptied_piece_is_not_written_yet(case):
    tree = ast.parse(case.stub).body[0]
    if isinstance(tree, ast.ClassDef):
        tree = next(part for part in tree.body if getattr(part, "name", "") == "forward")
    lines = case.stub.splitlines()
    emptied = "\n".join([*lines[: tree.body[0].lineno - 1], " " * tree.body[0].col_offset + "..."])
    verdict = checks.clinic(case.number, built(emptied, case.name))
    assert not verdict
    assert verdict.endswith(": not written yet.")


@BY_NUMBER
def test_a_repair_that_stops_is_reported_with_its_error(case):
    tree = ast.parse(case.repair).body[0]
    if isinstance(tree, ast.ClassDef):
        tree = next(part for part in tree.body if getattr(part, "name", "") == "forward")
    lines = case.repair.splitlines()
    at = tree.body[0].lineno - 1
    stopping = "\n".join([*lines[:at], " " * tree.body[0].col_offset + "forgotten.sum()", *lines[at:]])
    with pytest.raises(checks.CheckFailed, match=r"your code stopped with NameError"):
        checks.clinic(case.number, built(stopping, case.name))


@pytest.mark.parametrize("case", [0, 13, "row", None, True, 1.5, "1"])
def test_an_unknown_case_is_refused_with_the_known_ones(case):
    with pytest.raises(ValueError, match=r'case must be one of 1 or "rows", .*12 or "pooling"; got '):
        checks.clinic(case, len)


@pytest.mark.parametrize("number", range(1, 13))
def test_what_is_no_function_is_refused(number):
    with pytest.raises(checks.CheckFailed, match="takes a function or class"):
        checks.clinic(number, 3)


# --- wrong repairs ---------------------------------------------------------------------------------------------------

SOFTMAX = "(scores * scale).softmax(dim=-1)"
FILL = "scores.masked_fill(~mask, torch.finfo(scores.dtype).min)"
LOSS = "F.cross_entropy(model(images), labels)"
PROBABILITIES = "model(images).softmax(dim=-1)"
PROJECTS = "self.projection(patches)"
MAKES = "nn.Linear(in_channels * patch_size**2, hidden_dim)"
NEW = "nn.Linear(patches.shape[-1], self.projection.out_features)"
REARRANGES = "rearrange(images, pattern, p1=patch_size, p2=patch_size)"
ADDS = "return x + self.fn(x, **kwargs)"
PROGRESS = "min((step - warmup_steps) / (total_steps - warmup_steps), 1.0)"
UNSTOPPED = "(step - warmup_steps) / (total_steps - warmup_steps)"
ROWS = "[:, : x.shape[1]]"
COUNTS = "right += (model(images).argmax(dim=-1) == labels).sum().item()"
MEANS = "right += (model(images).argmax(dim=-1) == labels).float().mean().item()"
DIVIDES = "right / len(dataset)"
SCALE = "(hidden_dim // num_heads) ** -0.5"
MADE_ONCE = (
    "if self.projection is None:\n            self.projection = nn.Linear(patches.shape[-1], 8)\n        return self"
)
FIRST, SECOND = "x + self.dropout(self.self_attention(self.ln_1(x)))", "x + self.dropout(self.mlp(self.ln_2(x)))"
POOLS = 'reduce(tokens[:, 1:], "b n d -> b d", "mean")'

# case, what is done to the lesson's repair, what must be said
WRONG = [
    (1, {SOFTMAX: "F.normalize(scores.softmax(dim=-1), p=1, dim=-1)"}, "not divided by the root"),
    (1, {"query.shape[-1] **": "(query.shape[1] * query.shape[-1]) **"}, "root of the whole token's width"),
    (1, {"** -0.5": "** -1"}, "divided by e = 96 in all instead of by its root"),
    (1, {"** -0.5": "** 0.5"}, "multiplied by √e"),
    (1, {"query.shape[-1] **": "96 **"}, "√96, a fixed number"),
    (1, {SOFTMAX: f"{SOFTMAX} * scale"}, "once more after it, so rows sum to 0.102"),
    (1, {"dim=-1": "dim=-2"}, "runs over the query tokens"),
    (2, {"~mask": "mask"}, "wrong way round"),
    (2, {FILL: "scores.masked_fill(mask, -math.inf)"}, "wrong way round"),
    (2, {"torch.finfo(scores.dtype).min": "0.0"}, "filled with 0"),
    (2, {FILL: "scores", "scores.softmax(dim=-1)": "scores.softmax(dim=-1) * mask"}, "after the softmax"),
    (2, {" / query.shape[-1] ** 0.5": ""}, "no longer divided by √e"),
    (2, {FILL: "scores + mask"}, "added to the scores as 0 and 1"),
    (2, {"torch.finfo(scores.dtype).min": "-100.0"}, "filled with -100, and a score may be lower"),
    (3, {"(c p1 p2)": "(p1 p2 c)"}, r"flattened as \(p1 p2 c\)"),
    (3, {"-> b (gh gw)": "-> b (gw gh)"}, "grid is read column by column"),
    (3, {"(gh p1) (gw p2) ->": "(p1 gh) (p2 gw) ->"}, "pixels from all over the image"),
    (3, {"p1=patch_size, p2=patch_size": "p1=16, p2=16"}, "your code stopped"),
    (4, {LOSS: f"-{PROBABILITIES}[torch.arange(len(labels)), labels].log().mean()"}, "becomes infinite"),
    (4, {LOSS: f"F.nll_loss({PROBABILITIES}, labels)"}, "the logarithm is missing"),
    (4, {LOSS: "F.nll_loss(model(images), labels)"}, "gets logits"),
    (4, {", labels)": ", labels, reduction='sum')"}, "the sum over the batch"),
    (4, {"model(images)": "model(images).sigmoid()"}, "still two softmaxes"),
    (4, {"model(images)": "model(images).softmax(dim=0)"}, "over the images"),
    (4, {"model(images)": "model(images).detach()"}, "no gradient reaches"),
    (
        5,
        {PROJECTS: f"{NEW}(patches)"},
        r"a layer \(Linear\) is still made in forward, new at every call: the \d+ parameters",
    ),
    (
        5,
        {"        return": "        torch.manual_seed(0)\n        return", PROJECTS: f"{NEW}(patches)"},
        "two calls agree now",
    ),
    (5, {MAKES: f"[{MAKES}]", "self.projection(": "self.projection[0]("}, "is a plain list"),
    (5, {PROJECTS: f"{PROJECTS}.detach()"}, "has no gradient"),
    (5, {"(c p1 p2)": "(p1 p2 c)"}, r"flattened as \(p1 p2 c\)"),
    (
        5,
        {"nn.Linear(in_channels * patch_size**2, hidden_dim)": "None", "return self": MADE_ONCE},
        "at the first call and kept",
    ),
    (5, {"self.projection": "self.linear"}, "other names"),
    (6, {ADDS: "y = self.fn(x.clone(), **kwargs)\n        y += x\n        return y"}, "safe now, but .* no backward"),
    (6, {ADDS: "y = self.fn(x, **kwargs)\n        y.data += x.data\n        return y"}, "works now, but the caller's"),
    (6, {"x + ": ""}, "the addition is gone"),
    (6, {"x + self": "2 * x + self"}, r"it must return x \+ fn\(x\)"),
    (6, {"(x, **kwargs)": "(x)"}, "your code stopped with TypeError when the call had a keyword"),
    (6, {ADDS: f"{ADDS}.detach()"}, "is cut off"),
    (6, {"x + ": "x.detach() + "}, "is cut off"),
    (7, {PROGRESS: f"({UNSTOPPED}) % 1.0"}, "starts over"),
    (
        7,
        {PROGRESS: UNSTOPPED, "    progress": "    if step >= total_steps:\n        return peak\n    progress"},
        "it leaps",
    ),
    (7, {", 1.0)": ", 0.5)"}, "progress stops at a half"),
    (
        7,
        {PROGRESS: "min((step - max(warmup_steps - 1, 0)) / max(total_steps - 1 - max(warmup_steps - 1, 0), 1), 1.0)"},
        "lesson 6's",
    ),
    (7, {"min(": "max("}, "Use min"),
    (7, {"(step + 1)": "step"}, "warm-up has changed"),
    (8, {ROWS: "[:, :1]"}, "still get one row, the first"),
    (8, {ROWS: "[:, x.shape[1] - 1 : x.shape[1]]"}, "still get one row, the one before"),
    (8, {ROWS: "[:, -x.shape[1] :]"}, "counted from the end"),
    (8, {ROWS: "[:, 1 : x.shape[1] + 1]"}, "the first row is skipped"),
    (8, {"x + ": "x * "}, "are multiplied"),
    (8, {"nn.Parameter(table)": "table"}, "plain tensor"),
    (9, {DIVIDES: "right / (-(-len(dataset) // batch_size) * batch_size)"}, "divided by batches times batch size"),
    (9, {COUNTS: f"{MEANS} * batch_size"}, "weighted with batch_size"),
    (9, {COUNTS: MEANS}, "accuracies are added up and divided by the number of images"),
    (9, {"model.eval()": "model.train()"}, "no longer in eval mode"),
    (9, {DIVIDES: "right"}, "number of right answers"),
    (9, {DIVIDES: f"100 * {DIVIDES}"}, "in percent"),
    (9, {"split(batch_size)": "split(len(dataset))"}, "images at once where batch_size=4"),
    (10, {SCALE: "num_heads**-0.5"}, "the root of the number of heads"),
    (10, {SCALE: "1 / (hidden_dim // num_heads)"}, "in all instead of by its root"),
    (10, {SCALE: "(hidden_dim // num_heads) ** 0.5"}, "multiplied by √e"),
    (10, {SCALE: "1.0"}, "are not divided by the root of the head width"),
    (10, {"self.scale).softmax(dim=-1)": "1.0).softmax(dim=-1) * self.scale"}, "divided after the softmax"),
    (10, {"(three heads e)": "(heads e three)"}, r"\(heads e three\)"),
    (
        11,
        {"self.dropout(self.self": "(self.self", "self.dropout(self.mlp": "(self.mlp"},
        "dropout is gone, or acts before",
    ),
    (
        11,
        {
            FIRST: "x + self.self_attention(self.dropout(self.ln_1(x)))",
            SECOND: "x + self.mlp(self.dropout(self.ln_2(x)))",
        },
        "dropout is gone, or acts before",
    ),
    (11, {FIRST: "self.self_attention(self.ln_1(x)) + self.dropout(x)"}, "addition drops the stream"),
    (11, {SECOND: "self.mlp(self.ln_2(x)) + self.dropout(x)"}, "addition drops the stream"),
    (11, {"x + self.dropout(": "self.dropout(x + "}, "both sums are dropped"),
    (11, {"self.dropout(self.mlp": "(self.mlp"}, "what the MLP writes is not dropped"),
    (11, {"self.dropout(self.self": "(self.self"}, "no dropout acts on what attention returns"),
    (11, {"nn.Dropout(dropout)": "nn.Dropout(0.2)"}, "use the rate that __init__ is given"),
    (11, {"nn.Dropout(dropout)": "lambda x: F.dropout(x, dropout)"}, "in eval mode the output changes"),
    (12, {POOLS: "tokens[:, 1:].sum(dim=1) / tokens.shape[1]"}, "still divided by all 5 tokens: divide by the 4"),
    (12, {POOLS: "tokens.sum(dim=1) / (tokens.shape[1] - 1)"}, "the class token is still in it"),
    (12, {POOLS: "tokens[:, 0]"}, "the other head"),
    (12, {"tokens[:, 1:]": "tokens[:, :-1]"}, "the class token is the first"),
    (12, {'"mean"': '"sum"'}, "patch tokens are added up"),
    (12, {'"mean"': '"max"'}, "the largest value"),
]
UNFOLDED = "images.unfold(2, patch_size, patch_size).unfold(3, patch_size, patch_size)"
RIGHT = [
    (1, {SOFTMAX: "torch.einsum('bhie, bhje -> bhij', query, key).mul(scale).softmax(dim=-1)"}),
    (1, {SOFTMAX: "F.scaled_dot_product_attention(query, key, torch.eye(key.shape[2]).expand(*key.shape[:3], -1))"}),
    (1, {SOFTMAX: "(query * scale @ key.transpose(-2, -1)).softmax(dim=-1)"}),
    (2, {"scores = scores.masked_fill(": "scores.masked_fill_("}),
    (2, {FILL: "torch.where(mask, scores, -math.inf)"}),
    (2, {FILL: "scores + torch.zeros(mask.shape).masked_fill(~mask, -1e9)"}),
    (3, {REARRANGES: "F.unfold(images, patch_size, stride=patch_size).transpose(1, 2)"}),
    (3, {REARRANGES: f"{UNFOLDED}.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)"}),
    (4, {LOSS: "F.nll_loss(model(images).log_softmax(dim=-1), labels)"}),
    (4, {LOSS: "nn.CrossEntropyLoss()(model(images), labels)"}),
    (4, {LOSS: "(model(images).logsumexp(dim=-1) - model(images)[torch.arange(len(labels)), labels]).mean()"}),
    (5, {PROJECTS: "F.linear(patches, self.projection.weight, self.projection.bias)"}),
    (5, {PROJECTS: "patches @ self.projection.weight.T + self.projection.bias"}),
    (6, {ADDS: "return torch.add(self.fn(x, **kwargs), x)"}),
    (6, {ADDS: "y = self.fn(x, **kwargs).clone()\n        y += x\n        return y"}),
    (7, {PROGRESS: UNSTOPPED, "    progress": "    if step >= total_steps:\n        return 0.0\n    progress"}),
    (7, {PROGRESS: "(min(step, total_steps) - warmup_steps) / (total_steps - warmup_steps)"}),
    (8, {f"self.pos_embedding{ROWS}": "F.embedding(torch.arange(x.shape[1]), self.pos_embedding[0])"}),
    (8, {f"self.pos_embedding{ROWS}": "self.pos_embedding.narrow(1, 0, x.shape[1])"}),
    (9, {COUNTS: f"{MEANS} * len(batch)"}),
    (9, {DIVIDES: f"torch.tensor({DIVIDES})"}),
    (10, {SCALE: "hidden_dim**-0.5 * num_heads**0.5"}),
    (10, {"weights @ value": "F.scaled_dot_product_attention(query, key, value)"}),
    (11, {"mlp_dim=mlp_dim)": "mlp_dim=mlp_dim, dropout=dropout)", "self.dropout(self.mlp": "(self.mlp"}),
    (11, {FIRST: "x + F.dropout(self.self_attention(self.ln_1(x)), self.dropout.p, self.training)"}),
    (12, {POOLS: "tokens[:, 1:].mean(dim=1)"}),
    (12, {POOLS: "(tokens.sum(dim=1) - tokens[:, 0]) / (tokens.shape[1] - 1)"}),
]


def edited(number: int, edits: dict[str, str]):
    """Return the lesson's repair of a case with each of the edits made everywhere in its body."""
    case = CASES[number - 1]
    head, _, body = case.repair.partition("\n")
    for old, new in edits.items():
        assert old in body, f"{old} is not in the repair of case {number}"
        body = body.replace(old, new)
    return built(f"{head}\n{body}", case.name)


@pytest.mark.parametrize(("number", "edits", "says"), WRONG, ids=[f"{entry[0]}-{entry[2]}" for entry in WRONG])
def test_a_half_repair_is_refused_and_named(number, edits, says):
    with pytest.raises(checks.CheckFailed, match=f"(?i){says}") as caught:
        checks.clinic(number, edited(number, edits))
    message = str(caught.value)
    assert message.startswith(f"case {number}, {NAMES[number - 1]}: ")
    assert len(message.splitlines()) <= 4
    assert "mapping" not in message  # other checks take one


@pytest.mark.parametrize(("number", "edits"), RIGHT, ids=[f"{number}-{i}" for i, (number, _) in enumerate(RIGHT)])
def test_a_right_repair_in_another_style_passes(number, edits):
    assert checks.clinic(number, edited(number, edits))


def test_there_are_enough_of_both_for_every_case():
    assert {n for n in range(1, 13) if sum(entry[0] == n for entry in WRONG) < 3} == set()
    assert {n for n in range(1, 13) if sum(entry[0] == n for entry in RIGHT) < 2} == set()


def test_a_change_without_effect_is_still_not_repaired():
    """Another clamp of what needs none, and a copy in the wrong place: the symptom is there as before."""
    rate, residual = CASES[6], CASES[5]
    verdict = checks.clinic(7, built(rate.broken.replace("max(0.0,", "min(1.0,"), "broken_rate"))
    assert "not repaired yet" in verdict
    verdict = checks.clinic(6, built(residual.broken.replace("skip = x", "skip = x.clone()"), "BrokenResidual"))
    assert "not repaired yet" in verdict
