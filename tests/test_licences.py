"""Licences of the libraries that the extras bring."""

import pytest

from tests.licences import APART, Library, libraries, own_extras, table


def test_the_gpl_stands_outside_of_all() -> None:
    found = libraries(["all"])
    assert {"torch", "lightning", "scikit-learn"} <= {each.name for each in found}
    assert not [each for each in found if each.copyleft]
    assert not set(APART) & {extra for each in found for extra in each.extras}


def test_each_library_names_its_licence_and_the_extras_that_bring_it() -> None:
    found = {each.name: each for each in libraries(own_extras())}
    assert found["torch"].extras == ("core",)
    assert "plots" in found["matplotlib"].extras
    assert "core" not in found["matplotlib"].extras
    assert "| torch 2" in table(found.values())
    # torch for CUDA brings packages of NVIDIA, some of which leave their licence to their text
    unsaid = [n for n, each in found.items() if each.licence == "not said" and not n.startswith(("cuda-", "nvidia-"))]
    assert not unsaid


@pytest.mark.parametrize("licence", ["GPL-3.0-or-later", "GNU General Public License v3 (GPLv3)", "AGPL-3.0"])
def test_the_gpl_is_known_by_its_names(licence: str) -> None:
    assert Library("x", "1", licence, ()).copyleft


@pytest.mark.parametrize("licence", ["LGPL-2.1", "GNU Lesser General Public License v3", "MIT", "Apache-2.0"])
def test_others_are_free_to_use(licence: str) -> None:
    assert not Library("x", "1", licence, ()).copyleft
