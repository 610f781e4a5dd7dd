from __future__ import annotations

from service.server.unread_lines import UnreadLines


def test_lines_that_have_come_gone_or_changed_are_named_and_no_others(tmp_path):
    path = tmp_path / ".env"
    path.write_text("KEPT=1\nCHANGED=1\nGONE=1\nEMPTY=\n")
    unread = UnreadLines(path)
    assert unread.names() == []
    path.write_text("# a remark\nCHANGED='2'\nKEPT=1\nCOME=1\n")
    assert unread.names() == ["CHANGED", "COME", "GONE"]
    path.unlink()
    assert unread.names() == ["CHANGED", "GONE", "KEPT"]


def test_a_file_that_was_not_there_may_come(tmp_path):
    unread = UnreadLines(tmp_path / ".env")
    assert unread.names() == []
    (tmp_path / ".env").write_text("COME=1\n")
    assert unread.names() == ["COME"]


def test_the_file_is_looked_for_where_it_was_however_the_directory_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("A=1\n")
    unread = UnreadLines()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert unread.names() == []


def test_a_file_that_cannot_be_read_ends_nobody(tmp_path):
    path = tmp_path / ".env"
    path.write_text("KEPT=1\n")
    unread = UnreadLines(path)
    path.write_bytes(b"KEPT=2\n# caf\xe9\n")
    assert unread.names() == []
    assert UnreadLines(path).names() == []
    path.unlink()
    path.mkdir()
    assert unread.names() in ([], ["KEPT"])
