"""``thespis papers`` and ``thespis reproduce``: the list of papers, pages and mistakes."""

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
