"""One declaration makes a check: what is called on which cases, the twin it must equal, and the mistakes it knows.

``CONTRIBUTING.md`` shows how to add a mistake, which is one line, and a check, which is one page.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import chain

import torch
from torch import Tensor, nn

from vit_course.checks import compare, modules
from vit_course.checks.compare import describe, duplicate, formula, named, same, unchanged
from vit_course.checks.dropout import Draws
from vit_course.checks.learner import check, running
from vit_course.checks.modules import Mapping
from vit_course.checks.trace import Progress, stop_of
from vit_course.checks.variants import MOST_CALLS, Mistake, explanation, mistakes_of, namespace, told, without_nan
from vit_course.checks.verdict import CATALOG, CheckFailed, NotWritten, Verdict, fail, refuse, sentence


@dataclass(frozen=True)
class Case:
    """One input: what is special about it, in words, and the arguments.

    Attributes:
        label: the words, ``"square images"``.
        args: positional arguments; for a class, of ``forward``.
        kwargs: arguments by name.
        options: a class's own arguments.
        training: whether a class is tried in train mode.
        weights: sets the parameters of the course's module, which the learner's gets by name.
        shows: what is compared of the result. :func:`vit_course.checks.dropout.draws` for one that is drawn.
        fault: id of the sentence for a failure that no known mistake explains.
    """

    label: str
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    options: dict = field(default_factory=dict)
    training: bool = False
    weights: Callable[[nn.Module], object] = compare.set_parameters
    shows: Callable[[object], object] = lambda result: result
    fault: str = ""


@dataclass(frozen=True)
class Check:
    """A check of a function, or of a class if the reference is one.

    Attributes:
        name: as in ``checks.<name>``; ``verified`` in ``sentences.toml`` says what was shown.
        reference: the course's own, whose arguments messages name, and whose parameters a learner's class gets.
        cases: groups of cases; a group is judged only if the one before is right.
        twin: the function of ``twins.py`` that the learner's code must equal; none where the reference is all there is.
        mistakes: sections of ``mistakes.toml`` that the values are searched for, the likeliest first.
        stages: where a computation may be right, in order; see :class:`vit_course.checks.trace.Progress`.
        run: calls a function with a case; for what is not simply a function of tensors.
        run_twin: does so with a twin that writes into the model that it is given; learners do so in a copy.
        before, behaviors: further checks of ``(subject, mapping)``, before the values are compared and after.
        most: how many mistakes may come together.
        most_calls: how many twins are run in a search for mistakes that come together: less where one takes long.
        has_gradients: whether gradients are compared where the reference has some; not where nobody would use them.
    """

    name: str
    reference: Callable
    cases: Sequence[Sequence[Case]]
    twin: str = ""
    mistakes: str = ""
    stages: Sequence[str] = ()
    run: Callable[[Callable, Case], object] = lambda function, case: function(*case.args, **case.kwargs)
    run_twin: Callable[[Callable, Case], object] | None = None
    before: Sequence[Callable[[Callable, Mapping], None]] = ()
    behaviors: Sequence[Callable[[Callable, Mapping], None]] = ()
    most: int = 2
    most_calls: int = MOST_CALLS
    has_gradients: bool = True

    def known(self, *, drawn: bool = False) -> list[Mistake]:
        """Return the mistakes that show in eval mode, or those that dropout alone shows."""
        sections = self.mistakes.split()
        return [mistake for section in sections for mistake in mistakes_of(section) if mistake.drawn == drawn]

    def made_with(self, *mistakes: Mistake) -> Callable:
        """Return the code of a learner who made these mistakes: the edited twin, as a function or as a class."""
        twin = namespace(mistakes).get(self.twin, self.reference)
        if self.is_class:
            return type("Learners", (self.reference,), {"forward": lambda module, x: twin(module, x)})
        return (lambda model, *args: torch.no_grad()(twin)(deepcopy(model), *args)) if self.run_twin else twin

    @property
    def is_class(self) -> bool:
        """Whether a class is checked."""
        return inspect.isclass(self.reference)

    def public(self) -> Callable[..., Verdict]:
        """Return the function that learners call, ``checks.<name>``."""
        public = (lambda cls, mapping=None: self(cls, mapping)) if self.is_class else (lambda function: self(function))
        called = self.reference.__name__ if self.is_class else self.name
        public.__name__ = public.__qualname__ = self.name
        public.__doc__ = sentence(
            "declare.class_docstring" if self.is_class else "declare.docstring",
            call=f"{called}({', '.join(inspect.signature(self.reference).parameters)})",
            verified=self.verified,
        )
        return public

    @property
    def verified(self) -> str:
        """What is shown when the check passes: a sentence of its own, or the cases."""
        if self.name in CATALOG["verified"]:
            return sentence(f"verified.{self.name}")
        return sentence("exercises.verified", cases=", ".join(case.label for case in chain(*self.cases)))

    def __call__(self, subject: Callable, mapping: Mapping = None, name: str = "") -> Verdict:
        """Check a learner's function or class; ``mapping`` leads from the course's state dict to the learner's."""
        return check(name or self.name, subject, lambda: self.verify(subject, mapping))

    def verify(self, subject: Callable, mapping: Mapping = None) -> str:
        """Raise ``CheckFailed`` if anything is wrong; return what is shown."""
        if self.twin:
            self.accepts(subject)
        behaving = subject if self.is_class else guarded(subject)
        for behavior in self.before:
            behavior(behaving, mapping)
        passed: list[Trial] = []
        for group in self.cases:
            trials = [Trial(self, subject, mapping, case) for case in group]
            judge(trials, passed)
            passed += trials
        first = passed[0]
        if self.run is Check.run:
            first.second_call()
            if self.has_gradients:
                first.gradients()
        for behavior in self.behaviors:
            behavior(behaving, mapping)
        return self.verified

    def accepts(self, subject: Callable) -> None:
        """Check what can be seen before anything runs."""
        refuse(self.is_class and isinstance(subject, nn.Module), "declare.instance")
        for case in chain(*self.cases):
            modules.takes(subject, self.reference, case.options | case.kwargs)
        if self.is_class:
            modules.independent_instances(subject, self.cases[0][0].options)


