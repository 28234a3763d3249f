"""The benchmarks: statistics and the page by value, the peers, and each script once on a tiny model."""

import subprocess
import sys
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import cases
import machine
import memory
import peers
import profile_step
import pytest
import report
import throughput
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

MACHINE = dict(
    date="2030-01-02T03:04:05+00:00",
    processor="Abacus 7",
    cores=2,
    threads=3,
    system="Linux x86",
    python="3.11.0",
    torch="2.13.0",
    matmul_flops=400e9,
    load=0.26,
)


def parameters(name: str, case: cases.Case = cases.TINY) -> int:
    return sum(parameter.numel() for parameter in peers.build(name, **case.sizes).parameters())


@pytest.fixture(scope="module")
def found():
    return peers.find()


# Statistics


def test_quartiles_are_those_of_the_values():
    assert report.quartiles([5.0, 1.0, 4.0, 2.0, 3.0]) == (2.0, 3.0, 4.0)
    assert report.quartiles([7.0]) == (7.0, 7.0, 7.0)
    assert report.with_range([1.0, 2.0, 4.0, 3.0, 5.0], ".1f") == "3.0 (2.0–4.0)"


def test_speeds_are_compared_round_by_round():
    entry = dict(seconds={"a": [1.0, 2.0, 4.0], "b": [2.0, 2.0, 2.0]})
    assert report.speeds(entry, "a", "b") == [2.0, 1.0, 0.5]
    assert report.speeds(entry, "b", "b") == [1.0, 1.0, 1.0]


def test_the_fastest_published_model_has_the_lowest_median_and_is_not_ours():
    published = {"lowest minimum": [2.0, 9.0, 9.0], "steady": [5.0] * 3, "tail": [4.0, 4.0, 99.0]}
    entry = dict(seconds={"vit_course": [1.0] * 3} | published)
    assert report.fastest_published(entry, dict.fromkeys(published, "1.0")) == "tail"


def test_every_model_does_one_step_a_round_in_changing_order(monkeypatch):
    clock, ran = [0.0], []

    def step(name, seconds):
        ran.append(name)
        clock[0] += seconds

    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    takes = dict(a=1.0, b=2.0, c=4.0)
    steps = {name: (lambda name=name, seconds=seconds: step(name, seconds)) for name, seconds in takes.items()}
    assert throughput.round_robin(steps, 6) == {name: [seconds] * 6 for name, seconds in takes.items()}
    rounds = ["".join(ran[i : i + 3]) for i in range(0, 18, 3)]
    assert rounds == ["abc", "acb", "cab", "cba", "bca", "bac"]
    assert len({before + after for one in rounds for before, after in pairwise(one)}) == 6  # every order of two


def test_the_matmul_peak_is_the_best_rate_of_all_sides(monkeypatch):
    times = iter([0.0, 4.0, 4.0, 6.0, 6.0, 10.0, 10.0, 18.0])  # 8 rows: 4 s and 2 s; 16 rows: 4 s and 8 s
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    assert machine.matmul_peak(sides=(8, 16), repeats=2) == 2 * 16**3 / 4


# What is measured


@pytest.mark.parametrize("mode", cases.MODES)
@pytest.mark.parametrize("changes", [dict(), dict(in_channels=3, patch_size=2, num_layers=1, mlp_dim=40)])
def test_flops_by_formula_are_those_that_torch_counts(changes, mode):
    case = cases.Case("a case", 3, cases.TINY.sizes | changes)
    step = cases.make_step(peers.build(peers.OURS, **case.sizes), case, mode)
    # the written-out attention, for torch counts nothing in the CPU's fused one
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step()
    assert cases.flops(case, mode) == counter.get_total_flops() > 0


def test_a_training_step_changes_every_parameter_and_inference_none():
    model = peers.build(peers.OURS, **cases.TINY.sizes)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    inference = cases.make_step(model, cases.TINY, "inference")
    inference()
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    training = cases.make_step(model, cases.TINY, "training")
    training()
    training()  # behind a head of zeros, the first gradient is zero
    assert [name for name, parameter in model.named_parameters() if torch.equal(parameter, before[name])] == []


