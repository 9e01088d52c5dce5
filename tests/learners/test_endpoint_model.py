"""Model behind an endpoint, as a seat: what it reads and says, errors, and equal responses of a served model."""

from __future__ import annotations

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis import api
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.records import View
from thespis.core.spaces import word_vocabulary
from thespis.data.feeds import Episodes
from thespis.envs.text.conversation import ConversationEnv
from thespis.envs.text.critique import CritiqueConversation
from thespis.envs.text.derivation import Derivation
from thespis.evaluation.conversations import play_conversations
from thespis.evaluation.report_card import report_card
from thespis.language.token_text import text_to_tokens, tokens_to_text
from thespis.learners.language.endpoint_model import EndpointModel
from thespis.learners.language.frozen_model import FrozenModel
from thespis.learners.multi_agent.cast import Cast
from thespis.learners.multi_agent.independent_learners import agent_spec
from thespis.methods.language.grpo import GRPO
from thespis.runtime.callbacks import raising_callback_errors
from thespis.runtime.keys import seed_key
from thespis.serving.model_io import engine_from_path, resolve_initial_model
from thespis.serving.server import background_server

ENV = ConversationEnv(CritiqueConversation(Derivation(num_steps=1, base=3)))
SOLVER_SPEC = agent_spec(ENV.spec, ENV.spec.groups[0])
BLANK = {"model": "blank", "num_layers": 1, "hidden_size": 32}