def guarded(function: Callable, label: str = "") -> Callable:
    """Return a learner's function with copies as its arguments, which it must leave alone, and a result that it needs.

    Models and whatever else holds no numbers are handed over as they are.
    """

    def ask(*args: object, **kwargs: object) -> object:
        given = [duplicate(arg) for arg in args]
        result = function(*given, **kwargs)
        if not all(unchanged(before, after) for before, after in zip(args, given, strict=True)):
            raise fail("declare.in_place", label)
        if any(part is Ellipsis for part in (result if isinstance(result, tuple) else [result])):
            raise NotWritten(sentence("learner.returns_ellipsis"))
        refuse(result is None, "declare.returns_none")
        return result

    return ask


RIGHT = namespace()


@dataclass
class Trial:
    """A case, tried on a learner's function or class, and what came."""

    check: Check
    subject: Callable
    mapping: Mapping
    case: Case
    came: object = None

    @cached_property
    def right(self) -> nn.Module:
        """The course's module for the case."""
        module = self.check.reference(**self.case.options)
        with torch.no_grad():
            self.case.weights(module)
        return module.requires_grad_(True).train(self.case.training)

    def __call__(self, twins: dict[str, object]) -> object:
        """Return the result of the right one among these twins, as it is compared."""
        twin = twins.get(self.check.twin, self.check.reference)
        called, run = partial(twin, self.right) if self.check.is_class else twin, self.check.run_twin or self.check.run
        return self.case.shows(run(called, self.case))

    @cached_property
    def wanted(self) -> object:
        """What is wanted."""
        with torch.no_grad():
            return self(RIGHT)

    @cached_property
    def wrong(self) -> bool:
        """Whether something else came."""
        return not same(self.came, self.wanted)

    def loaded(self) -> nn.Module:
        """Return the learner's module with the course's parameters, in eval mode."""
        mine = modules.build(self.subject, self.case.options).eval()
        try:
            modules.load(mine, self.right.state_dict(), self.mapping, self.case)
        except CheckFailed:
            modules.made_in_forward(mine, self.case.args[0])
            raise
        return mine

    def learners(self) -> object:
        """Run the learner's code."""
        case = self.case
        is_said = self.check.twin or case.label.endswith(")")
        given = "" if is_said else f", {' and '.join(map(named, case.args))}"
        doing = sentence("declare.on", case=case.label + given)
        mine = self.loaded().train(case.training) if self.check.is_class else self.subject
        with running(doing), torch.no_grad():
            result = self.check.run(guarded(mine, case.label), case)
        return case.shows(result) if isinstance(result, Tensor) else result

    def both(self) -> tuple[Callable, Callable]:
        """Return the learner's code and the right one; for a class, an instance of each with the same parameters."""
        if self.check.is_class:
            return self.loaded(), deepcopy(self.right)
        return self.subject, self.check.reference

    def second_call(self) -> None:
        """Check a second call with other values; a class gets new weights for it, in the same instance."""
        case, (mine, right) = self.case, self.both()
        with running(sentence("modules.on_second_call")), torch.no_grad():
            first = mine(*map(duplicate, case.args), **case.kwargs)
            kept = duplicate(first)
            if self.check.is_class:
                right.load_state_dict({name: _smaller(value) for name, value in right.state_dict().items()})
                modules.load(mine, right.state_dict(), self.mapping, case)
            came, wanted = (call(*map(_smaller, case.args), **case.kwargs) for call in (mine, right))
        if not same(came, wanted):
            raise fail("modules.second_call", describe(came, wanted), case=case.label)
        refuse(isinstance(wanted, int) and isinstance(came, float), "declare.float", came=came)
        refuse(not unchanged(kept, first), "modules.overwritten")

    def gradients(self) -> None:
        """Check the gradients of all arguments that the right result has some for, and that one reaches a parameter."""
        mine, right = self.both()
        parameters = [each for each in mine.parameters() if each.requires_grad] if self.check.is_class else []
        wanted, came = _gradients(right, self.case, []), {}
        if wanted:
            with running(sentence("modules.with_gradients")):
                came = _gradients(mine, self.case, parameters)
        names = list(inspect.signature(self.check.reference).parameters)
        if self.check.is_class:
            names = [sentence("modules.input")]
            modules.trains_every_parameter(mine, right, self.mapping)
        if lost := [names[place] for place in wanted if place not in came]:
            raise fail("declare.no_gradient", names=", ".join(lost))
        for place, gradient in wanted.items():
            if not same(came[place], gradient):
                raise fail("declare.wrong_gradient", describe(came[place], gradient), name=names[place])


