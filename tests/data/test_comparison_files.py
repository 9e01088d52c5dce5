"""Comparisons on disk: answers, undo, and what is left of them after a crash."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from thespis.core.errors import UserError
from thespis.data.comparison_files import LabelFile, comparison_directories, read_labelled, write_queries


def segments(num_queries, length, offset=0.0):
    """Columns whose observations say which query, side and step they are of."""
    query, side, step = np.meshgrid(np.arange(num_queries), np.arange(2), np.arange(length), indexing="ij")
    observation = (100 * query + 10 * side + step + offset).astype("float32")[..., None]
    return {"observation": observation, "action": query + 0, "mask": np.ones((num_queries, 2, length), bool)}


def test_the_last_answer_of_a_question_counts(tmp_path):
    labels = LabelFile(tmp_path, 3)
    labels.answer(0, "first", 1.234)
    labels.answer(1, "equal")
    labels.answer(0, "second")
    assert labels.answers == {1: "equal", 0: "second"} and labels.next_query == 2
    assert labels.undo() == 0 and labels.answers == {1: "equal"} and labels.next_query == 0
    again = LabelFile(tmp_path, 3)
    assert again.answers == labels.answers
    assert again.undo() == 1 and again.undo() is None and again.next_query == 0
    lines = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text().splitlines()]
    assert lines[0] == {"query": 0, "answer": "first", "seconds": 1.23} and lines[-1] == {"undo": 1}


def test_a_line_that_a_crash_cut_off_is_no_answer(tmp_path):
    labels = LabelFile(tmp_path, 5)
    labels.answer(0, "first")
    whole = labels.path.read_bytes()
    for cut in range(1, len(whole)):
        labels.path.write_bytes(whole + b'{"query": 1, "answer": "second"}\n'[:cut])
        again = LabelFile(tmp_path, 5)
        assert again.answers == {0: "first"}
        again.answer(1, "equal")
        assert LabelFile(tmp_path, 5).answers == {0: "first", 1: "equal"}


def test_an_answer_survives_a_kill_right_after_it(tmp_path):
    code = (
        "import os, signal, sys; from pathlib import Path; from thespis.data.comparison_files import LabelFile\n"
        "labels = LabelFile(Path(sys.argv[1]), 9)\n"
        "for i in range(5): labels.answer(i, 'first')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    process = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True)
    assert process.returncode == -9
    assert [*LabelFile(tmp_path, 9).answers] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "line",
    ['{"query": 7, "answer": "first"}', '{"query": 0, "answer": "third"}', "[]", "{}", '{"undo": -1}', "nonsense"],
)
def test_a_damaged_line_is_named(tmp_path, line):
    (tmp_path / "labels.jsonl").write_text('{"query": 0, "answer": "first"}\n' + line + "\n")
    with pytest.raises(UserError, match="line 2 is no label"):
        LabelFile(tmp_path, 5)


@pytest.mark.parametrize(("query", "answer"), [(5, "first"), (-1, "first"), (0, "third"), (0, "")])
def test_answers_that_do_not_exist_are_refused_and_not_written(tmp_path, query, answer):
    labels = LabelFile(tmp_path, 5)
    with pytest.raises(UserError, match=r"no question|no answer"):
        labels.answer(query, answer)
    assert not labels.path.exists() and not labels.answers


def test_labelled_comparisons_of_all_batches(tmp_path):
    """Skipped and open questions are left out; shorter segments are padded with masked steps."""
    for i, length in enumerate((4, 3)):
        directory = tmp_path / "labels" / f"step_{i}"
        write_queries(directory, segments(5, length, 1_000 * i), {"pairs": [0] * 5})
        labels = LabelFile(directory, 5)
        for query, answer in ((3, "first"), (1, "second"), (0, "skip"), (2, "equal")):
            labels.answer(query, answer)
    assert len(comparison_directories(tmp_path)) == 2
    columns, values = read_labelled(tmp_path)
    assert values.tolist() == [0.0, 0.5, 1.0] * 2
    assert columns["observation"][:, 1, 0, 0].tolist() == [110.0, 210.0, 310.0, 1110.0, 1210.0, 1310.0]
    assert columns["mask"][:, 0].tolist() == [[True] * 4] * 3 + [[True] * 3 + [False]] * 3
    assert columns["observation"].shape == (6, 2, 4, 1) and columns["action"].shape == (6, 2, 4)


def test_a_run_without_comparisons_names_the_command(tmp_path):
    with pytest.raises(UserError, match="thespis label"):
        read_labelled(tmp_path)
    (tmp_path / "labels" / "a").mkdir(parents=True)
    (tmp_path / "labels" / "a" / "queries.npz").write_bytes(b"no archive")
    with pytest.raises(UserError, match="holds no questions"):
        read_labelled(tmp_path)
