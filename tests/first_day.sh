#!/usr/bin/env bash
# The first day of a new user, command by command: every step checks exit code and output, and prints one line.
#
#   tests/first_day.sh                            in a new environment, from `pip install .[control]` on
#   THESPIS_PYTHON=.venv/bin/python tests/first_day.sh   with a Python in which the package is installed
#   tests/first_day.sh ranges data                only the steps whose names contain a word (those they need run too)
#
# Everything happens in a new directory, which is removed at the end unless FIRST_DAY_DIR names it.
# shellcheck source=tests/first_day_lib.sh
. "$(dirname "$0")/first_day_lib.sh"

export MINARI_DATASETS_PATH=$WORK/minari
SMALL=(--envs 4 --episodes 4 --set hidden_sizes=8 num_steps=64 num_epochs=2)

install() {
  [ -z "${THESPIS_PYTHON:-}" ] || return 0
  "${PYTHON3:-python3}" -m venv venv && pip_install control,track
}

pip_install() { # EXTRAS: into the environment of this script only
  [ -z "${THESPIS_PYTHON:-}" ] || return 0
  "$PYTHON" -m pip install --quiet --disable-pip-version-check -c "$ROOT/constraints.txt" "$ROOT[$1]" >"$OUT" 2>"$ERR" ||
    fail "pip install .[$1]"
  verdict "pip install .[$1]"
}