def judge(trials: Sequence[Trial], passed: Sequence[Trial]) -> None:
    """Compare the cases of a group, and name what is wrong; the groups before it have ``passed``."""
    group, stopped = [], None
    for trial in trials:
        try:
            trial.came = trial.learners()
        except CheckFailed as failure:
            stopped = failure
            break
        group.append(trial)
    right = ", ".join(each.case.label for each in [*passed, *group] if not each.wrong)
    if any(each.wrong for each in group):
        _explain(group, passed, right)
    if stopped:
        _explain_stop(trial, group, stopped)
        raise fail("declare.right_but", right=right, failure=stopped) if right else stopped from stopped.__cause__


def _explain_stop(trial: Trial, before: Sequence[Trial], stopped: CheckFailed) -> None:
    """Raise ``CheckFailed`` with the mistake whose edited twin stops at the same operation on the same values."""
    stop = stop_of(trial.learners)
    known = [mistake for mistake in trial.check.known(drawn=trial.case.training) if not mistake.fields]
    results = [(lambda twins: stop_of(lambda: trial(twins)), stop), *((other, other.came) for other in before)]
    if found := stop[1] is not None and explanation(known, results, most_calls=MOST_CALLS // 5):
        raise _named(found, trial, str(stopped)) from stopped.__cause__


def _explain(group: Sequence[Trial], passed: Sequence[Trial], right: str) -> None:
    """Raise ``CheckFailed`` with the mistakes that explain the values, or with how far they are right."""
    wrong = [trial for trial in group if trial.wrong]
    first, case, came, wanted = wrong[0], wrong[0].case, wrong[0].came, wrong[0].wanted
    at = f"{case.label}: {_difference(came, wanted, case)}"
    repeats = _repeats(first, at)
    order = sorted(group, key=lambda trial: (not trial.wrong, getattr(trial.came, "numel", lambda: 0)()))
    stages = first.check.stages if not any(trial.case.training for trial in order) else ()
    progress = cache(lambda: Progress(stages, order))
    if found := repeats and _mistakes(first, order, passed, lambda notes: progress().rank(notes)):
        if ".symptom" in found[0].id and len(found) == 1:  # the code as it came
            raise NotWritten(sentence("declare.not_repaired", symptom=told(found, first)))
        raise _named(found, first, at)
    _refuse_another_kind(first, at)
    lines = [_parts(group)] if isinstance(wanted, dict) else []
    lines += [sentence("declare.right_for", right=right, wrong=case.label)] if right else []
    lines = [line for line in [*lines, compare.fact(wrong), progress().says()] if line]
    vague = "wrong_shape" if getattr(came, "shape", ()) != getattr(wanted, "shape", ()) else "wrong_values"
    raise CheckFailed("\n  ".join([*(lines or [sentence(f"declare.{vague}")]), at]))


def _repeats(first: Trial, at: str) -> bool:
    """Return whether a call gives the same values again; name what makes layers or draws where it should not."""
    check, case, came = first.check, first.case, first.came
    if check.is_class and not case.fault:
        modules.made_in_forward(first.loaded(), case.args[0])
        mine = first.loaded()
        modules.repeats(lambda: mine(case.args[0].clone()), "modules.random_in_eval")
    if isinstance(came, Draws):
        if len(came.pairs) == 1 and any(first.learners() != came for _ in range(20)):
            raise fail("dropout.whole", at)  # a single level, and another one in a further call
        return True
    repeats = same(*map(without_nan, (first.learners(), came)))
    refuse(not repeats and "seed" in inspect.signature(check.reference).parameters, "declare.random")
    return repeats


def _mistakes(
    first: Trial, order: Sequence[Trial], passed: Sequence[Trial], rank: Callable[[list], int]
) -> tuple[Mistake, ...]:
    """Return the fewest mistakes that give the learner's values in all cases, and the right ones in the first group."""
    check, training = first.check, first.case.training
    earlier = passed[: len(check.cases[0])]
    results = [*((trial, trial.came) for trial in order), *((trial, trial.wanted) for trial in earlier)]
    most_calls = check.most_calls // (20 if training else 1)
    return explanation(check.known(drawn=training), results, most=check.most, most_calls=most_calls, rank=rank)


def _refuse_another_kind(first: Trial, at: str) -> None:
    """Name values that share what they should draw apart, another kind of result, or what the case is there for."""
    came, wanted = first.came, first.wanted
    shared = isinstance(came, Draws) and set(came.shared) > set(wanted.shared)
    if shared and came.levels().keys() == wanted.levels().keys():
        raise fail("dropout.shared", at, axis=came.shared[0])
    if key := compare.other_kind(came, wanted):
        raise fail(f"declare.{key}", at, came=type(came).__name__)
    if first.case.fault:
        raise fail(first.case.fault, at)


def _named(mistakes: Sequence[Mistake], run: Callable[[dict], object], at: str) -> CheckFailed:
    """Return the failure that names mistakes, with where they show."""
    failure = CheckFailed(f"{told(mistakes, run)}\n  {at}")
    failure.mistakes = tuple(mistake.id for mistake in mistakes)
    return failure


def _smaller(tensor: object) -> object:
    """Return 0.71 times a floating-point tensor, or a copy of all else, such as lists of attention maps."""
    return 0.71 * tensor.detach() if isinstance(tensor, Tensor) and tensor.is_floating_point() else duplicate(tensor)


def _gradients(call: Callable, case: Case, parameters: Iterable[Tensor]) -> dict[int, Tensor]:
    """Return the gradients of the arguments that the result depends on, by their places; give parameters theirs."""
    given = [duplicate(arg) for arg in case.args]
    tensors = {k: arg for k, arg in enumerate(given) if isinstance(arg, Tensor)}
    floats = {k: tensor.requires_grad_() for k, tensor in tensors.items() if tensor.is_floating_point()}
    out = call(*given, **case.kwargs)
    if not isinstance(out, Tensor) or not out.requires_grad:
        return {}
    (out * formula(*out.shape)).sum().backward(inputs=[*floats.values(), *parameters])
    return {k: arg.grad for k, arg in floats.items() if arg.grad is not None}


def _difference(came: object, wanted: object, case: Case) -> str:
    """Describe the first difference, with what the code was given if the shape is wrong."""
    if isinstance(wanted, Draws):
        few = all(len(each.levels()) <= 4 for each in (came, wanted) if isinstance(each, Draws))
        tells = few and str(came) != str(wanted)
        return sentence("compare.values", wanted=wanted, came=came) if tells else sentence("dropout.many")
    text = describe(came, wanted)
    if isinstance(came, Tensor) and isinstance(wanted, Tensor) and came.shape != wanted.shape:
        given = [*map(named, case.args), *(f"{key}={named(value)}" for key, value in case.kwargs.items())]
        return sentence("declare.given", given=", ".join(given), text=text)
    return text


def _parts(group: Sequence[Trial]) -> str:
    """Say which of several results are right in every case."""
    names = list(group[0].wanted)
    right = [all(same(trial.came[name], trial.wanted[name]) for trial in group) for name in names]
    if not any(right):
        return sentence("declare.first_part", part=names[0])
    told = {answer: ", ".join(name for name, of in zip(names, right, strict=True) if of is answer) for answer in right}
    return sentence("declare.parts", right=told[True], wrong=told[False])


CHECKS: dict[str, Check] = {}


def declare(
    name: str,
    reference: Callable,
    cases: Sequence[Sequence[Case]],
    *,
    twin: str = "",
    mistakes: str = "",
    stages: Sequence[str] = (),
    among: dict[str, Check] = CHECKS,
    **rest: object,
) -> None:
    """Declare a check, ``among`` others of its kind.

    The twin has the check's name and the mistakes that of the twin where nothing else is said, and a stage without a
    dot is one of the twin.
    """
    twin = twin or name
    full = [" ".join(part if "." in part else f"{twin}.{part}" for part in stage.split()) for stage in stages]
    among[name] = Check(name, reference, cases, twin, mistakes or twin, full, **rest)
