"""Questions about a SQLite database: answers by plain Python, what is allowed, and changes that cannot be undone."""

import re

import numpy as np
import pytest

from thespis.envs.host.database import DatabaseTask
from thespis.envs.host.text_env import StringVectorEnv


def play(task, seed):
    """The return of the demonstrator, and what was lines."""
    lines = [task.reset(np.random.default_rng(seed))]
    for _ in range(task.max_turns):
        response = task.demonstrate()
        message, reward, done = task.step(response)
        lines += [response, message]
        if done:
            return reward, lines
    return 0.0, lines


def test_the_demonstrators_sql_finds_what_plain_python_finds():
    results = [play(DatabaseTask(demonstrator_noise=0.0), seed) for seed in range(300)]
    assert {reward for reward, _ in results} == {1.0}
    kinds = {
        re.sub(
            r"\b(ann|bob|cid|dan|eve|fay|gus|hal|ida|jon|oslo|rome|lima|cairo|pens|cups|hats|lamps)\b", "_", lines[0]
        )
        for _, lines in results
    }
    assert kinds == {
        *("how many live in _", "how old is _", "who is oldest"),
        *("how many _ did _ buy", "who bought most _", "how many _ were bought in _"),
    }


def test_all_that_is_said_is_in_the_vocabulary_and_fits():
    task = DatabaseTask(num_people=10, change_rate=0.5)
    for seed in range(200):
        _, lines = play(task, seed)
        assert {word for text in lines for word in text.split()} <= set(task.words)
        assert max(len(text.split()) for text in lines[::2]) < task.max_message_tokens
        assert max(len(text.split()) for text in lines[1::2]) < task.max_response_tokens


def test_noise_makes_the_demonstrator_fail_at_times_and_words_at_random_nearly_always():
    noisy = np.mean([play(DatabaseTask(demonstrator_noise=0.3), seed)[0] for seed in range(300)])
    random = np.mean([play(DatabaseTask(demonstrator_noise=1.0), seed)[0] for seed in range(300)])
    assert 0.3 < noisy < 0.8 and random < 0.2


def test_changes_are_right_if_the_database_is_what_it_should_be():
    for seed in range(100):
        assert play(DatabaseTask(change_rate=1.0, demonstrator_noise=0.0), seed)[0] == 1.0
    task = DatabaseTask(change_rate=1.0)
    request = task.reset(np.random.default_rng(0))
    assert task.step("answer done") == ("", 0.0, True), request


def test_a_wrong_change_cannot_be_undone_by_a_right_one():
    task = DatabaseTask(change_rate=1.0, demonstrator_noise=0.0)
    task.reset(np.random.default_rng(1))
    statement = task.demonstrate()
    assert task.step("sql update people set age = 1") == ("result done", 0.0, False)
    assert task.step(statement) == ("result done", 0.0, False)
    assert task.step("answer done") == ("", 0.0, True)


@pytest.mark.parametrize(
    "statement",
    [
        *("drop table people", "delete from people", "insert into people values ( 1 , 2 , 3 )", "select", ""),
        *("attach 'x.db' as x", "pragma table_info ( people )", "select * from sqlite_master", "vacuum"),
        *("select load_extension ( 'x' )", "update sqlite_master set name = 'x'", "select 1 ; select 2"),
        "with recursive n ( i ) as ( select 1 union all select i + 1 from n ) select count ( * ) from n",
        "select randomblob ( 1000000000 )",
        "select count ( * ) from people a , people b , people c , people d , people e , people f , people g , people h",
    ],
)
def test_what_is_not_allowed_or_takes_too_long_is_an_error_and_the_database_is_as_before(statement):
    task = DatabaseTask(num_people=10)
    task.reset(np.random.default_rng(0))
    before = task._rows()
    assert task.step(f"sql {statement}") == ("error", 0.0, False)
    assert task._rows() == before


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ("sql select count(*) from people", "result 5"),
        ("sql SELECT COUNT ( * ) FROM people;", "result 5"),
        ("sql select name from people where age < 0", "result nothing"),
        ("sql select max ( age ) from people where age < 0", "result nothing"),
        ("sql select 1000", "result what"),
        ("sql select 1 , 2 , 3 , 4 , 5 , 6 , 7", "result 1 2 3 4 5 6 more"),
        ("select 1", "what"),
        ("", "what"),
    ],
)
def test_what_is_told_of_a_result(response, message):
    task = DatabaseTask()
    task.reset(np.random.default_rng(0))
    assert task.step(response) == (message, 0.0, False)


def test_it_is_an_environment_with_demonstrations():
    envs = StringVectorEnv(lambda: DatabaseTask(demonstrator_noise=0.0), 4, "database")
    width, total = envs.spec.action_space.max_length, np.zeros(4)
    envs.reset([1, 2, 3, 4])
    for _ in range(2):
        actions = [tokens + [-1] * (width - len(tokens)) for tokens in envs.demonstrator_action()]
        step, _ = envs.step(np.array(actions))
        total += step.reward
    envs.close()
    assert total.tolist() == [1.0] * 4 and step.terminated.all() and not envs.pop_warnings()


def test_people_without_names_are_refused():
    with pytest.raises(ValueError, match="2 to 10"):
        DatabaseTask(num_people=11)
