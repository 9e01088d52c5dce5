"""Casts as TOML files: reading, settings of seats, environments with options, and what is refused."""

import pytest

from thespis import api
from thespis.core.errors import UserError
from thespis.envs.registry import make_compiled
from thespis.evaluation.run_view import repeat_commands
from thespis.learners.language.endpoint_model import EndpointModel
from thespis.learners.language.frozen_model import FrozenModel
from thespis.methods.language.grpo import GRPO
from thespis.training.cast_file import cast_env
from thespis.training.run_config import make_method

FILE = """
env = "text:critiqued-derivation?num_steps=1&base=2&judgment_reward=0.5"

[settings]
model = "blank"
num_layers = 1
hidden_size = 32

[seats.solver]
method = "frozen"

[seats.critic]
method = "grpo"
learning_rate = 1e-3
feed.group_size = 4
feed.num_envs = 8
"""


@pytest.fixture
def cast_file(tmp_path):
    """A function that writes a file of a cast and returns its name."""

    def write(text=FILE):
        path = tmp_path / "critic.toml"
        path.write_text(text)
        return str(path)

    return write


def test_a_file_names_a_method_and_settings_of_each_seat(cast_file):
    cast = make_method(cast_file(), [])
    solver, critic = cast.methods["solver"], cast.methods["critic"]
    assert isinstance(solver, FrozenModel) and isinstance(critic, GRPO)
    assert (solver.num_layers, critic.hidden_size, critic.model) == (1, 32, "blank")
    assert (critic.learning_rate, critic.feed.group_size, critic.feed.num_envs) == (1e-3, 4, 8)
    assert cast.learns and cast.feed == critic.feed


def test_settings_of_a_cast_begin_with_the_seat(cast_file):
    cast = make_method(cast_file(), ["critic.learning_rate=0.5", "solver.temperature=0.25"])
    assert cast.methods["critic"].learning_rate == 0.5 and cast.methods["solver"].temperature == 0.25
    with pytest.raises(UserError, match=r"is that of a seat: solver.learning_rate=1 or critic.learning_rate=1"):
        make_method(cast_file(), ["learning_rate=1"])
    with pytest.raises(UserError, match=r"FrozenModel has no setting 'solver.learning_rate'"):
        make_method(cast_file(), ["solver.learning_rate=1"])


def test_seats_of_a_file_learn_in_turns(cast_file):
    cast = make_method(cast_file("updates_per_turn = 10\n" + FILE), [])
    assert cast.updates_per_turn == 10 and make_method(cast_file(), []).updates_per_turn == 0
    changed = make_method(cast_file(), ["updates_per_turn=3", "critic.learning_rate=0.5"])
    assert changed.updates_per_turn == 3 and changed.methods["critic"].learning_rate == 0.5
    config = api.build_config(changed, "text:critiqued-derivation", steps=48, seeds=1)
    written = repeat_commands(config).partition("END'\n")[2].partition("END\n")[0]
    assert (
        api.build_config(cast_file(written), "text:critiqued-derivation", steps=48, seeds=1)["method"]
        == config["method"]
    )


def test_the_environment_of_a_file_has_options_of_task_and_rules(cast_file):
    path = cast_file()
    env = make_compiled(cast_env(path, None))
    rules = env.rules
    assert (rules.task.num_steps, rules.task.base, rules.judgment_reward) == (1, 2, 0.5)
    assert cast_env(path, "text:echo") == "text:echo" and cast_env("grpo", None) is None
    config = api.build_config(path, cast_env(path, None), steps=48, seeds=1)
    assert config["env"] == "text:critiqued-derivation?num_steps=1&base=2&judgment_reward=0.5"
    assert config["method_name"] == "cast" and config["loop"] == "compiled"


