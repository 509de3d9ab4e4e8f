"""The part of a pipeline that looks at what was recorded: figures, alerts, retention."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from knowledge_lookup.pipeline.errors import ConfigurationError
from knowledge_lookup.pipeline.keyword_index_follower import keyword_entry
from knowledge_lookup.pipeline.pipeline_parts import PipelineParts
from knowledge_lookup.pipeline.statistics import Alert, CallStatistics, StatisticsReader, check_alerts
from knowledge_lookup.pipeline.storage import PruneReport, RecordRetention
from knowledge_lookup.retrievers.keyword_index import KeywordIndex

DEFAULT_WINDOW = timedelta(hours=24)


class RecordParts(PipelineParts):
    """What is read out of the records; see :class:`StoreParts`."""

    def stats(self, since: timedelta = DEFAULT_WINDOW) -> CallStatistics:
        """Compute the figures of the look-ups of a time window that ends now.

        Records are written within half a second of their call; those of this pipeline are waited for. What waits on
        disk since the database was away isn't among them yet.

        :param since: Length of the window, above 0. Default: 24 hours.
        :returns: Latencies, levels, sessions, domains, what found nothing, and more.
        :raises ValueError: If the window isn't above 0.
        :raises DatabaseError: If the database can't be read.
        """
        if "recorder" in vars(self):
            self.recorder.flush(timeout=1.0)
        return StatisticsReader(self.database).read(since)

    def alerts(self, statistics: CallStatistics) -> Sequence[Alert]:
        """Apply the rules of the settings' ``alerts`` to figures, and see whether the keyword index loads now.

        :param statistics: What :meth:`stats` returned.
        :returns: The alerts that fire; none when all is well.
        """
        return check_alerts(statistics, self.settings.alerts, load_keyword_index=self._load_keyword_index_on_trial)

    def prune_records(self, older_than: timedelta | None = None, *, dry_run: bool = False) -> PruneReport:
        """Remove old records, in small transactions beside those that write new ones.

        :param older_than: Age from which on records go, above 0; None takes ``records.keep-days``.
        :param dry_run: Only count them.
        :returns: How many were removed, and how many are left.
        :raises ValueError: If the age isn't above 0.
        :raises ConfigurationError: If no age is given and none is set.
        :raises DatabaseError: If the database can't be used; what was removed until then stays removed.
        """
        days = self.settings.records.keep_days
        if older_than is None:
            if days is None:
                raise ConfigurationError(
                    "how old may records get? set records.keep-days, or say it with --older-than, for example 30d"
                )
            older_than = timedelta(days=days)
        if older_than <= timedelta(0):
            raise ValueError(f"the age is {older_than}; it must be above 0")
        try:
            before = datetime.now(UTC) - older_than
        except OverflowError as error:
            raise ValueError(f"an age of {older_than} is before the year 1") from error
        retention = RecordRetention(self.database)
        return retention.rehearse(before) if dry_run else retention.prune(before)

    def _load_keyword_index_on_trial(self) -> KeywordIndex:
        """Load the keyword index as a new process would, beside the one that may be in use."""
        index = KeywordIndex(fields=self.settings.retrieval.keyword.fields)
        index.update(map(keyword_entry, self.documents.iter_ready()))
        return index