@contextlib.contextmanager
def fake_service(respond, requests):
    """An OpenAI-compatible service whose responses are those of a function of the messages."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(body)
            text = respond(body["messages"])
            choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            reply = json.dumps({"choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 2}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def solve(messages):
    """The answer to ``1 + 2 >``, the last problem that a message of the user names."""
    words = next(m["content"].split() for m in reversed(messages) if "+" in m["content"] or "-" in m["content"])
    change = int(words[2]) * (1 if words[1] == "+" else -1)
    return f"The answer is {(int(words[0]) + change) % 3}."


def test_words_become_tokens_without_punctuation_and_strangers():
    vocabulary = word_vocabulary(("right", "step", "1", ">"))
    assert tokens_to_text(vocabulary, text_to_tokens(vocabulary, "Right! I think step  (1) > <end>", 9)) == (
        "right step 1 >"
    )
    tokens = text_to_tokens(vocabulary, "right step 1", 3)
    assert len(tokens) == 3 and tokens[-1] != vocabulary.eos_tokens[0]  # cut, without an end
    assert text_to_tokens(vocabulary, "nothing known", 3) == [vocabulary.eos_tokens[0]]
    assert tokens_to_text(vocabulary, [-1, *text_to_tokens(vocabulary, "1", 3), -1]) == "1"


@pytest.mark.long
def test_a_seat_reads_its_transcript_as_messages(tmp_path):
    requests = []
    with fake_service(solve, requests) as url:
        seat = EndpointModel(url=url, model="sums", instructions="Add modulo 3.", cache=str(tmp_path))
        cast = Cast({"solver": seat, "critic": FrozenModel(**BLANK)})
        state = eqx.filter_jit(lambda key: cast.init(ENV.spec, key))(jax.random.key(0))
        states = jax.tree.map(lambda x: x[None], state)
        card = report_card(ENV, cast, states, 8, scripted=["critic"])
        assert card.shares["right before the critique"] == [1.0] and card.returns["solver"] == [1.0]
        assert seat.usage.num_calls == 16 and seat.usage.prompt_tokens == 160 and seat.usage.cost is None
        first, second = ([request for request in requests if len(request["messages"]) == n] for n in (2, 4))
        assert len(first) == len(second) == 8
        assert first[0]["messages"][0] == {"role": "system", "content": "Add modulo 3."}
        roles = [message["role"] for message in second[0]["messages"]]
        assert roles == ["system", "user", "assistant", "user"]
        critique = second[0]["messages"][3]["content"]
        assert critique == "right >" and second[0]["messages"][2]["content"].isdigit()
        assert len({request["seed"] for request in first}) == 8 and first[0]["max_tokens"] == 2
        assert report_card(ENV, cast, states, 8, scripted=["critic"]) == card
        assert seat.usage.num_calls == 16 and seat.usage.num_cached == 16


def test_rows_that_wait_are_not_asked_and_greedy_play_has_temperature_0():
    requests = []
    with fake_service(lambda messages: "2", requests) as url:
        seat = EndpointModel(url=url, prompt_price=1e6)
        policy = seat.policy(seat.init(SOLVER_SPEC, seed_key(0)), Mode.EXPLOIT)
        text = jnp.full((3, SOLVER_SPEC.observation_space.max_length), -1).at[:, 0].set(5)
        view = View(text, None, jnp.array([True, False, True]))
        action, memory, _ = eqx.filter_jit(seat.act)(policy, seat.init_memory(policy, 3), view, seed_key(1))
        assert len(requests) == 2 and {request["temperature"] for request in requests} == {0.0}
        assert (np.asarray(action[1]) == -1).all() and np.asarray(memory).sum(axis=1).tolist() == [2, 0, 2]
        assert seat.usage.cost == 20.0


def test_a_refused_request_is_one_line():
    with fake_service(lambda messages: None, []) as url:
        seat = EndpointModel(url=url.replace("/v1", "/v2"), model="x")
        policy = seat.policy(seat.init(SOLVER_SPEC, seed_key(0)), Mode.SAMPLE)
    text = jnp.full((1, SOLVER_SPEC.observation_space.max_length), -1).at[:, 0].set(5)
    object.__setattr__(seat.engine.config, "max_attempts", 1)
    with pytest.raises(UserError, match="did not answer"), raising_callback_errors():
        act = eqx.filter_jit(seat.act)
        jax.block_until_ready(act(policy, seat.init_memory(policy, 1), View(text), seed_key(1))[0])
    with pytest.raises(UserError, match="has no address"):
        EndpointModel().init(SOLVER_SPEC, seed_key(0))


@pytest.mark.slow
def test_a_critic_is_trained_beside_an_endpoint(tmp_path):
    """Two seeds train at once; a run that goes on from its cache ends with the same bits."""
    requests = []
    feed = Episodes(group_size=4, num_envs=8)
    with fake_service(solve, requests) as url:
        seat = EndpointModel(url=url, cache=str(tmp_path / "cache"))
        cast = Cast({"solver": seat, "critic": GRPO(**BLANK, feed=feed)})
        options = {"seeds": 2, "episodes": 1, "evaluate_every": 0}
        whole = api.train(cast, ENV, steps=48, out=tmp_path / "whole", **options)
        first = api.train(cast, ENV, steps=24, out=tmp_path / "part", **options)
        asked = len(requests)
        resumed = api.resume(first.path, ENV, steps=48)
        assert resumed.final_scores["state_hash"] == whole.final_scores["state_hash"]
        assert len(requests) == asked and whole.final_scores["report_card"]["returns"]["solver"] == [1.0, 1.0]


@pytest.mark.slow
def test_a_served_seat_responds_as_the_model_itself(tmp_path):
    """Greedy responses of a seat of a run, served and called, equal those of the frozen model in its place."""
    cast = Cast({"solver": FrozenModel(**BLANK), "critic": GRPO(**BLANK, feed=Episodes(group_size=4, num_envs=8))})
    name = "text:critiqued-derivation?num_steps=1&base=3"
    run = api.train(cast, name, steps=24, episodes=1, evaluate_every=0, out=tmp_path / "run")
    with pytest.raises(UserError, match="choose one by --seat solver or critic"):
        engine_from_path(run.path)
    spoken = []
    with background_server(engine_from_path(run.path, seat="critic"), "critic") as url:
        for seat in (
            FrozenModel(model=f"{run.path}:critic", temperature=1e-4),
            EndpointModel(url=url, model="critic", temperature=0.0),
        ):
            played = resolve_initial_model(Cast({"solver": FrozenModel(**BLANK), "critic": seat}))
            state = eqx.filter_jit(lambda key, played=played: played.init(ENV.spec, key))(seed_key(0))
            final, _ = eqx.filter_jit(play_conversations)(ENV, 16, seed_key(5), played, state, ("solver",))
            spoken.append(np.asarray(final.inner.critique))
    np.testing.assert_array_equal(*spoken)
