"""AgentPRM: process reward models for LLM agents."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.claims import Superiority
from thespis.evidence.language_tasks import THREE_TURN_SETTINGS
from thespis.evidence.measures import final_return, learning_curve_auc
from thespis.evidence.paper import Arm, Fidelity, Paper, Trial
from thespis.feedback.process_reward import ProcessReward
from thespis.learners.language.advantage_estimators import LeaveOneOut, NoBaseline, RewardToGo
from thespis.learners.language.policy_losses import ReverseKL
from thespis.methods.language.reinforce import REINFORCE

_TURN_REWARDS = REINFORCE(
    **THREE_TURN_SETTINGS,
    advantage_estimator=RewardToGo(NoBaseline(), 0.0),
    minibatch_size=64,
    kl_penalty=ReverseKL(0.01),
)
_OUTCOME_REWARD = REINFORCE(
    **THREE_TURN_SETTINGS, advantage_estimator=RewardToGo(LeaveOneOut()), minibatch_size=64, kl_penalty=ReverseKL(0.01)
)

PAPER = Paper(
    id="agentprm",
    name="AgentPRM",
    citation=Citation(
        "Process Reward Models for LLM Agents: Practical Framework and Directions",
        "Choudhury",
        2025,
        "arXiv:2502.10325",
    ),
    family="llm-agent-rl",
    summary="A process reward model learns from the outcomes of dialogues to predict success after each response; the "
    "policy is trained on its rewards turn by turn, with a KL penalty towards the initial policy, and both continue to "
    "learn.",
    claim="With process rewards, 3B models improve over iterations in ALFWorld and end above GPT-4o baselines.",
    parts=(
        "thespis.feedback.process_reward:ProcessReward",
        "thespis.methods.language.reinforce:REINFORCE",
    ),
    command="thespis train reinforce --env text:maze --model tiny --steps 50000 "
    "--feedback process-reward --set advantage_estimator.discount=0 kl_penalty=ReverseKL",
    miniature=Trial(
        arms=(
            Arm("process", _TURN_REWARDS, {"feedback": ProcessReward(buffer_size=256, num_warmup_batches=5)}),
            Arm("outcome", _OUTCOME_REWARD),
        ),
        envs=("thespis.evidence.language_tasks:MAZE_2X2",),
        steps=120 * 3 * 64,
        claims=(
            Superiority("process", "outcome", final_return("sampled")),
            Superiority("process", "outcome", learning_curve_auc()),
        ),
        seeds_per_look=5,
        max_looks=2,
        num_episodes=100,
    ),
    remarks="The miniature uses a text maze of four cells with at most three turns. A two-layer decoder, pretrained on "
    "demonstrations by a demonstrator that acts at random in two of four cells, replaces a 3B model cloned from an "
    "expert. Averaged targets, soft cross-entropy and a discount of 0.95 follow the authors' code, except that the "
    "discount is counted from the response to the end, that failures are 0, and that a pair of state and response "
    "counts as often as it occurred. Process rewards and policy are updated alternately on every batch, not in long "
    "iterations, and the last 256 dialogues are stored. REINFORCE with a KL penalty replaces online DPO: it learns "
    "from the responses of whole dialogues, each rewarded by its score minus the mean score of the batch's responses "
    "in the same state, where theirs compares two responses in states sampled from earlier rollouts. The baseline is "
    "the same method with the outcome reward to go minus that of the others in the group, which the paper does not "
    "try: its baselines are prompted and cloned models. For the first five batches the process arm is trained on the "
    "outcome reward. Not tried: InversePRM, which needs expert dialogues besides the agent's own; best-of-N search; "
    "exploration; shaping. Sizes were chosen after looking at one seed. These runs also led from PPO with standardized "
    "advantages and a learned baseline to the present method: where all responses are the same, those amplified noise, "
    "and the policy unlearned what it knew. The comparison method, until then PPO on the outcome reward, and the "
    "number of updates changed along with it; the claims did not. Contradicted: that learned process rewards teach "
    "more than the outcome; the final return is 0.66 against 0.97 of the maximum, with ten seeds per arm. Checked "
    "again: the targets and the rewards of responses agree with loops over the dialogues. Likely cause: with three "
    "turns and a group to compare with, the outcome reward to go is already informative and unbiased, while the "
    "process model is learned in the same time from 256 stored dialogues, and the policy also exploits its errors.",
    fidelity=(
        Fidelity(
            "policy's step",
            "online DPO: of two new responses at a state of the rollouts the process reward model prefers one; beta "
            "0.03",
            "REINFORCE with process rewards and a KL penalty; the method agent-prm, which is newer than this trial, "
            "makes the authors' step",
        ),
        Fidelity(
            "iterations",
            "few and long: rollouts, a new process reward model, and a policy trained on its scores; the reference is "
            "the policy that was rolled out",
            "both learn after every batch, and the reference is the initial policy; agent-prm has the authors' "
            "iterations",
        ),
        Fidelity("target of a response", "the mean outcome of all rollouts with the same history and response"),
        Fidelity("loss of the model", "cross-entropy with the targets as soft labels"),
        Fidelity(
            "discount",
            "0.95 to the power of the turn's number, counted from the start, on outcomes of -1 and 1; then mapped to "
            "[0, 1]",
            "0.95 per turn from the response to the end, on outcomes of 0 and 1",
        ),
        Fidelity(
            "weight of a pair",
            "each pair of history and response counts once",
            "as often as it occurred: among few states the rare ones would dominate",
        ),
        Fidelity("rollouts", "16 for each task, at a temperature of 0.3; DPO samples at 0.7", "eight, at 1"),
    ),
)
