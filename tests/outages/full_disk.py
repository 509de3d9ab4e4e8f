"""Looks up and uploads while no file can grow, and says what came of it; run in a process of its own.

The limit on the size of files stands for a full disk: what would be written beyond it fails.
"""

import json
import resource
import sys
from pathlib import Path

from knowledge_lookup.pipeline import KnowledgePipeline, Settings
from knowledge_lookup.retrievers import KnowledgeLookupError


def main(base_path: str, data_dir: str) -> None:
    """Print what was found and what was refused, as JSON.

    :param base_path: The folder of documents, indexed.
    :param data_dir: Its data folder.
    """
    settings = Settings(knowledge={"base_path": Path(base_path)}, data_dir=Path(data_dir))
    refused: list[str] = []
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    with KnowledgePipeline.from_settings(settings) as pipeline:
        found = [pipeline.lookup("ERR_TIMEOUT").found]
        pipeline.recorder.flush(10)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))
        found += [pipeline.lookup("ERR_TIMEOUT", "s1").found, pipeline.lookup("支付网关 ERR_TIMEOUT E17").found]
        for work in (lambda: pipeline.upload(b"# New\n\ntext", name="new.md"), pipeline.sync):
            try:
                work()
            except KnowledgeLookupError as error:
                refused.append(str(error))
        pipeline.recorder.flush(1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        found.append(pipeline.lookup("ERR_TIMEOUT").found)
        pipeline.sync()
    print(json.dumps({"found": found, "refused": refused}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
