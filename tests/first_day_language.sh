#!/usr/bin/env bash
# The first day with language models, games and teams, command by command: every step checks exit code and output, and
# prints one line.
#
#   tests/first_day_language.sh                            in a new environment, from `pip install` on
#   THESPIS_PYTHON=.venv/bin/python tests/first_day_language.sh   with a Python in which the package is installed
#   tests/first_day_language.sh server doctor              only the steps whose names contain a word
#
# Everything happens in a new directory, which is removed at the end unless FIRST_DAY_DIR names it.
# shellcheck source=tests/first_day_lib.sh
. "$(dirname "$0")/first_day_lib.sh"

export MY_KEY=secret

install() {
  [ -z "${THESPIS_PYTHON:-}" ] || return 0
  local extras=language,serve,json,teams,games,spiel
  "${PYTHON3:-python3}" -m venv venv
  "$PYTHON" -m pip install --quiet --disable-pip-version-check -c "$ROOT/constraints.txt" "$ROOT[$extras]" jsonschema \
    >"$OUT" 2>"$ERR" || fail "pip install .[$extras]"
  verdict "pip install .[$extras]"
}

write_files() {
  cat >make_model.py <<'PY'
"""A small checkpoint with random weights, and chats in plain text."""
import json
from pathlib import Path

import jax
from thespis.language import hf_weights
from thespis.language.tokenizer import byte_tokenizer
from thespis.nets.decoder import DecoderConfig, init_decoder
from thespis.runtime.keys import seed_key

tokenizer = byte_tokenizer()
config = DecoderConfig(tokenizer.vocab_size, 32, 1, 1, 1, 32, 48)
hf_weights.save_pretrained(jax.jit(lambda key: init_decoder(config, key))(seed_key(0)), Path("model"), max_length=512)
tokenizer.save("model")
Path("model/tokenizer_config.json").write_text(json.dumps({"eos_token": "<end>", "pad_token": "<pad>"}))


def write(name, rows):
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


short = [{"prompt": f"{i}?", "completion": f"{i}!"} for i in range(20)]
write("chats.jsonl", short)
write("held.jsonl", [{"prompt": f"{i}?", "completion": f"{i}!"} for i in range(20, 26)])
write("outlier.jsonl", [*short, {"prompt": "all?", "completion": "no " * 130}])
write("pairs.jsonl", [{"prompt": f"{i}?", "chosen": f"{i}!", "rejected": f"{i + 1}."} for i in range(12)])
write("held_pairs.jsonl", [{"prompt": f"{i}?", "chosen": f"{i}!", "rejected": f"{i + 1}."} for i in range(12, 16)])
write("messages.jsonl", [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}])
write("tools.jsonl", [{"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function"}]}])
write("roles.jsonl", [{"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]}])
PY
  cat >meeting.py <<'PY'
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Meeting(ParallelEnv):
    """Two agents are rewarded for being close; ten steps."""

    metadata = {"name": "meeting"}
    possible_agents = ["a", "b"]

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (2,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3)

    def reset(self, seed=None, options=None):
        self.agents, self.time = list(self.possible_agents), 0
        self.places = np.random.default_rng(seed).uniform(-1, 1, 2).astype("float32")
        return dict.fromkeys(self.agents, self.places.copy()), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.time += 1
        moves = np.array([actions[agent] - 1 for agent in self.agents])
        self.places = np.clip(self.places + 0.2 * moves, -1, 1).astype("float32")
        agents, done, reward = self.agents, self.time == 10, -float(abs(self.places[0] - self.places[1]))
        self.agents = [] if done else agents
        no = dict.fromkeys(agents, False)
        return (dict.fromkeys(agents, self.places.copy()), dict.fromkeys(agents, reward), no,
                dict.fromkeys(agents, done), {agent: {} for agent in agents})
PY
  cat >speed.py <<'PY'
"""Updates per second of two runs, by their own clocks; the ratio is printed."""
import csv
import sys

speeds = []
for path in sys.argv[1:]:
    rows = list(csv.DictReader(open(f"{path}/progress.csv")))
    first, last = rows[len(rows) // 5], rows[-1]
    speeds.append((float(last["step"]) - float(first["step"])) / (float(last["elapsed"]) - float(first["elapsed"])))
print(f"ratio {speeds[1] / speeds[0]:.3f}")
sys.exit(speeds[1] < 0.3 * speeds[0])
PY
  cat >client.py <<'PY'
"""Requests to a server on port $PORT: hostile ones get 400, constrained ones answer in JSON that validates."""
import json
import os
import urllib.error
import urllib.request

import jsonschema


def ask(body, path="chat/completions"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    url = f"http://127.0.0.1:{os.environ['PORT']}/v1/{path}"
    headers = {"Authorization": "Bearer secret", "Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=300) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def chat(**fields):
    return {"model": "model", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8} | fields


status, answer = ask(chat(logprobs=True, top_logprobs=3))
assert status == 200 and len(answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 3, answer
status, answer = ask({"model": "model", "prompt": ["a", "b"], "max_tokens": 4}, "completions")
assert status == 200 and len(answer["choices"]) == 2, answer
for wrong in (chat(messages=[{"role": "user", "content": "a" * 100_000}]), chat(temperature=10**400), chat(tools=[{}]),
              chat(messages=[{"role": "assistant", "content": "a"}]), b'{"model": "\\ud800"}', chat(beams=3)):
    status, answer = ask(wrong)
    assert status == 400 and answer["error"]["message"], (status, answer)
print("server answers and refuses")
point = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 9}, "on": {"type": "boolean"}},
         "required": ["x", "on"], "additionalProperties": False}
for schema in (point, {"type": "array", "items": point, "minItems": 1, "maxItems": 2}, {"enum": ["a", "b", None]}):
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    status, answer = ask(chat(response_format=form, max_tokens=100, n=4, temperature=2, seed=1))
    assert status == 200, answer
    for choice in answer["choices"]:
        assert choice["finish_reason"] == "stop", choice
        jsonschema.validate(json.loads(choice["message"]["content"]), schema)
status, answer = ask(chat(response_format={"type": "json_object"}, max_tokens=60))
assert status == 200 and answer["choices"][0]["message"]["content"].startswith("{"), answer
status, answer = ask(chat(response_format={"type": "xml"}))
assert status == 400, answer
print("json validates")
PY
  py make_model.py
  code 0 && file model/config.json
  verdict "a small checkpoint and chats are written"
}

errors() {
  refused "chats without a model: --model is named" '--model' train sft --data chats.jsonl --steps 2
  refused "a model that is not there" 'does not exist, and nothing is downloaded' \
    train sft --data chats.jsonl --model org/name --steps 2
  refused "roles out of order: line and message" 'line 1' train sft --data roles.jsonl --model model --steps 2
  refused "rows with tools: what to do" 'tools' train sft --data tools.jsonl --model model --steps 2
  refused "held-out data without data" '--eval-data held.jsonl is for runs that learn from data' \
    train ppo --env probe:maze --eval-data held.jsonl --steps 10
  refused "the arena without a run: its name" 'runs/none' arena runs/none bot:random --env pgx:tic_tac_toe
}

data() {
  t train sft --data chats.jsonl --eval-data held.jsonl --model model --steps 60 --seeds 2 --out runs/sft \
    --set learning_rate=1e-2 batch_size=8
  code 0 && out 'sft on a dataset . 60 updates per seed' && out 'held-out data: perplexity' &&
    out 'finished at 60 updates per seed' && file runs/sft/held_out.jsonl
  verdict "sft on chats, with perplexity on held-out ones"
  t report runs/sft
  code 0 && holds runs/sft/report.html 'Finished: 60 updates per seed. Held-out data: perplexity' &&
    holds runs/sft/report.html 'model: model \([0-9,]+ parameters\)'
  verdict "its report is finished, and names the model and its size"
  check "evaluate on other held-out data" evaluate runs/sft --eval-data chats.jsonl -- perplexity
  t train sft --data chats.jsonl --eval-data held.jsonl --model model --steps 20 --out runs/short --quiet \
    --set learning_rate=1e-3 batch_size=8
  check "compare two runs from data" compare runs/sft runs/short -- 'Held-out perplexity'
  refused "record without an environment says so" 'without an environment to play in' record runs/sft
  "$PYTHON" -m thespis chat runs/sft --seed 1 --length 4 >"$OUT" 2>"$ERR" <<<"1?"
  CODE=$?
  code 0 && out 'the model responds'
  verdict "chat with a run from data"
  t train dpo --data pairs.jsonl --eval-data held_pairs.jsonl --model model --steps 20 --out runs/dpo \
    --set learning_rate=3e-3
  code 0 && out 'held-out data: accuracy'
  verdict "dpo, with accuracy on held-out pairs"
  check "sft on preference pairs learns the chosen answers" train sft --data pairs.jsonl --model model --steps 2 \
    --out runs/chosen -- 'it learns the chosen ones alone'
  check "rows in the format of TRL" train sft --data messages.jsonl --model model --steps 2 --out runs/trl -- finished
}

lengths() {
  t train sft --data chats.jsonl --model model --steps 200 --out runs/even --quiet
  t train sft --data outlier.jsonl --model model --steps 200 --out runs/outlier
  code 0 && err 'line 21: this chat has [0-9]+ tokens, and most have at most' || out 'line 21: this chat has'
  verdict "one long chat is named with its line"
  py speed.py runs/even runs/outlier
  code 0
  verdict "one long chat does not slow all updates ($(cat "$OUT"))"
  check "feed.max_tokens cuts it" train sft --data outlier.jsonl --model model --steps 2 --out runs/cut \
    --set feed.max_tokens=64 -- 'with feed.max_tokens=64: chats cut: 0, rows left out: 1'
}

server() {
  export PORT
  PORT=$("$PYTHON" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  "$PYTHON" -m thespis serve model --port "$PORT" --key-variable MY_KEY >serve.log 2>&1 &
  local server=$!
  until grep -q 'Ctrl-C stops' serve.log; do kill -0 "$server" 2>/dev/null || break; sleep 0.5; done
  py client.py
  out 'server answers and refuses'
  verdict "the server answers, and refuses hostile requests with 400"
  code 0 && out 'json validates'
  verdict "response_format: answers of random weights parse and validate"
  kill -INT "$server" 2>/dev/null
  wait "$server"
}

doctor() {
  local env
  for env in text:echo pettingzoo:mpe/simple_spread_v3 meeting:Meeting openspiel:kuhn_poker jaxmarl:MPE_simple_spread_v3 \
    text:kuhn-duel; do
    t doctor "$env" --seconds 30
    code 0 && out 'ok +environment' && out 'nothing failed'
    verdict "doctor $env"
  done
}

teams() {
  t train qmix --env jaxmarl:MPE_simple_spread_v3 --steps "${QMIX_STEPS:-60000}" --seeds 3 --episodes 200 --out runs/qmix --json
  code 0 && ! grep -q 'values left the range' "$OUT" "$ERR" || fail "values left the range of possible returns"
  "$PYTHON" -c '
import json
scores = [sum(x) / len(x) for x in json.load(open("runs/qmix/final.json"))["greedy"]["scores"]]
print("greedy returns", *(round(x, 1) for x in scores))
raise SystemExit(min(scores) < -24)' >"$OUT" 2>"$ERR" || fail "a greedy return below -24 (mean over agents)"
  verdict "qmix learns simple spread with its defaults: $(cat "$OUT")"
  t train qmix --env meeting:Meeting --steps 400 --episodes 4 --out runs/meeting --set learning_starts=100 batch_size=16
  code 0 && out '400 environment steps per seed' && file runs/meeting/final.json
  verdict "qmix on a ParallelEnv of my own"
}

games() {
  check "self-play trains all players" train ppo --env pgx:tic_tac_toe --steps 2048 --envs 8 --episodes 8 \
    --out runs/self-play --set num_steps=32 hidden_sizes=16 num_epochs=1 -- 'finished at'
  check "the arena rates it against random moves" arena runs/self-play bot:random --games 8 -- 'Ratings on pgx:tic_tac_toe'
}

STEPS=(errors data lengths server doctor teams games)
chosen() { [ $# = 1 ] && return 0; local step=$1 word; shift; for word; do [[ $step == *$word* ]] && return 0; done; return 1; }

install
write_files
for step in "${STEPS[@]}"; do
  chosen "$step" "$@" && $step
done
printf '%s passed, %s failed\n' "$PASSED" "$FAILED"
[ "$FAILED" = 0 ]
