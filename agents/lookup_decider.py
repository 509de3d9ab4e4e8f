"""Decides what a look-up comes to, given what it retrieved and what its session has been given.

Every decision is a function of its arguments: one that another look-up of the session has overtaken is made again on
the memory as it is then.
"""

from collections.abc import Sequence

from llama_index.core.schema import NodeWithScore

from knowledge_lookup.agents.document_texts import DocumentTexts, Held
from knowledge_lookup.agents.lookup_decision import (
    PARTIALLY_FILTERED,
    REPEATED_QUESTION,
    Basis,
    DecisionMaker,
    LookupDecision,
    Situation,
    listed,
    matched_key,
)
from knowledge_lookup.agents.messages import Messages
from knowledge_lookup.agents.result_assembly import LEAST_PASSAGE, Delivery, ResultAssembly, path_of
from knowledge_lookup.agents.session_memory import BEST_FIRST, RememberedLookup, SessionMemory, packed
from knowledge_lookup.agents.session_rules import SessionRules
from knowledge_lookup.postprocessors import (
    EvidencePostprocessor,
    RelevanceLevel,
    RelevancePostprocessor,
    relevance_level_of,
)
from knowledge_lookup.retrievers import metadata as keys
from knowledge_lookup.retrievers.knowledge_retriever import KnowledgeRetrieval
from knowledge_lookup.retrievers.tracing import traced

DOMAIN_LIMIT = "DOMAIN_LIMIT"
LOOKUP_LIMIT = "LOOKUP_LIMIT"
CHARACTER_LIMIT = "CHARACTER_LIMIT"
_MOST_DOMAINS_CHARACTERS = 80


