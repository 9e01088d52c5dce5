"""``thespis papers`` and ``thespis reproduce``: the list of papers, pages and mistakes."""

import shlex

import pytest
import tyro

from thespis.cli.commands.train import TrainCommand
from thespis.feedback.registry import REGISTRY as FEEDBACKS
from thespis.methods.registry import REGISTRY as METHODS
from thespis.papers import registry


def test_papers_are_listed_and_described(thespis):
    rows = thespis("papers", "--json").document
    assert [row["id"] for row in rows] == registry.paper_ids()
    paper = thespis("papers", "a2c-is-ppo", "--json").document
    assert paper["claim"].startswith("A2C and PPO") and "thespis.methods.online.a2c:A2C" in paper["parts"]
    assert thespis("papers", "--family", "on-policy-ac", "--verdict", "outdated", "--json").document == []


def test_mistakes_are_one_line(thespis):
    for words, message in {
        ("papers", "a2c-is-pp"): "did you mean a2c-is-ppo",
        ("papers", "--family", "nothing"): "unknown family 'nothing'",
        ("reproduce",): "name at least one paper",
        ("reproduce", "ddgp"): "unknown paper 'ddgp'",
        ("train", "a3c", "--env", "CartPole-v1"): "thespis train a2c --env CartPole-v1 --learners 4",
    }.items():
        result = thespis(*words, code=2)
        assert message in result.err and result.err.count("\n") == 1


def test_pages_are_written(thespis, tmp_path):
    thespis("papers", "--write", str(tmp_path / "docs"))
    assert (tmp_path / "docs" / "papers.md").read_text().startswith("# Papers")
    assert {file.stem for file in (tmp_path / "docs" / "papers").iterdir()} == set(registry.paper_ids())


@pytest.mark.long
def test_commands_of_papers_name_parts_that_exist():
    for paper_id in registry.paper_ids():
        words = shlex.split(registry.load_paper(paper_id).command)
        assert words[:2] == ["thespis", "train"]
        arguments = tyro.cli(TrainCommand, args=words[2:], config=(tyro.conf.FlagCreatePairsOff,)).train_kwargs()
        METHODS.load(arguments["method"])
        if arguments["feedback"] is not None:
            FEEDBACKS.load(arguments["feedback"])
