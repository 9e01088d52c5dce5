"""Checks of language model methods: each must learn to repeat the word of the prompt, from rewards alone.

Offline methods learn from a demonstrator that often repeats the wrong word, and from its rewards.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from typing import Any

import jax

from thespis.cli.doctor_checks.check import CheckFailure
from thespis.core.contracts import Mode
from thespis.core.records import Transition
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Episodes, Replay, Rollouts
from thespis.envs.host.wrapper import HostWrapper
from thespis.envs.text.echo import WORDS, Echo
from thespis.envs.text.review import Review
from thespis.envs.text.task import TextEnv
from thespis.evaluation.rollout import play_episodes
from thespis.feedback.environment import EnvironmentReward
from thespis.language import hf_weights
from thespis.learners.language.advantage_estimators import LeaveOneOut, RewardToGo
from thespis.learners.language.implicit_reward import ImplicitReward
from thespis.learners.language.preference_losses import SigmoidLoss
from thespis.learners.language.response_critics import ReferenceCritic, SoftValueCritic, SuccessCritic
from thespis.learners.off_policy.temperature import FixedTemperature
from thespis.methods.language.archer import ArCHer
from thespis.methods.language.dpo import DPO
from thespis.methods.language.glam import GLAM
from thespis.methods.language.grpo import GRPO
from thespis.methods.language.kto import KTO
from thespis.methods.language.online_dpo import OnlineDPO
from thespis.methods.language.ppo_lm import LanguagePPO
from thespis.methods.language.reinforce import REINFORCE
from thespis.methods.language.rloo import RLOO
from thespis.methods.language.rm import RM
from thespis.methods.language.rto import RTO
from thespis.methods.language.sft import SFT
from thespis.methods.language.spin import SPIN
from thespis.methods.online.ppo import PPO
from thespis.methods.online.sac import SAC
from thespis.papers.a_lol.method import ALoL
from thespis.papers.agentprm.method import AgentPRM
from thespis.papers.criticcontrol.method import CriticControl
from thespis.papers.direct_advantage_policy_optimization.method import DirectAdvantagePolicyOptimization
from thespis.papers.oreo.method import OREO
from thespis.papers.sac_glam.method import SACGLAM
from thespis.papers.score.attempt_progress import AttemptProgress
from thespis.papers.score.method import SCoRe
from thespis.papers.spiral.method import SPIRAL
from thespis.papers.sweet_rl.method import SWEET
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components, with_array_leaves
from thespis.training.data_sources import demonstration_dataset
from thespis.training.logged_loop import LoggedLoop

_NUM_TURNS, _NUM_BLOCKS, _NUM_EVAL_BLOCKS = 1, 300, 20
_SEEDS, _MIN_ACCURACY, _MIN_ACCURACY_OFFLINE = list(range(8)), 0.6, 0.75
"""Accuracy is the mean over seeds, which train together: with most methods some seed in eight settles on a wrong word,
and which seed it is differs with the processor. Offline methods must beat the demonstrator, who is right in 62%."""
_NUM_BLOCKS_OF_A_CRITIC, _SEEDS_OF_A_CRITIC, _MIN_ACCURACY_OF_A_CRITIC = 500, list(range(4)), 0.45
"""Where a critic must first learn which responses are right: more seeds settle on a wrong word, and all take longer."""
_NUM_DEMONSTRATIONS, _NUM_UPDATES, _NUM_EPISODES = 256, 150, 64 * len(_SEEDS)
_MIN_PRAISE = 0.2
"""Per clause; without guidance half of the clauses are praise, which gives 0."""
_ENV_REWARD = EnvironmentReward()


def language_checks() -> list[tuple[str, Callable[[], str]]]:
    """Names and functions of the checks."""
    small: dict[str, Any] = {"model": "blank", "num_layers": 1, "hidden_size": 32, "minibatch_size": 64}
    small |= {"learning_rate": 3e-3, "feed": Episodes(_NUM_TURNS, group_size=8, num_envs=64)}
    online_methods = [
        GRPO(**small),
        RLOO(**small),
        REINFORCE(**small, advantage_estimator=RewardToGo(LeaveOneOut())),
    ]
    slower: dict[str, Any] = small | {"learning_rate": 1e-3}
    ungrouped: dict[str, Any] = slower | {"feed": Episodes(_NUM_TURNS, group_size=1, num_envs=64)}
    archer = ArCHer(**ungrouped)
    online_methods += [LanguagePPO(**slower), RTO(**slower), SPIRAL(**small), *_choice_methods()]
    checks: list[tuple[str, Callable[[], str]]] = [
        (f"{method.name} on echo", lambda method=method: _check_online(method)) for method in online_methods
    ]
    with_critic: dict[str, Any] = {"num_blocks": _NUM_BLOCKS_OF_A_CRITIC, "seeds": _SEEDS_OF_A_CRITIC}
    with_critic["min_accuracy"] = _MIN_ACCURACY_OF_A_CRITIC
    checks.append((f"{archer.name} on echo", lambda: _check_online(archer, **with_critic)))
    pairs: dict[str, Any] = {"model": "blank", "num_layers": 1, "hidden_size": 32, "learning_rate": 3e-3}
    online_dpo = OnlineDPO(**pairs, feed=Episodes(_NUM_TURNS, group_size=2, num_envs=64))
    checks.append((f"{online_dpo.name} on echo", lambda: _check_online(online_dpo)))
    checks.append(("score on echo", lambda: _check_online(SCoRe(**small), AttemptProgress())))
    offline_settings: dict[str, Any] = {"num_layers": 1, "hidden_size": 32, "learning_rate": 3e-3}
    slow_offline_settings: dict[str, Any] = offline_settings | {"learning_rate": 1e-3}
    offline_methods = [
        SFT(**offline_settings, min_return=1.0),
        DPO(**slow_offline_settings),
        KTO(**slow_offline_settings),
        SPIN(**slow_offline_settings, ref_sync_interval=10),
    ]
    offline_methods += [
        ALoL(**slow_offline_settings, critic=ReferenceCritic(30)),
        OREO(**slow_offline_settings, critic=SoftValueCritic(0.1, learning_rate=1e-3)),
        DirectAdvantagePolicyOptimization(**slow_offline_settings, critic=SuccessCritic(1.0, 50, 3e-3)),
    ]
    checks += [(f"{method.name} on echo", lambda method=method: _check_offline(method)) for method in offline_methods]
    sweet_settings: dict[str, Any] = offline_settings | {"learning_rate": 2e-3}
    sweet = SWEET(**sweet_settings, critic=ImplicitReward(0.1, 50, 1e-3))
    checks.append((f"{sweet.name} on echo", lambda: _check_offline(sweet, 2 * _NUM_UPDATES)))
    checks.append((f"{RM.name} on echo", _check_reward_model))
    checks.append((f"{AgentPRM.name} on echo", _check_agent_prm))
    return [*checks, (f"{CriticControl.name} on reviews", _check_critic_control)]


def _choice_methods() -> list[Any]:
    """Methods that choose among listed responses."""
    small: dict[str, Any] = {"model": "blank", "num_layers": 1, "hidden_size": 32}
    ppo = PPO(learning_rate=1e-3, hidden_sizes=(16,), num_epochs=4, feed=Rollouts(_NUM_TURNS, num_envs=64))
    replay = Replay(batch_size=64, learning_starts=64, num_envs=64)
    sac = SAC(learning_rate=3e-3, temperature=FixedTemperature(0.02), hidden_sizes=(16,), feed=replay)
    return [GLAM(**small, method=ppo), SACGLAM(**small, method=sac, critic_warmup_updates=20)]


def _train_offline(
    method: Any,
    environment: TextEnv,
    demonstrations: Transition,
    num_updates: int = _NUM_UPDATES,
    seeds: list[int] = _SEEDS,
) -> Any:
    components = Components(method, EnvironmentReward(), FixedCurriculum())
    loop = LoggedLoop(components, environment.spec, demonstrations, seeds)
    return loop.learner_state(loop.advance(loop.init(), num_updates)).method


def _save_reference(directory: str, environment: TextEnv, demonstrations: Transition, num_layers: int = 1) -> None:
    """Save a model that was fine-tuned on demonstrations, as a reference."""
    model = _train_offline(
        SFT(num_layers=num_layers, hidden_size=32, learning_rate=3e-3), environment, demonstrations, seeds=_SEEDS[:1]
    ).model
    hf_weights.save_pretrained(jax.tree.map(lambda x: x[0], model), directory)


def _check_offline(method: Any, num_updates: int = _NUM_UPDATES) -> str:
    """Train on demonstrations; methods with a reference model start from one fine-tuned on the noisy demonstrations."""
    env = TextEnv(Echo(max_turns=_NUM_TURNS))
    expert, noisy = (
        demonstration_dataset(TextEnv(Echo(_NUM_TURNS, noise)), _NUM_DEMONSTRATIONS).steps for noise in (0.0, 0.5)
    )
    with tempfile.TemporaryDirectory() as directory:
        if method.uses_reference:
            _save_reference(directory, env, noisy)
        method = dataclasses.replace(method, model=directory if method.uses_reference else "blank")
        # SPIN imitates demonstrations and needs good ones
        states = _train_offline(method, env, expert if isinstance(method, SPIN) else noisy, num_updates)
    result = play_episodes(with_array_leaves(method), states, HostWrapper(env, _NUM_EPISODES), _SEEDS, Mode.SAMPLE)
    return _describe_accuracy(method, float(result.episode_returns.mean()) / _NUM_TURNS, _MIN_ACCURACY_OFFLINE)


def _check_online(
    method: Any,
    feedback: Any = _ENV_REWARD,
    num_blocks: int = _NUM_BLOCKS,
    min_accuracy: float = _MIN_ACCURACY,
    seeds: list[int] = _SEEDS,
) -> str:
    env = TextEnv(Echo(max_turns=_NUM_TURNS))
    components = Components(method, feedback, FixedCurriculum())
    loop = CompiledLoop(components, env, method.feed.num_envs, seeds, 64 * num_blocks)
    carry, _ = loop.pop_metric_sums(loop.advance(loop.init(), num_blocks - _NUM_EVAL_BLOCKS))
    _, metric_sums = loop.pop_metric_sums(loop.advance(carry, _NUM_EVAL_BLOCKS))
    returns = metric_sums.return_sum / metric_sums.num_episodes
    return _describe_accuracy(method, float(returns.mean()) / _NUM_TURNS, min_accuracy)


def _check_agent_prm() -> str:
    """Train on own rollouts, from a model that was fine-tuned on noisy demonstrations: it needs some successes."""
    env = TextEnv(Echo(max_turns=_NUM_TURNS))
    noisy = demonstration_dataset(TextEnv(Echo(_NUM_TURNS, 0.5)), _NUM_DEMONSTRATIONS).steps
    small: dict[str, Any] = {"learning_rate": 1e-3, "model_learning_rate": 3e-3, "loss_type": SigmoidLoss(3.0)}
    small |= {"num_model_steps": 200, "model_batch_size": 64, "num_policy_steps": 10, "policy_batch_size": 64}
    with tempfile.TemporaryDirectory() as directory:
        _save_reference(directory, env, noisy)
        feed = Episodes(_NUM_TURNS, group_size=8, num_envs=64)
        method = AgentPRM(model=directory, feed=feed, **small)
        return _check_online(method, num_blocks=2 * _NUM_EVAL_BLOCKS, seeds=_SEEDS_OF_A_CRITIC)


def _check_reward_model() -> str:
    """Check that the best of some responses of a noisy model, by a reward learned from pairs of them, is right."""
    env = TextEnv(Echo(max_turns=_NUM_TURNS))
    noisy = demonstration_dataset(TextEnv(Echo(_NUM_TURNS, 0.5)), 2 * _NUM_DEMONSTRATIONS).steps
    # one layer seldom tells all wrong words from the right one
    method = RM(num_layers=2, hidden_size=32, learning_rate=1e-3, num_candidates=8)
    with tempfile.TemporaryDirectory() as directory:
        _save_reference(directory, env, noisy, num_layers=2)
        method = dataclasses.replace(method, model=directory)
        states = _train_offline(method, env, noisy, 2 * _NUM_UPDATES)
    result = play_episodes(with_array_leaves(method), states, HostWrapper(env, _NUM_EPISODES), _SEEDS, Mode.SAMPLE)
    return _describe_accuracy(method, float(result.episode_returns.mean()) / _NUM_TURNS, _MIN_ACCURACY_OFFLINE)


def _check_critic_control() -> str:
    """Check that guidance by a learned critic raises the share of praise of a fixed model."""
    task = Review(mood_persistence=0.5)
    env, feed = TextEnv(task), Episodes(_NUM_TURNS, num_envs=64)
    method = CriticControl(
        num_layers=1, hidden_size=32, learning_rate=0.1, num_critic_updates=20, guidance_scale=4.0, feed=feed
    )
    with tempfile.TemporaryDirectory() as directory:
        _save_reference(directory, env, demonstration_dataset(env, _NUM_DEMONSTRATIONS).steps)
        method = dataclasses.replace(method, model=directory)
        loop = CompiledLoop(
            Components(method, EnvironmentReward(), FixedCurriculum()), env, method.feed.num_envs, _SEEDS, 10
        )
        states = loop.learner_state(loop.advance(loop.init(), _NUM_UPDATES)).method
    result = play_episodes(with_array_leaves(method), states, HostWrapper(env, _NUM_EPISODES), _SEEDS, Mode.SAMPLE)
    praise = float(result.episode_returns.mean()) / task.num_clauses
    if praise < _MIN_PRAISE:
        raise CheckFailure(
            f"{method.name} reaches {praise:.2f} of praise per clause by guidance, from 0 to 1: report it"
        )
    return f"guidance reaches {praise:.2f} of praise per clause, from 0 to 1; without guidance 0"


def _describe_accuracy(method: Any, accuracy: float, min_accuracy: float) -> str:
    if accuracy < min_accuracy:
        raise CheckFailure(
            f"{method.name} repeats the word of the prompt {accuracy:.0%} of the time, which is too rarely: report it"
        )
    return (
        f"repeats the word of the prompt {accuracy:.0%} of the time; at random {1 / len(WORDS):.0%} of words are right"
    )
