"""Classes of a Python session: those of the process, and those of the study that started it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmia.settings import session


class Own:
    """A class of this process."""


class Sent:
    """A class of the study."""


def test_classes__of_the_process_and_of_the_studys_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "classes.pkl"
    monkeypatch.setattr(session, "_CLASSES", {})
    sent, both = session.register_class(Sent), session.register_class(Own, "the same source")
    session.write(file)
    monkeypatch.setattr(session, "_CLASSES", {})
    assert not session.has_class(sent)
    own = session.register_class(Own)  # before the file is read: it must not hide the file
    monkeypatch.setenv(session.VARIABLE, str(file))
    assert session.has_class(sent) and session.has_class(both) and session.has_class(own)
    again = session.register_class(Own, "the same source")
    assert again == both and session.classes()[both.partition(":")[2]] is Own
    assert session.classes() is not session.classes()  # a caller cannot change what is known
    monkeypatch.delenv(session.VARIABLE)
    assert not session.has_class(sent) and session.has_class(own)
