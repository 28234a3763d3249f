"""The bug clinic: every case runs alone, every broken piece is told its symptom, wrong repairs are refused by name.

Of half repairs, the check says only that they are half ones.

The broken pieces and the repairs are the lesson's own, taken from the notebook. Wrong repairs, and right ones in other
styles, are edits of the lesson's repair (``witnesses.toml``).
"""

import dis
import re
from functools import cache

import matplotlib
import nbformat
import pytest
import torch
import witnesses
from notebook_rules import code_cells, exercises

from tools.clinic_pages import clinic_pages
from tools.execute_notebooks import VARYING
from tools.site_links import CLINIC, case_page
from vit_course import checks
from vit_course.checks.clinic import CLINIC as CHECKS
from vit_course.checks.clinic import HALF_REPAIRS, NAMES

pytestmark = pytest.mark.usefixtures("as_readers_run_it")
PAGES = {path: nbformat.reads(page, as_version=4) for path, page in clinic_pages().items()}


class Lesson:
    """One case as the lesson has it."""

    def __init__(self, number):
        page = PAGES[case_page(number)]
        (turn,) = exercises(page)
        self.number, self.cells = number, page.cells
        self.code = [cell for _, cell in code_cells(page)]
        self.name, self.stub, self.repair = turn.checked, turn.stub, turn.solution
        self.says = turn.says  # stored with the check of the untouched stub
        (self.diagnosis,) = [cell.source for cell in page.cells if "<summary>Diagnosis" in cell.source]

    def built(self, source: str):
        """Run code after the imports of the case, and return what is to be repaired."""
        return witnesses.cell(f"{self.code[0].source}\n\n{source}")[self.name]

    def edited(self, edits: list[list[str]]):
        """Return the lesson's repair with these edits."""
        return self.built(witnesses.edited(self.repair, edits))

    @cache  # noqa: B019 – the cases are never thrown away
    def ran(self, answer: str) -> tuple[dict[str, object], list[str]]:
        """Run all cells with this answer in place of the stub; return their names, and what each cell printed."""
        matplotlib.use("agg")
        names, texts = {"display": id, "print": lambda *values: printed.append(" ".join(map(str, values)))}, []
        for cell in self.code:
            printed = []
            exec(compile(answer if cell.source == self.stub else cell.source, "<cell>", "exec"), names)
            texts.append("".join(f"{line}\n" for line in printed))
        return names, texts


CASES = [Lesson(number) for number in range(1, 13)]
IMPORTED = {"torch", "nn", "F", "checks", "rearrange"}  # by several cases, which run alone
BY_NUMBER = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.number}-{case.name}")


def test_there_are_twelve_cases_and_nine_half_repairs():
    assert (len(PAGES), len(HALF_REPAIRS)) == (13, 9)


@BY_NUMBER
def test_a_case_runs_without_the_others(case):
    """As on its own page: its cells alone, which import what they use and print what the lesson prints."""
    _, texts = case.ran(case.stub)
    for cell, printed in zip(case.code, texts, strict=True):
        if VARYING not in cell.metadata.get("tags", []):
            assert printed == "".join(output.get("text", "") for output in cell.outputs)


def test_no_case_overwrites_what_another_one_has_defined():
    """So that a reader's measurements of one case still work after another case has been run."""
    owners = {}
    for path, page in PAGES.items():
        code = "\n".join(cell.source for _, cell in code_cells(page))
        instructions = dis.get_instructions(compile(code, "<cells>", "exec"))
        for name in {each.argval for each in instructions if each.opname == "STORE_NAME"} - IMPORTED:
            assert owners.setdefault(name, path) == path, name


@BY_NUMBER
def test_the_folded_diagnosis_links_to_a_public_thread(case):
    assert re.search(r"\]\(https://github\.com/[\w.-]+/[\w.-]+/(issues|pull|blob|commit)/\w+", case.diagnosis)
    assert case.diagnosis.endswith("</details>")


@BY_NUMBER
def test_the_comparison_of_the_diagnosis_passes_for_the_repair_alone(case):
    """It is folded after the check, and it uses what the cells of the case have left behind."""
    (comparison,) = re.findall(r"```python\n(.*?)```", case.diagnosis, re.DOTALL)
    exec(comparison, case.ran(case.repair)[0])
    with pytest.raises((AssertionError, IndexError, ValueError)):
        exec(comparison, case.ran(case.stub)[0])


@BY_NUMBER
def test_a_list_for_a_result_is_described_and_nothing_stops(case):
    if not CHECKS[NAMES[case.number - 1]].is_class:
        with pytest.raises(checks.CheckFailed) as failed:
            checks.clinic(case.number, lambda *given, **options: [1, 2])
        assert "stopped with" not in str(failed.value)


