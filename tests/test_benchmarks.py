"""The benchmarks: what is measured, the peers, the page, the published recipes, and each script once, tiny."""

import time
from itertools import pairwise

import pytest
import torch
from support import parameter_count
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tools.benchmarks import cases, machine, peers, profile_step, report, throughput, time_to_accuracy
from tools.benchmarks.published_recipes import RECIPES, flip_and_resized_crop


def test_every_model_does_one_step_in_each_round_in_changing_order(monkeypatch):
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


@pytest.mark.parametrize("mode", cases.MODES)
@pytest.mark.parametrize("changes", [dict(), dict(in_channels=3, patch_size=2, num_layers=1, mlp_dim=40)])
def test_flops_by_formula_are_those_that_torch_counts(changes, mode):
    case = cases.Case("a case", 3, cases.TINY.sizes | changes)
    step = cases.make_step(peers.build(peers.OURS, **case.sizes), case, mode)
    # the written-out attention, because torch counts nothing in the CPU's fused one
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        step()
    assert cases.flops(case, mode) == counter.get_total_flops() > 0


@pytest.fixture
def few_peers(monkeypatch, tmp_path):
    """Leave one peer that is there, and two that are not: what is installed next to the course changes nothing."""
    (tmp_path / "broken_library.py").write_text("raise RuntimeError('operator x does not exist\\nand more')")
    monkeypatch.syspath_prepend(tmp_path)
    gone = {name: peers.Peer(name, f"{name}_library", print) for name in ("absent", "broken")}
    monkeypatch.setattr(peers, "PEERS", {"Hugging Face": peers.PEERS["Hugging Face"]} | gone)
    monkeypatch.setattr(machine, "matmul_peak", lambda: 1e9)


def test_throughput_logs_every_time_and_names_who_did_not_run(few_peers, tmp_path, capsys):
    path = tmp_path / "a new folder" / "throughput.json"
    throughput.main(["--quick", "--rounds", "3", "--out", str(path)])
    log = report.load(path)
    assert list(log["versions"]) == ["Hugging Face"]
    flops = [(mode, cases.flops(cases.TINY, mode)) for mode in cases.MODES]
    assert [(entry["mode"], entry["flops"]) for entry in log["cases"]] == flops
    for entry in log["cases"]:
        assert list(entry["seconds"]) == ["vit_course", peers.SHORT, "Hugging Face"]
        assert all(len(seconds) == 3 and min(seconds) > 0 for seconds in entry["seconds"].values())
    ours = parameter_count(peers.build(peers.OURS, **cases.TINY.sizes))
    assert [model["parameters"] for model in log["models"]] == [ours] * 3
    printed = capsys.readouterr().out
    assert printed == report.throughput_section(log) + "\n"
    assert "absent did not run: ModuleNotFoundError: No module named 'absent_library'\n" in printed
    assert "broken did not run: RuntimeError: operator x does not exist\n" in printed


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # torch 2.12 says so of every profile
def test_the_profile_finds_each_groups_operators(few_peers, tmp_path):
    profile_step.main(["--quick", "--steps", "2", "--out", str(tmp_path / "log.json")])
    rows = {(row["name"], row["mode"]): row["groups"] for row in report.load(tmp_path / "log.json")["rows"]}
    inference, training = rows["vit_course", "inference"], rows["vit_course", "training"]
    for group in ("matrix multiplications", "fused attention", "LayerNorm", "GELU", "copies", profile_step.REST):
        assert min(inference[group], training[group]) > 0, group
    assert inference[profile_step.OPTIMIZER] == 0 < training[profile_step.OPTIMIZER]
    assert inference["softmax"] == 0 < training["softmax"]  # of the loss: attention's own is fused


def test_the_page_is_what_the_logs_give():
    assert report.PAGE.read_text(encoding="utf-8") == report.page(), "run: python -m tools.benchmarks.report"
    log = report.load(report.TIME_TO_ACCURACY)
    assert log == log | time_to_accuracy.summary(log["runs"], log["settings"]["train_images"])


@pytest.mark.parametrize("name", RECIPES)
def test_a_published_model_is_the_one_that_was_measured_and_classifies(name):
    model = RECIPES[name].model()
    measured = {run["parameters"] for run in report.load(report.TIME_TO_ACCURACY)["runs"] if run["recipe"] == name}
    assert measured == {parameter_count(model)}
    assert model(torch.rand(2, 1, 28, 28)).shape == (2, 10)


def test_flips_and_crops_show_a_window_of_each_image():
    across = torch.arange(28.0).expand(400, 1, 28, 28)  # each pixel is the column that it comes from
    cropped = flip_and_resized_crop(across, torch.Generator().manual_seed(0))
    width = (cropped[:, 0, 14, 20] - cropped[:, 0, 14, 8]) / 12  # of an input pixel, negative where mirrored
    assert 0.4 < (width < 0).float().mean() < 0.6
    assert 0.8 < width.abs().min() < 0.95 < width.abs().max() <= 1.001
    assert 0 <= cropped.min() < cropped.max() <= 27


def test_the_command_runs_in_seconds(few_peers, tmp_path, capsys):
    path = tmp_path / "log.json"
    time_to_accuracy.main(["--quick", "--recipes", "vit_pytorch", time_to_accuracy.OURS, "--out", str(path)])
    log = report.load(path)
    assert report.time_to_accuracy_section(log) in capsys.readouterr().out
    ours = time_to_accuracy.OURS
    wanted = [(ours, 0.25), (ours, 1.0), ("vit_pytorch", 1.0), (ours, 0.5)]
    assert [(run["recipe"], run["budget"]) for run in log["runs"]] == wanted
    for run in log["runs"]:
        assert all(0 <= test["accuracy"] <= 1 and test["seconds"] > 0 for test in run["tests"])