write_modules() {
  cat >drift.py <<'PY'
import gymnasium as gym
import numpy as np


class Drift(gym.Env):
    """Stay near 0 for 20 steps."""

    observation_space = gym.spaces.Box(-4.0, 4.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    return_bounds = (-80.0, 20.0)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = float(self.np_random.uniform(-1, 1)), 0
        return self.observation(), {}

    def step(self, action):
        self.x = float(np.clip(self.x + 0.2 * float(action[0]) + self.np_random.normal(0, 0.1), -4, 4))
        self.steps += 1
        return self.observation(), 1.0 - abs(self.x), False, self.steps == 20, {}

    def observation(self):
        return np.array([self.x], np.float32)

    def get_state(self):
        return {"x": self.x, "steps": self.steps}

    def set_state(self, state):
        self.x, self.steps = state["x"], state["steps"]


class Faulty(Drift):
    count = 0

    def step(self, action):
        Faulty.count += 1
        if Faulty.count > 300:
            raise ZeroDivisionError("the motor is off")
        return super().step(action)


class Untidy(Drift):
    """Observations out of bounds, in float64."""

    def observation(self):
        return np.array([self.x + 9.0])
PY
}

first_run() {
  t train ppo --env CartPole-v1 --steps 4096 --seeds 3 --evaluate-every 1024 --out runs/ppo --tensorboard tb "${SMALL[@]}"
  code 0 && out '3 seeds \(0, 1, 2\)' && out '[0-9]%.*steps/s' && out 'finished at 4,096 environment steps' && file runs/ppo/report.html
  out 'thespis evaluate runs/ppo'
  verdict "train PPO on CartPole: seeds, progress lines, results, next commands"
  true_in_python 'all(0 <= x <= 500 for m in ("greedy", "sampled") for x in read("runs/ppo/final.json")[m]["interval"])'
  verdict "intervals stay within the possible returns"
}

resume_longer() {
  cp -r runs/ppo runs/longer
  t resume runs/longer --steps 6144
  code 0 && true_in_python 'read("runs/longer/run.json")["steps"] == 6144 == read("runs/longer/final.json")["step"]'
  verdict "resume --steps: a finished run goes on"
}

start_from_another() {
  t train ppo --env CartPole-v1 --steps 1024 --init-from runs/ppo --seeds 3 --out runs/further --quiet "${SMALL[@]}"
  code 0 && true_in_python '"runs/ppo" in read("runs/further/run.json")["init_from"]["run"]'
  verdict "--init-from: start with the parameters of another run"
}

best_checkpoint() {
  t evaluate runs/ppo --checkpoint best --episodes 4 --json
  code 0 && true_in_python 'read("stdout")["step"] % 1024 == 0 and not read("stdout")["warnings"]'
  verdict "evaluate --checkpoint best"
}

damaged_checkpoint() {
  rm -rf runs/damaged && cp -r runs/ppo runs/damaged
  local newest
  newest=$(ls runs/damaged/checkpoints/step_* | tail -1)
  printf 'torn' >"$newest"
  local command
  for command in "evaluate runs/damaged --episodes 2" "record runs/damaged" "report runs/damaged"; do
    # shellcheck disable=SC2086
    t $command --json
    code 0 && err "warning: .*$(basename "$newest")" && true_in_python 'len(read("stdout")["warnings"]) == 1'
    [ "$(grep -c warning: "$ERR")" = 1 ] || fail "$command warns $(grep -c warning: "$ERR") times"
    verdict "${command%% *}: a damaged checkpoint is named on stderr and in the JSON"
  done
}

own_exception() {
  t train ppo --env drift:Faulty --steps 4096 --out runs/faulty --quiet "${SMALL[@]}"
  code 2 && err 'File ".*drift.py", line [0-9]+, in step' && err 'raise ZeroDivisionError' && err 'the motor is off'
  ! grep -q Traceback "$ERR" || fail "a traceback without --traceback"
  verdict "an exception in my environment: my file and line"
  t train ppo --env drift:Faulty --steps 4096 --out runs/faulty2 --quiet --traceback "${SMALL[@]}"
  code 2 && err 'Traceback \(most recent call last\)' && err 'the motor is off'
  verdict "--traceback shows everything"
}

ranges() {
  refused "range: learning_rate=-1" 'learning_rate=-1.* out of range.* at least 0' \
    train ppo --env CartPole-v1 --steps 64 --set learning_rate=-1
  refused "range: discount=1.5" 'discount=1.5 is out of range: it must be in \[0, 1\]' \
    train ppo --env CartPole-v1 --steps 64 --set discount=1.5
  refused "range: num_epochs=0" 'num_epochs=0 is out of range: it must be at least 1' \
    train ppo --env CartPole-v1 --steps 64 --set num_epochs=0
  refused "range: feed.batch_size=0" 'batch_size=0 is out of range: it must be at least 1' \
    train sac --env Pendulum-v1 --steps 64 --set feed.batch_size=0
  py -c 'import thespis; thespis.train(thespis.PPO(discount=1.5), env="CartPole-v1", steps=64)'
  code 1 && err 'UserError: setting discount=1.5 is out of range'
  verdict "ranges hold in Python too"
}

names() {
  refused "gamma is called discount" 'gamma.*discount' train ppo --env CartPole-v1 --steps 64 --set gamma=0.9
  refused "--learning-rate is a setting" 'did you mean --set learning_rate' \
    train ppo --env CartPole-v1 --steps 64 --learning-rate 1e-3
  py -c 'import thespis; thespis.train(thespis.PPO(activation=lambda x: x), env="CartPole-v1", steps=64)'
  code 1 && err 'UserError: setting activation is a lambda which cannot be saved'
  verdict "a lambda is refused by the name of its setting"
}

seeds() {
  t train ppo --env CartPole-v1 --steps 256 --seed 7 --out runs/seed "${SMALL[@]}"
  code 0 && out '1 seed \(7\)' && true_in_python 'read("runs/seed/run.json")["seeds"] == [7]'
  verdict "--seed 7 trains the seed 7"
  t train ppo --env CartPole-v1 --steps 256 --seeds 2 --out runs/seeds "${SMALL[@]}"
  code 0 && out '2 seeds \(0, 1\)'
  verdict "--seeds 2 trains two"
}

own_environment() {
  t train ppo --env drift:Drift --steps 1024 --seeds 3 --out runs/drift --quiet "${SMALL[@]}"
  code 0 && true_in_python 'read("runs/drift/final.json")["return_bounds"] == [-80.0, 20.0]'
  true_in_python 'read("runs/drift/final.json")["greedy"]["interval"][1] <= 20'
  verdict "my environment declares its return's bounds"
  t train ppo --env drift:Drift --steps 512 --seeds 3 --out runs/half --quiet "${SMALL[@]}"
  code 0
  t resume runs/half --steps 1024 --trust drift --quiet
  code 0 && true_in_python 'read("runs/half/final.json")["state_hash"] == read("runs/drift/final.json")["state_hash"]'
  verdict "with get_state and set_state, my environment resumes exactly"
  refused "a run with my code is refused by name" 'names drift:Drift.*--trust drift' evaluate runs/drift --episodes 2
  t evaluate runs/drift --episodes 2 --trust drift
  code 0
  verdict "--trust drift allows it"
  t train ppo --env drift:Untidy --steps 512 --out runs/untidy --quiet "${SMALL[@]}"
  code 0 && err 'float64' && err 'bound'
  [ "$(grep -c float64 "$ERR")" = 1 ] || fail "float64 is warned about $(grep -c float64 "$ERR") times"
  verdict "float64 and out of bounds are warned about once"
}

doctor() {
  local began=$SECONDS
  t doctor drift:Drift --seconds 30
  code 0
  [ $((SECONDS - began)) -le 60 ] || out 'skipped'
  verdict "doctor: within a minute, or it says what it skipped"
}

compare() {
  t train a2c --env CartPole-v1 --steps 2048 --seeds 3 --out runs/a2c --quiet --envs 4 --episodes 4 --set hidden_sizes=8
  code 0
  t compare runs/ppo runs/a2c
  code 0 && out 'for a plot: thespis compare runs/ppo runs/a2c --plot'
  t compare runs/ppo runs/a2c --plot comparison.svg
  code 0 && file comparison.svg && out 'plot: comparison.svg'
  verdict "compare: the verdict and its plot"
}

report() {
  t report runs/ppo
  code 0 && out 'report +runs/ppo/report.html' && out 'film +Greedy play of seed'
  holds runs/ppo/report.html 'training time in ' && holds runs/ppo/report.html 'data:image/webp;base64,'
  [ "$(wc -c <runs/ppo/report.html)" -lt 3000000 ] || fail "the report has $(wc -c <runs/ppo/report.html) bytes"
  verdict "report: curves over wall-clock time, and a film of the policy"
  t report runs/drift --trust drift
  code 0 && out 'film .*plotted, because'
  verdict "report: says that my environment cannot render itself"
}

logs() {
  cat >logs.py <<'PY'
"""My own logs, in every format that this day needs."""
import json
import os
import sys

import gymnasium
import numpy as np

env, rows = gymnasium.make("CartPole-v1"), []
for seed in range(10):
    observation, _ = env.reset(seed=seed)
    over = False
    while not over:
        action = int(observation[2] + 0.3 * observation[3] > 0)
        following, reward, terminated, truncated, _ = env.step(action)
        rows.append((observation, action, reward, terminated, truncated))
        observation, over = following, terminated or truncated
names = ("observation", "action", "reward", "terminated", "truncated")
columns = {name: np.array(values) for name, values in zip(names, zip(*rows))}
if sys.argv[1] == "npz":
    np.savez("logs.npz", **columns)
elif sys.argv[1] == "arrow":
    import pyarrow as pa

    table = pa.table({name: columns[name].tolist() for name in ("observation", "action", "reward")})
    table = table.append_column("done", pa.array((columns["terminated"] | columns["truncated"]).tolist()))
    os.mkdir("hub")
    with pa.OSFile("hub/data-00000-of-00001.arrow", "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_indices_data_files": None}
    json.dump(state, open("hub/state.json", "w"))
else:
    import h5py

    ends = np.flatnonzero(columns["terminated"] | columns["truncated"]) + 1
    with h5py.File("replay.h5", "w") as file:
        file["columns"], file["num_episodes"], file["version"] = list(names[:4]), len(ends), "2.1"
        for i, (low, high) in enumerate(zip([0, *ends[:-1]], ends)):
            file[f"observations_{i}"] = columns["observation"][low:high]
            file[f"actions_{i}"] = columns["action"][low:high, None]
            file[f"rewards_{i}"] = columns["reward"][low:high, None]
            file[f"terminated_{i}"] = bool(columns["terminated"][high - 1])
PY
}

data() {
  logs
  py logs.py npz
  t train bc --data logs.npz --env CartPole-v1 --steps 100 --episodes 2 --out runs/npz --quiet
  code 0 && file runs/npz/final.json
  verdict "my logs in logs.npz train a policy"
  if ! "$PYTHON" -c 'import pyarrow, h5py, minari' 2>/dev/null; then
    printf 'x' >replay.h5
    refused "without h5py: how to install it" 'pip install "thespis-rl\[data\]"' \
      train bc --data replay.h5 --env CartPole-v1 --steps 10
    pip_install data
  fi
  refused "a Minari dataset that is not there: how to download it" 'minari download no/such-v0' \
    train bc --data minari:no/such-v0 --env CartPole-v1 --steps 10
  py logs.py arrow
  t train bc --data hub --env CartPole-v1 --steps 100 --episodes 2 --out runs/hub
  code 0 && file runs/hub/final.json && out 'every done counts as a termination'
  verdict "a dataset of Hugging Face on disk"
  py logs.py h5
  t train dqn --data replay.h5 --env CartPole-v1 --steps 50 --episodes 2 --out runs/replay --quiet
  code 0 && file runs/replay/final.json
  verdict "a dataset of d3rlpy"
}

STEPS=(first_run resume_longer start_from_another best_checkpoint damaged_checkpoint own_exception ranges names seeds
  own_environment doctor compare report data)
chosen() { [ $# = 1 ] && return 0; local step=$1 word; shift; for word; do [[ $step == *$word* ]] && return 0; done; return 1; }
need() { # a run that a chosen step needs, made without a verdict
  [ -e "runs/$1" ] || { shift; t "$@"; }
}

install
write_modules
for step in "${STEPS[@]}"; do
  chosen "$step" "$@" || continue
  case $step in
    resume_longer | start_from_another | best_checkpoint | damaged_checkpoint | compare | report)
      need ppo train ppo --env CartPole-v1 --steps 4096 --seeds 3 --evaluate-every 1024 --out runs/ppo "${SMALL[@]}" ;;&
    report) need drift train ppo --env drift:Drift --steps 1024 --seeds 3 --out runs/drift "${SMALL[@]}" ;;
  esac
  $step
done
printf '%s passed, %s failed\n' "$PASSED" "$FAILED"
[ "$FAILED" = 0 ]
