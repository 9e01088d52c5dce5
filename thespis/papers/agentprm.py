"""AgentPRM: process reward models for LLM agents."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.claims import Better
from thespis.evidence.measures import final_return, learning_area
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.evidence.speaking import WALKS
from thespis.learners.baselines import Alone, Others
from thespis.learners.credit import ToGo
from thespis.learners.process_reward import ProcessReward
from thespis.learners.utterances import Held
from thespis.methods.language.reinforce import REINFORCE

_PROCESS = REINFORCE(
    **WALKS,
    credit=ToGo(Alone(), 0.0),
    minibatch=64,
    reference=Held(0.01),
    experience=ProcessReward(slots=256, warmup=5),
)
_OUTCOME = REINFORCE(**WALKS, credit=ToGo(Others()), minibatch=64, reference=Held(0.01))

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
    does="A second model learns from how conversations ended what success is to be expected behind each utterance; the "
    "actor is paid by it turn by turn, held to where it began, and both go on.",
    claim="With process rewards models of 3B improve by iteration in ALFWorld and end above baselines of GPT-4o.",
    parts=("thespis.learners.process_reward:ProcessReward", "thespis.methods.language.reinforce:REINFORCE"),
    use="thespis train reinforce --env text:maze --model tiny --steps 50000 --set experience=ProcessReward "
    "credit.discount=0 reference=Held",
    miniature=Trial(
        arms=(Arm("process", _PROCESS), Arm("outcome", _OUTCOME)),
        envs=("thespis.evidence.speaking:CORNERS",),
        steps=120 * 3 * 64,
        claims=(
            Better("process", "outcome", final_return("sampled")),
            Better("process", "outcome", learning_area()),
        ),
        batch=5,
        looks=2,
        episodes=100,
    ),
    remarks="A maze of four cells in at most three turns, told in words; a decoder of two layers, taught by a "
    "demonstrator that is lost in two cells of four, stands for a model of 3B that was cloned from an expert."
    " Averaged targets, soft cross-entropy and a discount of 0.95 are those of the authors' code, but that "
    "the discount runs from the utterance to the end, that failures are 0, and that pairs count as often as "
    "they were said. Process rewards and policy take turns of one batch, not of long iterations, and the last"
    " 256 conversations are remembered; REINFORCE with a penalty on KL takes the place of online DPO and "
    "learns from utterances of whole conversations, paid beyond the mean of what the batch said in the same "
    "place, where theirs compares two utterances of states drawn from earlier rollouts. The rival is the same"
    " method, paid the outcome to go beside the others of the group, which the paper does not try: its rivals"
    " are prompted and cloned models. For the first five batches the actor is paid the outcome. InversePRM, "
    "which needs an expert's conversations beside one's own, search by best of N, exploration and shaping are"
    " not tried. Looks at one seed set the sizes and led from PPO with standardised advantages and a learnt "
    "baseline to this: where all say the same, those scaled up noise and unlearnt what was known. The rival, "
    "PPO on the outcome till then, and the number of updates changed with it; the claims did not. What is "
    "contradicted: that promise learnt by a process model teaches more than the outcome; 0.66 against 0.97 of"
    " what can be earned, ten seeds of each. Second look: targets and what utterances are paid agree with "
    "loops over the conversations. Likely cause: in three turns, with the others of the group to compare "
    "with, the outcome to go is a telling judge already and never wrong on average, while the model learns in"
    " the same time, from 256 remembered conversations, and the actor climbs its errors too; the paper's "
    "rivals are prompted and cloned models, not this one.",
)
