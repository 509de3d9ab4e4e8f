"""Makes the built-in evidence profile of an embedding model from public data.

    python tests/benchmarks/built_in_profile.py --data DATA --work WORK

Weights are fitted to XQuAD in Chinese and English and to the Chinese documentation, each counting the same; those for
queries in another script to English questions on XQuAD's Chinese text and to what of the documentation's queries has no
Chinese. The bundled documents have no part in it. The thresholds are chosen by eye from the table that is printed: what
they come to on each corpus, with weights fitted without it.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from corpora import Corpus, corpora

from knowledge_lookup.pipeline.tuning import Sample, TuningFigures
from knowledge_lookup.pipeline.tuning.fitting import fit_weights
from knowledge_lookup.pipeline.tuning.thresholds import Judged
from knowledge_lookup.postprocessors import EvidenceProfile

SAMPLES_A_CORPUS = 600
NOT_FITTED = "bundled documents"


def main() -> None:
    """Collect, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="Folder of the public data.")
    parser.add_argument("--work", type=Path, required=True, help="Folder for indexes, kept from run to run.")
    options = parser.parse_args()
    samples = {corpus.name: collect(corpus, options.work) for corpus in corpora(options.data, options.work)}
    print(fit(samples, without=None))
    for name, found in samples.items():
        for lower, upper in ((0.2, 0.8), (0.25, 0.85), (0.3, 0.9), (0.35, 0.9)):
            profile = replace(fit(samples, without=name), reference_threshold=lower, highly_relevant_threshold=upper)
            figures = TuningFigures.of([(Judged.by(profile, one), profile) for one in found])
            print(
                f"{name}: {lower} / {upper}: hit {figures.hit}, not found {figures.not_found}, "
                f"HIGHLY_RELEVANT right {figures.highly_relevant_right}"
            )


def collect(corpus: Corpus, work: Path) -> list[Sample]:
    """Ask the queries of a corpus, as they are and with their answer left out."""
    with corpus.pipeline(work) as pipeline:
        return pipeline.tuner.collector.collect(corpus.queries, leave_out=corpus.leave_out)


def fit(samples: dict[str, list[Sample]], *, without: str | None) -> EvidenceProfile:
    """Fit the profile to all corpora but one."""
    fitted = [found for name, found in samples.items() if name not in (without, NOT_FITTED)]
    same = [[one for one in found if one.candidates and not is_other(one)] for found in fitted]
    other = [[one for one in found if one.candidates and is_other(one)] for found in fitted]
    return EvidenceProfile(fit_weights(_balanced(same)), fit_weights(_balanced(other)), 1.0, 0.0)


def is_other(sample: Sample) -> bool:
    """Tell whether the query of a sample is in another script than what was found."""
    return sample.candidates[0].evidence.other_script


def _balanced(groups: Sequence[Sequence[Sample]]) -> list[Sample]:
    """Take equally many samples of each corpus, repeating where there are fewer; one with next to none has no part."""
    large = [group for group in groups if len(group) >= SAMPLES_A_CORPUS / 10]
    return [group[number % len(group)] for group in large for number in range(SAMPLES_A_CORPUS)]


if __name__ == "__main__":
    main()