def test_every_model_gets_the_same_images_and_labels(monkeypatch):
    seen = []

    class Spy(torch.nn.Linear):
        def forward(self, images):
            seen.append(images)
            return super().forward(images.flatten(1))

    monkeypatch.setattr(cases.F, "cross_entropy", lambda logits, labels: seen.append(labels) or logits.sum())
    for seed in (1, 2):
        torch.manual_seed(seed)
        cases.make_step(Spy(64, 10), cases.TINY, "training")()
    assert seen[0].std() > 0.5
    assert torch.equal(seen[0], seen[2])
    assert torch.equal(seen[1], seen[3])


@pytest.mark.skipif(not memory.is_measurable(), reason="needs Linux's /proc")
def test_the_highest_memory_is_that_of_the_function_alone():
    code = """
import memory, torch
size = 200 * 2**20
before = memory.resident("VmRSS")
print(memory.highest(lambda: torch.ones(size, dtype=torch.uint8)) - before)
print(memory.highest(lambda: None) - before)  # what was before is forgotten
"""  # in a process of its own: here, memory that earlier tests have freed would be used again
    folder = Path(memory.__file__).parent
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    used, afterwards = map(int, done.stdout.split())
    assert used == pytest.approx(200 * 2**20, rel=0.05)
    assert afterwards < 20 * 2**20


# The peers


def test_hugging_face_is_always_there(found):
    versions, missing = found
    assert "Hugging Face" in versions, missing  # requirements.txt has it
    assert versions.keys() | missing.keys() == peers.PEERS.keys()


def test_a_peer_that_cannot_be_imported_is_named_with_its_reason(monkeypatch, tmp_path):
    (tmp_path / "broken_library.py").write_text("raise RuntimeError('operator x does not exist\\nand more')")
    monkeypatch.syspath_prepend(tmp_path)
    wanted = {
        "absent": peers.Peer("absent", ("no_such_library",), peers.PEERS["timm"].build),
        "broken": peers.Peer("broken", ("broken_library",), peers.PEERS["timm"].build),
        "there": peers.Peer("einops", ("einops",), peers.PEERS["timm"].build),
    }
    monkeypatch.setattr(peers, "PEERS", wanted)
    versions, missing = peers.find()
    assert list(versions) == ["there"]
    assert missing == {
        "absent": "ModuleNotFoundError: No module named 'no_such_library'",
        "broken": "RuntimeError: operator x does not exist",
    }
    with pytest.raises(ValueError, match=r"name must be one of 'vit_course', 'absent'.* got 'nobody'"):
        peers.build("nobody", **cases.TINY.sizes)


STAND_IN = """
import torch
@torch.library.register_fake("torchvision::nms")
def nms(dets, scores, iou_threshold):
    return dets
"""
IMPORTED = """
import peers, sys
peers.import_torchvision()
try:
    peers.import_torchvision()  # once more does no harm
    print(sys.modules["torchvision"].nms)
finally:
    sys.modules.pop("torchvision")
import pathlib
pathlib.Path(sys.argv[1], "torchvision.py").write_text("raise RuntimeError('something else')")
try:
    peers.import_torchvision()
except RuntimeError as error:
    print(error)
"""


def test_torchvision_is_imported_where_its_operators_are_missing_and_no_other_error_is_hidden(tmp_path):
    # a stand-in that fails as torchvision does beside a PyTorch that it was not compiled for
    (tmp_path / "torchvision.py").write_text(STAND_IN)
    environment = dict(PYTHONPATH=f"{tmp_path}:{Path(peers.__file__).parent}", PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, "-c", IMPORTED, str(tmp_path)]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert out.startswith("<function nms")
    assert out.splitlines()[1:] == ["something else"]


# The scripts, on a tiny model


@pytest.fixture
def two_peers(monkeypatch):
    """Leave one peer that is there, and one that is not: what is installed beside the course changes nothing."""
    absent = peers.Peer("absent", ("no_such_library",), peers.PEERS["timm"].build)
    monkeypatch.setattr(peers, "PEERS", {"Hugging Face": peers.PEERS["Hugging Face"], "absent": absent})
    monkeypatch.setattr(machine, "matmul_peak", lambda: 1e9)