class LookupDecider:
    """Decides on look-ups without a section.

    :param relevance: Judges the level again when something is taken out of what was retrieved.
    :param texts: Reads the documents.
    :param assembly: Chooses and cuts what is delivered.
    :param maker: Makes the decisions.
    :param rules: The rules for sessions.
    :param messages: The language of what is said.
    """

    def __init__(
        self,
        relevance: RelevancePostprocessor | EvidencePostprocessor,
        texts: DocumentTexts,
        assembly: ResultAssembly,
        maker: DecisionMaker,
        *,
        rules: SessionRules,
        messages: Messages,
    ) -> None:
        self._relevance = relevance
        self._texts = texts
        self._assembly = assembly
        self._maker = maker
        self._rules = rules
        self._messages = messages

    def over_limit(self, situation: Situation) -> LookupDecision | None:
        """Refuse a look-up of a session that has used up what it may have.

        :param situation: What is decided on.
        :returns: The refusal; None if no limit is reached.
        """
        memory, rules = situation.memory, self._rules
        left = self.characters_left(situation)
        if rules.max_lookups is not None and memory.next_number > rules.max_lookups:
            message = self._messages.lookup_limit.format(limit=rules.max_lookups)
            return self._maker.blocked(situation, message, outcome="refused", reason=LOOKUP_LIMIT)
        return self._over_character_limit(situation) if left is not None and left < LEAST_PASSAGE else None

    def over_domain_limit(self, situation: Situation, domains: Sequence[str], basis: Basis) -> LookupDecision | None:
        """Refuse a look-up if all that it would deliver belongs to domains that are used up.

        :param situation: What is decided on.
        :param domains: The domains of what would be delivered.
        :param basis: What the retrieval is remembered by.
        :returns: The refusal; None if a domain isn't used up.
        """
        if not domains or not all(self._is_used_up(domain, situation.memory) for domain in domains):
            return None
        return self._over_domain_limit(situation, domains, basis)

    def characters_left(self, situation: Situation) -> int | None:
        """Tell how much text a session may still be given.

        :param situation: What is decided on.
        :returns: The characters; None for any number.
        """
        most = self._rules.max_characters
        if most is None or situation.call.session_id is None:
            return None
        return max(most - situation.memory.characters, 0)

    def repeated(self, situation: Situation) -> LookupDecision | None:
        """Answer a question that the session has asked before.

        :param situation: What is decided on.
        :returns: What the session was given, or that nothing was found; None if the question is new, or the documents
            have changed since.
        """
        earlier = situation.memory.repeated(self._maker.question(situation.call), situation.corpus)
        if earlier is None:
            return None
        basis = Basis(earlier.matched, earlier.embedding)
        documents = dict.fromkeys([*(text.file_path for text in earlier.delivered), *earlier.withheld])
        if documents:
            return self._already_retrieved(situation, list(documents), basis)
        if earlier.outcome == "withheld":
            return self._nothing_stronger(situation, earlier, basis)
        return self._maker.nothing_found(situation, basis, reason=REPEATED_QUESTION)

    @traced
    def retrieved(self, situation: Situation, retrieval: KnowledgeRetrieval) -> LookupDecision:
        """Decide on what a retrieval found.

        :param situation: What is decided on.
        :param retrieval: What was found, within the scope of an earlier state of the memory.
        :returns: The decision.
        """
        memory = situation.memory
        matched = matched_key(retrieval.matches)
        held = self._texts.held(memory)
        kept, lost = self._not_held(retrieval.nodes, memory, held)
        withheld = tuple(dict.fromkeys([*retrieval.withheld, *lost]))
        basis = Basis(matched, packed(retrieval.embedding), withheld)
        allowed = _without_orphans([s for s in kept if not self._is_used_up(_domain(s), memory)], held)
        nodes = retrieval.nodes
        if len(allowed) < len(nodes):
            nodes = self._relevance.postprocess_nodes(allowed)
        level = relevance_level_of(nodes)
        if level is None:
            refusal = self.over_domain_limit(situation, [_domain(scored) for scored in kept], basis)
            return self._nothing_new(situation, basis, retrieval) if refusal is None else refusal
        if self._has_better(retrieval, level):
            return self._already_retrieved(situation, withheld, basis)
        similar = self._similar(situation, basis, retrieval)
        if similar is not None and BEST_FIRST.index(similar.level) < BEST_FIRST.index(level):
            return self._nothing_stronger(situation, similar, basis)
        delivery = self._assembly.assemble(nodes, memory, characters_left=self.characters_left(situation))
        if not delivery.texts:
            return self._over_character_limit(situation)
        others = [(match.entry.title, match.entry.file_path) for match in retrieval.other_matches]
        return self._maker.delivered(
            situation,
            delivery,
            level,
            basis=basis,
            message=self._about(delivery, situation, similar),
            dedup_reason=PARTIALLY_FILTERED if withheld or len(allowed) < len(kept) else None,
            named=self._assembly.alternatives(nodes, others, delivery),
        )

    def _not_held(
        self, nodes: Sequence[NodeWithScore], memory: SessionMemory, held: Held
    ) -> tuple[list[NodeWithScore], list[str]]:
        """Take out what the session has; another look-up may have delivered it since the retrieval began.

        :returns: What is left, and the documents that were taken out.
        """
        left = [scored for scored in nodes if self._may_be_returned(scored, memory, held)]
        left = _without_orphans(left, held)
        still_there = {path_of(scored) for scored in left}
        return left, [path for path in dict.fromkeys(map(path_of, nodes)) if path not in still_there]

    def _may_be_returned(self, scored: NodeWithScore, memory: SessionMemory, held: Held) -> bool:
        if path_of(scored) in held.passages and not keys.is_exact(scored):
            return True  # as a witness for its document, if at all
        return path_of(scored) not in held.documents and self._assembly.is_new(scored, memory)

    def _has_better(self, retrieval: KnowledgeRetrieval, level: RelevanceLevel) -> bool:
        """Tell whether the session has something of a better level for this very query: what is new is noise then.

        An exact match is never taken for noise.
        """
        if any(keys.is_exact(scored) for scored in retrieval.nodes):
            return False
        had = relevance_level_of(self._relevance.postprocess_nodes(list(retrieval.withheld_passages)))
        return BEST_FIRST.index(had) < BEST_FIRST.index(level)

    def _is_used_up(self, domain: str, memory: SessionMemory) -> bool:
        most = self._rules.max_lookups_per_domain
        return most is not None and memory.lookups_delivering(domain) >= most

    def _nothing_new(self, situation: Situation, basis: Basis, retrieval: KnowledgeRetrieval) -> LookupDecision:
        if basis.withheld:
            return self._already_retrieved(situation, basis.withheld, basis)
        similar = self._similar(situation, basis, retrieval)
        if similar is not None:
            return self._nothing_stronger(situation, similar, basis)
        return self._maker.nothing_found(situation, basis)

    def _similar(self, situation: Situation, basis: Basis, retrieval: KnowledgeRetrieval) -> RememberedLookup | None:
        bound = self._rules.same_question_similarity
        return situation.memory.nearly_repeated(basis.matched, retrieval.embedding, bound)

    def _already_retrieved(self, situation: Situation, documents: Sequence[str], basis: Basis) -> LookupDecision:
        """Say that the session has it; once its domains were found as often as allowed, refuse instead."""
        most, memory = self._rules.max_lookups_per_domain, situation.memory
        domains = memory.domains_of(documents)
        if most is not None and domains and all(memory.lookups_finding(domain) >= most for domain in domains):
            return self._over_domain_limit(situation, domains, basis)
        return self._maker.already_retrieved(situation, documents, basis)

    def _over_character_limit(self, situation: Situation) -> LookupDecision:
        message = self._messages.character_limit.format(limit=self._rules.max_characters)
        return self._maker.blocked(situation, message, outcome="refused", reason=CHARACTER_LIMIT)

    def _over_domain_limit(self, situation: Situation, domains: Sequence[str], basis: Basis) -> LookupDecision:
        names = listed(list(dict.fromkeys(domains)), _MOST_DOMAINS_CHARACTERS)
        message = self._messages.domain_limit.format(domains=names, limit=self._rules.max_lookups_per_domain)
        return self._maker.blocked(situation, message, outcome="refused", reason=DOMAIN_LIMIT, basis=basis)

    def _nothing_stronger(self, situation: Situation, earlier: RememberedLookup, basis: Basis) -> LookupDecision:
        message = self._messages.nothing_stronger.format(number=earlier.number)
        basis = Basis(basis.matched, basis.embedding)
        return self._maker.blocked(situation, message, outcome="withheld", reason=REPEATED_QUESTION, basis=basis)

    def _about(self, delivery: Delivery, situation: Situation, similar: RememberedLookup | None) -> str | None:
        said: list[str] = []
        if similar is not None:
            said.append(self._messages.same_question.format(number=similar.number))
        if delivery.primary is not None:
            numbers = situation.memory.sections_given(delivery.texts[0].file_path)
            if numbers:
                said.append(self._messages.rest_only.format(numbers=", ".join(map(str, numbers))))
        left = self.characters_left(situation)
        if left is not None and left - delivery.characters < LEAST_PASSAGE:
            said.append(self._messages.last_text.format(limit=self._rules.max_characters))
        return self._messages.between.join(said) or None


def _without_orphans(nodes: Sequence[NodeWithScore], held: Held) -> list[NodeWithScore]:
    """Drop the passages of documents that the session has passages of.

    A passage of the best match's own document stays: it isn't delivered, but speaks for the level.
    """
    best = next((path_of(scored) for scored in nodes if keys.is_exact(scored)), None)
    had = held.documents | held.passages
    return [
        scored for scored in nodes if keys.is_exact(scored) or path_of(scored) == best or path_of(scored) not in had
    ]


def _domain(scored: NodeWithScore) -> str:
    return str(scored.node.metadata.get(keys.DOMAIN, ""))
