"""Form task: which command is right, what critiques say of one, and what the demonstrator makes of them."""

import jax
import jax.numpy as jnp
import numpy as np
from text_rules import RULES

from thespis.envs.text.form import COMMANDS, Form, FormState
from thespis.language.tokenizer import word_tokenizer
from thespis.runtime.keys import indexed_keys, seed_key

TASK = Form()
SPEC = TASK.task_spec
TOKENIZER = word_tokenizer(SPEC.vocabulary.words)


def state_of(wanted, entries=""):
    """The state in which a form is wanted and has these entries, written in order."""
    fields = [command for command in COMMANDS[:17]]
    sizes = [4, 2, 3, 3, 2, 3]
    starts = np.cumsum([0, *sizes])

    def by_field(words):
        values = [-1] * len(sizes)
        for word in words.split():
            values[int(np.searchsorted(starts, fields.index(word), side="right")) - 1] = fields.index(word)
        return jnp.array(values, "int32")

    return FormState(by_field(wanted), by_field(entries))


def words(tokens):
    return TOKENIZER.decode(np.asarray(tokens))


def encoded(text, length):
    tokens = TOKENIZER.encode(text)
    return jnp.array([*tokens, *[-1] * (length - len(tokens))], "int32")


def right_word(state):
    return COMMANDS[int(TASK.right_command(state))]


def test_a_field_appears_only_after_the_value_that_opens_it():
    wanted = "lamp post oslo cash"
    assert [right_word(state_of(wanted, entries)) for entries in ("", "lamp", "lamp post", "lamp post oslo")] == [
        "lamp",
        "post",
        "oslo",
        "cash",
    ]
    assert right_word(state_of(wanted, wanted)) == "send"


def test_whatever_is_wrong_has_to_be_undone_first():
    assert right_word(state_of("lamp post oslo cash", "lamp pickup north")) == "undo"
    assert right_word(state_of("lamp post oslo cash", "lamp pickup")) == "undo"
    assert right_word(state_of("lamp post oslo cash", "book post")) == "undo"


def test_all_forms_have_the_fields_that_their_values_open():
    keys = indexed_keys(seed_key(0), 300)
    states, openings = jax.jit(jax.vmap(TASK.init))(keys)
    wanted = np.asarray(states.wanted)
    texts = {words(opening) for opening in openings}
    post, pickup, card = (COMMANDS.index(word) for word in ("post", "pickup", "card"))
    assert ((wanted[:, 2] >= 0) == (wanted[:, 1] == post)).all()
    assert ((wanted[:, 3] >= 0) == (wanted[:, 1] == pickup)).all()
    assert ((wanted[:, 5] >= 0) == (wanted[:, 4] == card)).all()
    assert len(texts) > 60 and all(text.startswith("want ") and text.endswith(" ask item >") for text in texts)


def test_exact_critiques_approve_what_is_right_and_suggest_it_otherwise():
    state = state_of("lamp post oslo cash", "lamp pickup")

    def critique(command):
        return words(TASK.demonstrator_critique(state, encoded(command, 2), seed_key(0)))

    assert critique("undo <end>") == "yes <end>"
    assert critique("north <end>") == critique("undo") == critique("<end>") == "no undo <end>"
    judged = [int(TASK.critique_judgment(encoded(text, 3))) for text in ("yes <end>", "no undo <end>", "no <end>")]
    assert judged == [1, 0, 0]
    assert int(TASK.critique_judgment(encoded("undo <end>", 3))) == -1
    suggested = [
        int(TASK.suggested_command(encoded(text, 3))) for text in ("no undo <end>", "no <end>", "yes undo <end>")
    ]
    assert suggested == [COMMANDS.index("undo"), -1, -1]


def test_noise_of_critiques_is_a_coin_and_leniency_approves():
    state, keys = state_of("lamp post oslo cash", "lamp"), indexed_keys(seed_key(1), 2_000)

    def approvals(command, **settings):
        task = Form(**settings)
        critiques = jax.jit(jax.vmap(lambda key: task.demonstrator_critique(state, encoded(command, 2), key)))(keys)
        return float(np.mean([words(critique).startswith("yes") for critique in critiques]))

    assert approvals("post <end>", critic_noise=1.0) == np.float64(approvals("erase <end>", critic_noise=1.0))
    assert abs(approvals("erase <end>", critic_noise=1.0) - 0.5) < 0.04
    assert abs(approvals("erase <end>", critic_noise=0.5, leniency=0.4) - (0.25 + 0.5 * 0.4)) < 0.04
    assert approvals("post <end>", leniency=0.4) == 1.0


def test_revisions_follow_suggestions():
    state, keys = state_of("lamp post oslo cash", "lamp"), indexed_keys(seed_key(2), 400)

    def revised(critique, **settings):
        task = Form(**settings)
        revise = jax.jit(
            jax.vmap(lambda key: task.demonstrator_revision(state, encoded("send <end>", 2), encoded(critique, 3), key))
        )
        return [words(response) for response in revise(keys)]

    assert set(revised("no cash <end>")) == {"cash <end>"}
    assert set(revised("no <end>")) == {"post <end>"}
    noisy = revised("no cash <end>", revision_noise=0.5)
    assert abs(np.mean([text == "cash <end>" for text in noisy]) - 0.5) < 0.08
    assert "erase <end>" in noisy


def test_the_reference_rules_know_the_same_right_command():
    """After random commands, in forms of every kind."""
    keys = indexed_keys(seed_key(3), 40)
    states, _ = jax.jit(jax.vmap(TASK.init))(keys)
    step, right = jax.jit(TASK.step), jax.jit(TASK.right_command)
    rng = np.random.default_rng(0)
    for i in range(40):
        state = jax.tree.map(lambda x, i=i: x[i], states)
        rules = RULES["form"](TASK, jax.tree.map(np.asarray, state))
        for _ in range(8):
            assert COMMANDS[int(right(state))] == rules.right
            command = COMMANDS[rng.integers(len(COMMANDS) - 2)] if rng.uniform() < 0.5 else rules.right
            if command == "send":
                break
            rules.respond(command)
            state, _ = step(state, encoded(f"{command} <end>", 2), keys[0])
