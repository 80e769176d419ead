"""The list of safety lines is true to the code and to the tests."""

from __future__ import annotations

import pytest

from tests.mutants import ROOT, mutated
from tests.safety_lines import MUTANTS, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_line_stands_once_in_its_file_and_the_code_without_it_is_still_python(mutant: Mutant) -> None:
    compile(mutated(mutant, (ROOT / mutant.file).read_text()), mutant.file, "exec")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_test_that_notices_exists(mutant: Mutant) -> None:
    file, _, name = mutant.test.partition("::")
    assert f"def {name.partition('[')[0]}" in (ROOT / file).read_text()


def test_names_are_given_once() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
