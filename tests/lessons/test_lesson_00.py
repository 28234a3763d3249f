"""What the sentences of the opening notebook claim."""

import statistics
import tomllib

from packaging.requirements import Requirement
from support import parameter_count

from tools.site_links import ROOT
from tools.write_run_pages import read


def test_the_first_of_the_six_answers_is_wrong_and_no_other(lesson):
    truth = [lesson.about["class_names"][label] for label in lesson.sample.labels[4:10]]
    assert truth == ["Shirt", *lesson.answers[1:]]
    assert lesson.answers[0] == "T-shirt/top"
    assert parameter_count(lesson.model) == 139_018


def test_the_loop_finds_the_factor_that_turns_one_into_three(lesson):
    assert abs(lesson.layer.factor.item() - 3) < 0.1


def test_every_package_that_the_course_installs_is_looked_for(lesson):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = project["dependencies"] + project["optional-dependencies"]["notebooks"]
    modules = {Requirement(each).name.replace("scikit-learn", "sklearn") for each in installed}
    run_the_cell, of_the_appendix = {"ipykernel", "jsonschema", "jupyterlab"}, {"transformers"}
    assert set(lesson.needed) == modules - run_the_cell - of_the_appendix | {"vit_course"}


def test_the_results_of_the_recorded_runs():
    results = [run["result"] for run in read("digits")]
    assert round(100 * statistics.median(result["test_accuracy"] for result in results)) == 98
    assert round(statistics.median(result["seconds"] for result in results) / 60) == 1
    (long,) = [run for run in read("fashion_mnist") if "--preset long" in run["command"]]
    assert "--nproc_per_node=2" in long["command"]
    assert round(100 * long["result"]["test_accuracy"]) == 91
    assert round(long["result"]["seconds"] / 60) == 21
