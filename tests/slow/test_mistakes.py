"""Every mistake that a check knows is refused under its own name."""

import re

import pytest
from test_checks import SHOWN, refused

pytestmark = pytest.mark.usefixtures("as_readers_run_it")


def own_mistakes():
    """Return every mistake, with the first check that knows it."""
    found = {}
    for name, check in SHOWN.items():
        for mistake in check.known() + check.known(drawn=True):
            found.setdefault(mistake.id, (name, mistake))
    return [pytest.param(*entry, id=key) for key, entry in found.items()]


@pytest.mark.parametrize(("name", "mistake"), own_mistakes())
def test_a_mistake_is_named(name, mistake):
    """Two mistakes that give the same values are one: only the first would be named."""
    failure = refused(SHOWN[name], SHOWN[name].made_with(mistake))
    words = re.split(r"\{[^}]*\}", mistake.template)
    assert all(word in str(failure) for word in words), str(failure)
    assert getattr(failure, "mistakes", (mistake.id,)) == (mistake.id,)
