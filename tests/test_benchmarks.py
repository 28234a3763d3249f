"""The benchmarks of one step: what is measured, the peers, the page, and each script once on a tiny model."""

import time
from itertools import pairwise

import pytest
import torch
from support import parameter_count
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tools.benchmarks import cases, machine, peers, profile_step, report, throughput

# What is measured


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


def test_a_training_step_changes_every_parameter_and_inference_none():
    model = peers.build(peers.OURS, **cases.TINY.sizes)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    cases.make_step(model, cases.TINY, "inference")()
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())
    training = cases.make_step(model, cases.TINY, "training")
    training()
    training()  # before a head of zeros, the first gradient is zero
    assert [name for name, parameter in model.named_parameters() if torch.equal(parameter, before[name])] == []


# The peers


def test_a_peer_that_cannot_be_imported_is_named_with_its_reason(monkeypatch, tmp_path):
    (tmp_path / "broken_library.py").write_text("raise RuntimeError('operator x does not exist\\nand more')")
    monkeypatch.syspath_prepend(tmp_path)
    modules = {"absent": "no_such_library", "broken": "broken_library", "there": "einops"}
    monkeypatch.setattr(peers, "PEERS", {name: peers.Peer("einops", modules[name], print) for name in modules})
    versions, missing = peers.find()
    assert list(versions) == ["there"]
    assert missing == {
        "absent": "ModuleNotFoundError: No module named 'no_such_library'",
        "broken": "RuntimeError: operator x does not exist",
    }


# The scripts, on a tiny model


@pytest.fixture
def two_peers(monkeypatch):
    """Leave one peer that is there, and one that is not: what is installed next to the course changes nothing."""
    absent = peers.Peer("absent", "no_such_library", print)
    monkeypatch.setattr(peers, "PEERS", {"Hugging Face": peers.PEERS["Hugging Face"], "absent": absent})
    monkeypatch.setattr(machine, "matmul_peak", lambda: 1e9)


def test_throughput_logs_every_time_and_names_who_did_not_run(two_peers, tmp_path, capsys):
    path = tmp_path / "a new folder" / "throughput.json"
    throughput.main(["--quick", "--rounds", "3", "--out", str(path)])
    log = report.load(path)
    assert list(log["versions"]) == ["Hugging Face"]
    assert [(entry["mode"], entry["flops"]) for entry in log["cases"]] == [
        (mode, cases.flops(cases.TINY, mode)) for mode in cases.MODES
    ]
    for entry in log["cases"]:
        assert list(entry["seconds"]) == ["vit_course", "Hugging Face"]
        assert all(len(seconds) == 3 and min(seconds) > 0 for seconds in entry["seconds"].values())
    assert {model["parameters"] for model in log["models"]} == {
        parameter_count(peers.build(peers.OURS, **cases.TINY.sizes))
    }
    printed = capsys.readouterr().out
    assert printed == report.throughput_section(log) + "\n"
    assert "absent did not run: ModuleNotFoundError: No module named 'no_such_library'" in printed


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # torch 2.12 says so of every profile
def test_the_profile_finds_each_groups_operators(two_peers, tmp_path):
    profile_step.main(["--quick", "--steps", "2", "--out", str(tmp_path / "log.json")])
    rows = {(row["name"], row["mode"]): row["groups"] for row in report.load(tmp_path / "log.json")["rows"]}
    inference, training = rows["vit_course", "inference"], rows["vit_course", "training"]
    for group in ("matrix multiplications", "fused attention", "LayerNorm", "GELU", "copies", profile_step.REST):
        assert min(inference[group], training[group]) > 0, group
    assert inference[profile_step.OPTIMIZER] == 0 < training[profile_step.OPTIMIZER]
    assert inference["softmax"] == 0 < training["softmax"]  # of the loss: attention's own is fused


def test_the_page_is_what_the_logs_give():
    assert report.PAGE.read_text(encoding="utf-8") == report.page(), "run: python -m tools.benchmarks.report"


def test_speeds_are_compared_round_by_round_with_the_fastest_published_model():
    published = {"lowest minimum": [2.0, 9.0, 9.0], "steady": [5.0] * 3, "tail": [4.0, 4.0, 99.0]}
    entry = dict(seconds={"vit_course": [1.0, 2.0, 99.0]} | published)
    assert report.fastest_published(entry, dict.fromkeys(published, "1.0")) == "tail"
    assert report.speeds(entry, "vit_course", "tail") == [4.0, 2.0, 1.0]
    assert report.with_range([1.0, 2.0, 4.0, 3.0, 5.0], ".1f") == "3.0 (2.0–4.0)"
