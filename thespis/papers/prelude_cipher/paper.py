"""PRELUDE and CIPHER: preferences inferred from edits and retrieved by context, against edits as examples."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.user_edits import (
    ACCURACY,
    BENCH,
    CIPHER,
    DISTANCE,
    PERFECT_ARM,
    PLAIN_ARM,
    RETRIEVED,
    RETRIEVED_ARM,
    USER_EDITS,
    learner,
)
from thespis.evidence.comparisons import Comparison, NotApplicable
from thespis.evidence.paper import Arm, Fidelity, Paper
from thespis.papers.prelude_cipher.envs import UserEdits
from thespis.papers.prelude_cipher.method import FirstPreference, NearestPreferences, RecentPreference

TWO_WORDINGS, ONE_WORDING = UserEdits(num_wordings=2), UserEdits(num_wordings=1)
"""Documents that say a style in two different words, or all in the same ones."""
_TWO_WORDINGS_ENV, _ONE_WORDING_ENV = f"{__name__}:TWO_WORDINGS", f"{__name__}:ONE_WORDING"
_CIPHER, _NEAREST, _EDITS, _PLAIN = "CIPHER", "CIPHER with one neighbor", RETRIEVED_ARM.name, PLAIN_ARM.name
_GLOBAL, _FIRST, _HALF = "one preference of all edits", "explore, then exploit", "CIPHER with half of the accuracy"

PAPER = Paper(
    id="prelude-cipher",
    name="PRELUDE / CIPHER",
    citation=Citation(
        "Aligning LLM Agents by Learning Latent Preference from User Edits", "Gao et al.", 2024, "arXiv:2404.15269"
    ),
    family="preference-rlhf",
    summary="A writing assistant learns from the user's edits of its texts without fine-tuning: it infers from each "
    "edit a description of the preference behind it, stores it with the context, and writes by what is most frequent "
    "among the preferences of the nearest contexts.",
    claim="The cumulative edit distance is lower than with the edits themselves as examples, and than with one "
    "preference for all contexts.",
    parts=(
        "thespis.papers.prelude_cipher.method:EditLearner",
        "thespis.papers.prelude_cipher.method:NearestPreferences",
        "thespis.papers.prelude_cipher.envs:UserEdits",
    ),
    command="thespis train thespis.papers.prelude_cipher.method:EditLearner --env "
    "thespis.papers.prelude_cipher.envs:UserEdits --steps 60 --set rule=NearestPreferences rule.num_neighbors=4",
    miniature=BENCH.trial(
        arms=(
            Arm(_CIPHER, CIPHER),
            Arm(_NEAREST, learner(NearestPreferences(1))),
            RETRIEVED_ARM,
            Arm(_GLOBAL, learner(RecentPreference(USER_EDITS.num_rounds))),
            Arm(_FIRST, learner(FirstPreference(10))),
            PLAIN_ARM,
            PERFECT_ARM,
            Arm(_HALF, learner(NearestPreferences(4), inference_accuracy=0.4)),
            Arm(f"{_CIPHER}, two wordings", CIPHER, env=_TWO_WORDINGS_ENV),
            Arm(f"{_EDITS}, two wordings", RETRIEVED, env=_TWO_WORDINGS_ENV),
            Arm(f"{_CIPHER}, one wording", CIPHER, env=_ONE_WORDING_ENV),
            Arm(f"{_EDITS}, one wording", RETRIEVED, env=_ONE_WORDING_ENV),
        ),
        headline=Comparison(_CIPHER, _EDITS, DISTANCE),
        mechanisms=(
            Comparison(_CIPHER, _GLOBAL, DISTANCE),
            Comparison(_CIPHER, _FIRST, DISTANCE),
            Comparison(_CIPHER, _PLAIN, DISTANCE),
            Comparison(_CIPHER, _NEAREST, DISTANCE),
            Comparison(_CIPHER, _GLOBAL, ACCURACY),
        ),
        context=(
            Comparison(_CIPHER, _EDITS, ACCURACY),
            Comparison(f"{_CIPHER}, two wordings", f"{_EDITS}, two wordings", DISTANCE),
            Comparison(f"{_CIPHER}, one wording", f"{_EDITS}, one wording", DISTANCE),
            Comparison(_HALF, _EDITS, DISTANCE),
            Comparison(PERFECT_ARM.name, _CIPHER, DISTANCE),
            Comparison(_EDITS, _GLOBAL, DISTANCE),
            NotApplicable("summaries and emails for a user whom GPT-4 plays", "GPT-4 as writer and as user"),
        ),
    ),
    remarks="Made-up documents of five types are edited by a user who wants a style for each of five attributes, "
    "which depends on the type; agents learn within sixty rounds by memory alone. What was found: the user "
    "edits 183 words in an episode with CIPHER, 266 with the edits of the seven nearest contexts as "
    "examples, 378 with one preference of all edits whatever the context, 409 with one of the first ten "
    "edits, 497 without learning and 160 if CIPHER read edits without errors. In the last half CIPHER asks "
    "for the style that the user wants for 88% of the attributes; with edits as examples it is 77%, with one "
    "preference 54%, and 90% without errors of reading. One neighbor in place of four costs 18 words: the "
    "majority outvotes errors of reading. What speaks against it: who infers and who writes are rules, not "
    "language models, and the lead is as large as two of their settings make it. Examples are copied to the "
    "letter, so that they say something only where the document has the same of four wordings of an "
    "attribute. With one wording for all an example says more than an inferred preference: on tuning seeds "
    "edits of one neighbor cost 152, and CIPHER 183. The trial has seven neighbors there too, 192, which is "
    "not their best; so that comparison, which says that CIPHER leads, is not to be trusted. With two "
    "wordings edits of five neighbors cost 204 on tuning seeds, and the lead is small. And preferences are "
    "read from an edit with an accuracy of 80%: on tuning seeds CIPHER costs 202 with 70%, 226 with 60% and "
    "266 with 50%, which is what retrieved edits cost, and with 40% it is worse than they (309). So what is "
    "tested is the retrieval and the aggregation of preferences by context; that a model reads edits well, "
    "and applies examples badly, is assumed. The lead over one preference for all contexts needs neither "
    "assumption, only wishes that depend on the context, as the users of the paper have them. Preferences "
    "are choices of a fixed list, in place of free text, so that the share of right styles takes the place "
    "of the similarity of descriptions. Of the paper the abstract and the authors' code could be read, not "
    "the tables.",
    fidelity=(
        Fidelity("cost", "Levenshtein's distance of draft and edited text, in words", "the same, on made-up words"),
        Fidelity("user", "GPT-4, which is asked first whether the text is good, and revises it if not", "a rule"),
        Fidelity(
            "inference",
            "GPT-4 describes in a phrase what the edit says of the preference; where nothing was edited the "
            "preference that was used is stored",
            "each attribute is read rightly in 80% of the cases, and as any style otherwise; the same without an edit",
        ),
        Fidelity(
            "retrieval",
            "cosine of the contexts' embeddings by BERT or MPNet, 1 or 5 neighbors",
            "of vectors, 4 neighbors",
        ),
        Fidelity("aggregation", "GPT-4 names what is most represented in the list", "the majority for each attribute"),
        Fidelity(
            "edits as examples",
            "draft and edited text of the nearest contexts in the prompt",
            "their styles are copied to the letter, where the document has the same words for the attribute; 7 "
            "neighbors",
        ),
        Fidelity(
            "continual inference", "one preference from the last few edits, whatever their contexts", "from all edits"
        ),
        Fidelity("explore, then exploit", "one preference from the first few edits", "from the first ten"),
        Fidelity(
            "tasks",
            "200 documents of five sources (summaries) or four (emails), each with a preference of a few phrases",
            "60 of five types, each with five attributes of three styles",
        ),
        Fidelity(
            "figures",
            "summaries: 48,269 without learning, 39,734 with edits as examples, 57,915 with continual inference, "
            "65,218 with explore, then exploit, and 32,974 with CIPHER-5; emails 31,103, 30,949, 26,852, 24,562 and "
            "8,391 (as others quote table 2)",
            "in the tables",
        ),
    ),
)
