"""The log that feeds a table: which offsets mean the same records in two of its snapshots."""

from __future__ import annotations

from thermocline.serving.store.fed_by import FedBy, fed_by

ONE = FedBy("cluster", {"a": "1", "b": "2"}, "nothing")


def test_it_is_told_by_its_text() -> None:
    assert fed_by(ONE.to_text()) == ONE
    assert ONE.to_text() == FedBy("cluster", {"b": "2", "a": "1"}, "nothing").to_text()


def test_topics_that_came_and_left_leave_the_others_as_they_are() -> None:
    other = FedBy("cluster", {"b": "2", "c": "3"}, "nothing")
    assert ONE.shared_with(other) == {"b"}
    assert not ONE.is_other(other, ["b"])
    assert ONE.is_other(other, ["a"])


def test_of_a_topic_made_again_or_after_an_accepted_loss_or_on_another_cluster_nothing_is_the_same() -> None:
    for other in (
        FedBy("cluster", {"a": "9", "b": "8"}, "nothing"),
        FedBy("cluster", {"a": "1", "b": "2"}, "a gap"),
        FedBy("another", {"a": "1", "b": "2"}, "nothing"),
    ):
        assert ONE.shared_with(other) == frozenset()
        assert ONE.is_other(other, ["b"])


def test_what_an_earlier_release_named_is_another_log() -> None:
    assert ONE.is_other(fed_by('["cluster", ["1", "2"], "nothing"]'), ["a"])
    assert ONE.is_other(fed_by(""), [])
