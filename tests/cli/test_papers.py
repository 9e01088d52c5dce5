"""``thespis papers`` and ``thespis reproduce`` as commands."""

from thespis.papers import registry


def test_all_papers_and_one(thespis):
    rows = thespis("papers", "--json").document
    assert [row["id"] for row in rows] == registry.ids()
    one = thespis("papers", "a2c-is-ppo", "--json").document
    assert one["claim"].startswith("A2C and PPO") and "thespis.methods.online.a2c:A2C" in one["parts"]
    assert thespis("papers", "--family", "on-policy-ac", "--verdict", "outdated", "--json").document == []


def test_mistakes_are_one_line(thespis):
    for words, said in {
        ("papers", "a2c-is-pp"): "did you mean a2c-is-ppo",
        ("papers", "--family", "nothing"): "unknown family 'nothing'",
        ("reproduce",): "name at least one paper",
        ("reproduce", "ddgp"): "unknown paper 'ddgp'",
        ("train", "a3c", "--env", "CartPole-v1"): "thespis train a2c --env CartPole-v1 --learners 4",
    }.items():
        answer = thespis(*words, code=2)
        assert said in answer.err and answer.err.count("\n") == 1


def test_the_pages_are_written(thespis, tmp_path):
    thespis("papers", "--write", str(tmp_path / "docs"))
    assert (tmp_path / "docs" / "papers.md").read_text().startswith("# Papers")
    assert {file.stem for file in (tmp_path / "docs" / "papers").iterdir()} == set(registry.ids())