def test_a_report_writes_the_file_of_its_cast(cast_file):
    changed = ["critic.learning_rate=0.5", "critic.advantage_estimator=TrajectoryReturn", "critic.feed.max_steps=3"]
    cast = make_method(cast_file(), changed)
    config = api.build_config(cast, "text:critiqued-derivation", steps=48, seeds=1)
    commands = repeat_commands(config)
    assert commands.startswith("cat > cast.toml <<'END'\n[seats.solver]\nmethod = \"frozen\"\n")
    assert commands.splitlines()[-1].startswith("thespis train cast.toml --env text:critiqued-derivation --steps 48")
    written = commands.partition("END'\n")[2].partition("END\n")[0]
    again = api.build_config(cast_file(written), "text:critiqued-derivation", steps=48, seeds=1)
    assert again["method"] == config["method"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[seats.critic", "cannot be read"),
        ("env = 1\n[seats.critic]\nmethod = 'grpo'", 'env = "NAME" is a text'),
        ("env = 'text:echo'", r"needs a table \[seats.NAME\] for each seat"),
        ("[seats.critic]\nlearning_rate = 1.0", "seat critic needs a method"),
        ("[seats.critic]\nmethod = 'grop'", "unknown method 'grop'"),
        ("[seats.critic]\nmethod = 'grpo'\nlearning_rat = 1", "has no setting 'critic.learning_rat'"),
        ("[seats.critic]\nmethod = 'grpo'\n[settings]\nhiden_size = 1", "no seat has the setting 'hiden_size'"),
        ("updates_per_turn = 1.5\n" + FILE, "updates_per_turn is a number of updates"),
        ("updates_per_turn = -1\n" + FILE, "updates_per_turn=-1 is at least 0"),
        ("steps = 3\n[seats.critic]\nmethod = 'grpo'", "unknown entry 'steps'"),
        (FILE + "[seats.judge]\nmethod = 'rloo'\nfeed.group_size = 2", "have different feeds"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line(cast_file, text, message):
    with pytest.raises(UserError, match=message) as caught:
        make_method(cast_file(text), [])
    assert "\n" not in str(caught.value)


def test_a_cast_without_a_learner_is_not_trained(cast_file, tmp_path):
    frozen = cast_file(FILE.replace('method = "grpo"\nlearning_rate = 1e-3', 'method = "frozen"'))
    with pytest.raises(UserError, match="nothing in cast learns"):
        api.train(frozen, steps=48, out=tmp_path / "run")


def test_an_evaluation_needs_a_conversation(cast_file):
    with pytest.raises(UserError, match="needs the environment of a conversation"):
        api.evaluate_cast(cast_file(FILE.partition("\n\n")[2]))
    with pytest.raises(UserError, match="grpo is no cast"):
        api.evaluate_cast(GRPO(), "text:echo")
    with pytest.raises(UserError, match="no seat of the cast is played by an endpoint"):
        api.evaluate_cast(cast_file(), endpoint="http://127.0.0.1:1/v1")


def test_an_endpoint_of_a_file_gets_its_address_later(cast_file):
    text = FILE.replace('method = "frozen"', 'method = "endpoint"\nmodel = "large"\ninstructions = "Add."')
    endpoint = make_method(cast_file(text), []).methods["solver"]
    assert isinstance(endpoint, EndpointModel)
    assert (endpoint.model, endpoint.instructions, endpoint.url) == ("large", "Add.", "")


@pytest.mark.slow
def test_a_file_is_trained_and_evaluated(cast_file, tmp_path):
    """The run's final.json and an evaluation of the run have a report card; the file alone is evaluated as it is."""
    path = cast_file()
    run = api.train(path, steps=48, episodes=2, evaluate_every=0, out=tmp_path / "run")
    card = run.final_scores["report_card"]
    assert card["num_episodes"] == 20 and card["returns"].keys() == {"solver", "critic"}
    assert next(iter(card["shares"])) == "right before the critique"
    assert "Report card" in (run.path / "report.html").read_text()
    scripted = run.report_card(100, scripted=["solver", "critic"])
    assert scripted.shares["judgments that are right"] == [1.0]
    evaluation = api.evaluate_cast(path, episodes=50, scripted=["critic"])
    assert evaluation.card.shares["wrong answers called wrong (recall)"] == [1.0] and not evaluation.usage
    with pytest.raises(UserError, match="has no seat 'judge'"):
        run.report_card(2, scripted=["judge"])