def test_throughput_logs_every_time_and_names_who_did_not_run(two_peers, tmp_path, capsys):
    path = tmp_path / "throughput.json"
    throughput.main(["--quick", "--rounds", "3", "--out", str(path)])
    log = report.load(path)
    assert list(log["versions"]) == ["Hugging Face"]
    assert [(entry["mode"], entry["flops"]) for entry in log["cases"]] == [
        (mode, cases.flops(cases.TINY, mode)) for mode in cases.MODES
    ]
    for entry in log["cases"]:
        assert list(entry["seconds"]) == ["vit_course", "Hugging Face"]
        assert all(len(seconds) == 3 and min(seconds) > 0 for seconds in entry["seconds"].values())
    assert {model["parameters"] for model in log["models"]} == {parameters(peers.OURS)}
    printed = capsys.readouterr().out
    assert printed == report.throughput_section(log) + "\n"
    assert "absent did not run: ModuleNotFoundError: No module named 'no_such_library'" in printed


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # torch 2.12 says so of every profile
def test_the_profile_finds_each_groups_operators():
    model = peers.build(peers.OURS, **cases.TINY.sizes)
    inference, training = (
        profile_step.seconds_by_group(model, cases.TINY, mode, steps=2) for mode in ("inference", "training")
    )
    for group in ("matrix multiplications", "fused attention", "LayerNorm", "GELU", "copies", profile_step.REST):
        assert min(inference[group], training[group]) > 0, group
    assert inference[profile_step.OPTIMIZER] == 0 < training[profile_step.OPTIMIZER]
    assert inference["softmax"] == 0 < training["softmax"]  # of the loss: attention's own is fused


def test_the_profile_adds_up_to_the_step(monkeypatch):
    step = SimpleNamespace(name="one step", self_cpu_time_total=1000.0, cpu_parent=None)  # microseconds
    adamw = SimpleNamespace(name="Optimizer.step#AdamW.step", self_cpu_time_total=200.0, cpu_parent=step)
    linear = SimpleNamespace(name="aten::linear", self_cpu_time_total=10.0, cpu_parent=step)
    events = [
        step,
        adamw,
        SimpleNamespace(name="aten::mul_", self_cpu_time_total=3000.0, cpu_parent=adamw),
        linear,
        SimpleNamespace(name="aten::addmm", self_cpu_time_total=50000.0, cpu_parent=linear),
        SimpleNamespace(name="aten::mul", self_cpu_time_total=700.0, cpu_parent=step),
    ]
    monkeypatch.setattr(profile_step, "profile", lambda **_: nullcontext(SimpleNamespace(events=lambda: events)))
    seconds = profile_step.seconds_by_group(torch.nn.Flatten(), cases.TINY, "inference", steps=10)
    assert {group: value for group, value in seconds.items() if value} == {
        "matrix multiplications": 0.005001,
        "sums and products by element": 0.00007,
        "optimizer": 0.00032,
        "Python and autograd": 0.0001,
    }


# The page


def test_the_page_is_what_the_logs_give():
    assert report.PAGE.read_text(encoding="utf-8") == report.page(), "run: python benchmarks/report.py"


def test_a_log_is_read_as_it_was_saved_with_lists_of_numbers_on_one_line(tmp_path):
    log = dict(words=["a", "1, [2, 3]"], numbers=[1.5, -2e-05, 3], empty=[], rows=[dict(case="–", flops=[7])])
    path = tmp_path / "a new folder" / "log.json"
    report.save(log, path)
    assert report.load(path) == log
    assert ' "numbers": [ 1.5, -2e-05, 3 ],\n' in path.read_text(encoding="utf-8")
    assert report.load(tmp_path / "none.json") is None


def throughput_log(ours=(1.0, 1.0, 1.0)) -> dict:
    seconds = {"vit_course": list(ours), "timm": [2.0] * 3, "slow": [4.0] * 3, "vit_course, compiled": [0.5] * 3}
    return dict(
        machine=MACHINE,
        rounds=3,
        versions=dict(timm="1.0", slow="2.0"),
        missing=dict(torchvision="ImportError: none"),
        models=[
            dict(case="A", name="vit_course", parameters=1000, difference="", memory=dict(training=3 * 2**20)),
            dict(case="A", name="slow", parameters=1100, difference="more norms"),
        ],
        cases=[
            dict(case="A", mode="training", batch=8, flops=100e9, seconds=seconds, first_compiled_step=12.3),
        ],
    )


