from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.sharing.place import NoPlace, Place, is_own


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.close()


def connected(place: Place) -> tuple[socket.socket, socket.socket]:
    ours = socket.socket(socket.AF_UNIX)
    ours.connect(place.address)
    return ours, place.listener.accept()[0]


def test_only_its_user_can_enter_and_nobody_can_guess_where(place: Place):
    directory = Path(place.address).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    other = Place()
    assert other.address != place.address
    other.close()


def test_connections_wait_where_nobody_answers_yet(place: Place):
    ours, theirs = connected(place)
    with ours, theirs:
        assert is_own(theirs)


def test_a_process_of_another_user_is_not_its_own(place: Place, monkeypatch: pytest.MonkeyPatch):
    ours, theirs = connected(place)
    with ours, theirs:
        monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
        assert not is_own(theirs)


def test_what_the_owner_has_come_to_is_told(place: Place):
    assert (place.serves, place.has_failed) == (False, False)
    place.tell(has_model=True)
    assert (place.serves, place.has_failed) == (True, False)
    place.vacate()
    assert (place.serves, place.has_failed) == (False, False)
    place.tell(has_model=False)
    assert (place.serves, place.has_failed) == (False, True)


def test_nothing_is_left_of_it(place: Place):
    place.close()
    assert not Path(place.address).parent.exists()


def test_a_directory_whose_name_is_too_long_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(NoPlace, match="TMPDIR"):
        Place()
    assert list(deep.iterdir()) == []


def test_a_directory_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(NoPlace, match="TMPDIR"):
        Place()
