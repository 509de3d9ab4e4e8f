"""What a look-up says and remembers when semantic search was needed and failed."""

from dataclasses import replace

from knowledge_lookup.agents.lookup_decision import LookupDecision
from knowledge_lookup.agents.messages import Messages


def without_semantic_search(decision: LookupDecision, messages: Messages) -> LookupDecision:
    """Make a decision honest that rests on the exact match alone.

    It says that semantic search is unavailable, and never that the knowledge base doesn't hold something. It is
    remembered as no question: asked again, the question is searched again.

    :param decision: What was decided on what the exact match found.
    :param messages: The language of what is said.
    :returns: The decision to deliver.
    """
    result, remembered = decision.result, decision.remembered
    if remembered.outcome == "nothing":
        message, reason, outcome = messages.outage_nothing, None, "unavailable"
    else:
        said = messages.outage_only_exact if result.found else messages.outage_may_be_more
        message = messages.between.join(filter(None, [result.message, said]))
        reason, outcome = decision.dedup_reason, remembered.outcome
    return replace(
        decision,
        result=result.model_copy(update={"message": message}),
        dedup_reason=reason,
        remembered=remembered.model_copy(update={"question": "", "outcome": outcome}),
    )