def test_the_recap_lists_every_case_with_what_its_diagnosis_cites():
    rows = re.findall(r"^\| \[10\.(\d+)\]\(#.+?\) \|.*\| (.+) \|$", PAGES[CLINIC].cells[-1].source, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 13))
    for case, (_, sources) in zip(CASES, rows, strict=True):
        text = "\n".join(cell.source for cell in case.cells)
        assert [address for address in re.findall(r"\]\((https?:[^)]+)\)", sources) if address not in text] == []


def test_the_hints_of_the_rows_predict_what_the_broken_code_and_a_division_give():
    rows = CASES[0].built(CASES[0].stub)
    query, key = torch.randn(2, 1, 1, 5, 16)
    torch.testing.assert_close(rows(query, key).sum(dim=-1), torch.full((1, 1, 5), 0.25))
    query, keys = torch.ones(1, 1, 1, 4), torch.stack([torch.zeros(4), torch.ones(4)])[None, None]
    for function, ratio in ((rows, "54.6"), (CASES[0].built(CASES[0].repair), "7.4")):
        first, second = function(query, keys).flatten().tolist()
        assert f"{second / first:.1f}" == ratio
        assert ratio in CASES[0].cells[-2].source


def test_the_hints_of_the_colors_count_the_labels_after_each_step():
    names, _ = CASES[6].ran(CASES[6].stub)
    darker, few = [" / 2 + 0.5", ""], ["2**bits", "bits"]
    last = ["(red * count + green) * count", "(red * bits + green) * bits"]
    steps = [darker, few], [few], [last], []
    counts = [CASES[6].edited(edits)(names["pictures"], 16, 3).unique().numel() for edits in steps]
    assert counts == [1, 8, 40, 64]
    hint = CASES[6].cells[-2].source
    assert "gives 8 labels" in hint
    assert "seven edges in base 3 give 40 labels, and base 8 gives all 64" in hint


def test_the_hints_of_the_rebuilding_count_what_the_proposal_puts_in_place():
    names, _ = CASES[7].ran(CASES[7].stub)
    proposed = (names["drawn"][names["numbers"], names["order"]] == names["all_patches"]).all(dim=-1).sum()
    assert f"puts {proposed} of the 216 patches in place" in CASES[7].cells[-2].source


@BY_NUMBER
def test_the_broken_piece_is_told_its_symptom_quietly_and_the_repair_passes_by_number_and_by_name(case):
    before = torch.random.get_rng_state()
    name = NAMES[case.number - 1]
    verdict = checks.clinic(case.number, case.built(case.stub))
    assert not verdict
    assert re.match(rf"case {case.number}, {name}: not repaired yet[.] [A-Z2]", verdict)
    assert case.says.startswith(repr(verdict))  # the check comes first, because a symptom may stop with an error
    assert torch.equal(before, torch.random.get_rng_state())
    by_number, by_name = (checks.clinic(key, case.built(case.repair)) for key in (case.number, name))
    assert by_number == by_name
    assert by_number
    assert by_number.startswith(f"case {case.number}, {name}: ")
    assert "\n" not in by_number


@pytest.mark.parametrize("case", [0, 13, "row", None, True, 1.5, "1"])
def test_an_unknown_case_is_refused_with_the_known_ones(case):
    with pytest.raises(ValueError, match=r'case must be one of 1 or "rows", .*12 or "\w+"; got '):
        checks.clinic(case, len)


def rows(kind):
    """Return all rows of one kind in the table of witnesses, each with its case."""
    found = [(CASES[int(number) - 1], row) for number, part in witnesses.CLINIC.items() for row in part.get(kind, [])]
    return pytest.mark.parametrize(("case", "row"), found)


@rows("wrong")
def test_a_wrong_repair_is_refused_and_named(case, row):
    with pytest.raises(checks.CheckFailed, match=f"(?i){row['says']}") as caught:
        checks.clinic(case.number, case.edited(row["edits"]))
    message = str(caught.value)
    assert message.startswith(f"case {case.number}, {NAMES[case.number - 1]}: ")
    # mistakes are listed as sentences
    assert not re.search(r"^  \d\. ([a-z]|One of the two faults is repaired)", message, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(HALF_REPAIRS))
def test_if_one_of_two_faults_is_repaired_the_message_does_not_tell_which_one_is_left(name):
    case, check = next((case, check) for case, check in CHECKS.items() if check.twin == name.partition(".")[0])
    (known,) = [known for known in check.known() if known.id == name]
    with pytest.raises(checks.CheckFailed) as caught:
        checks.clinic(case, check.made_with(known))
    assert caught.value.mistakes == (name,)
    number = NAMES.index(case) + 1
    assert str(caught.value) == f"case {number}, {case}: One of the two faults is repaired. Measure again."


@rows("right")
def test_a_right_repair_in_another_style_passes(case, row):
    assert checks.clinic(case.number, case.edited(row["edits"]))