def test_the_page_says_how_fast_ours_is():
    text = report.throughput_section(throughput_log())
    assert "2030-01-02, Abacus 7, 2 cores, threads: 3, Linux x86, Python 3.11.0, PyTorch 2.13.0." in text
    assert "`torch.mm` in float32: 400 GFLOP/s. Load average before: 0.3." in text
    assert "ran: timm 1.0, slow 2.0." in text
    assert "torchvision did not run: ImportError: none" in text
    ours = "1000.0 (1000.0–1000.0) | 8 | 2.00 (2.00–2.00) | 25% | 3 |"
    assert f"| vit_course | 1,000 | {ours}" in text
    assert "| slow | 1,100 | 4000.0 (4000.0–4000.0) | 2 | 0.50 (0.50–0.50) | 6% | – |" in text
    assert "vit_course is 2.00 times as fast as the fastest published model here, timm: the course's aim, " in text
    assert (
        "`torch.compile` makes vit_course 2.00 (2.00–2.00) times as fast as it is without, after a first step of 12 s."
        in text
    )
    assert "slow: other parameters than the rest: more norms." in text


@pytest.mark.parametrize(("speed", "verdict"), [(0.971, "reached"), (0.969, "missed")])
def test_the_page_says_whether_the_wanted_speed_is_reached(speed, verdict):
    text = report.throughput_section(throughput_log([2 / speed] * 3))
    assert (
        f"0.97 times as fast as the fastest published model here, timm: the course's aim, at least 0.97, is {verdict}."
        in text
    )


def test_the_page_says_what_could_not_be_measured():
    log = throughput_log()
    log |= dict(versions={}, models=[dict(case="A", name="vit_course", parameters=1000, difference="")])
    log["cases"][0] |= dict(seconds={"vit_course": [1.0]}, not_compiled="InductorError: no compiler")
    text = report.throughput_section(log)
    assert "Published models that ran: none." in text
    assert "| vit_course | 1,000 | 1000.0 (1000.0–1000.0) | 8 | – | 25% | – |" in text
    assert "`torch.compile` did not run: InductorError: no compiler" in text
    assert "Memory was not measured" in text


def test_the_page_shows_the_profile_in_milliseconds_and_shares():
    groups = {"vit_course": dict(matrix=0.03, norm=0.01, softmax=0.0), "timm": dict(matrix=0.02, norm=0.0, softmax=0.0)}
    rows = [dict(case="A", mode="training", name=name, groups=times) for name, times in groups.items()]
    assert report.profile_section(dict(machine=MACHINE, rows=rows)).splitlines()[2:] == [
        "### A: training, ms a step",
        "",
        "| operators | vit_course | timm |",
        "| --- | ---: | ---: |",
        "| matrix | 30.0 (75%) | 20.0 (100%) |",
        "| norm | 10.0 (25%) | 0.0 (0%) |",
        "| together | 40.0 | 20.0 |",
    ]


def test_the_page_shows_accuracy_by_budget_and_the_time_to_the_best():
    def run(recipe, seed, budget, accuracy):
        return dict(recipe=recipe, parameters=1234, seed=seed, budget=budget, accuracy=accuracy, source="")

    rows = [run("ours", seed, 60, accuracy) for seed, accuracy in enumerate([0.86, 0.88, 0.87])]
    rows += [run("ours", 0, 120, 0.89), run("theirs", 0, 120, 0.824) | dict(source="https://example.org")]
    about = dict(budget=120, recipe="theirs", accuracy=0.824)
    reached = [about | dict(seed=seed, seconds=seconds) for seed, seconds in enumerate([30.2, None, 36.0])]
    text = report.time_to_accuracy_section(dict(machine=MACHINE, rows=rows, reached=reached, notes=["A note."]))
    assert "| recipe | parameters | seeds | after 60 s | after 120 s |" in text
    assert "| ours | 1,234 | 3 | 87.0% (86.0%–88.0%) | 89.0% |" in text
    assert "| theirs ([source](https://example.org)) | 1,234 | 1 | – | 82.4% |" in text
    assert "| theirs | yes | 120 s | 82.4% | 30 s · never · 36 s | 30% |\n\nA note." in text
    late = dict(machine=MACHINE, rows=rows, reached=[about | dict(seed=0, seconds=60.0)], notes=[])
    assert "| theirs | no |" in report.time_to_accuracy_section(late)
