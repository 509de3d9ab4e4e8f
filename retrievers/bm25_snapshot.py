"""The search by words as a file, so that a new process needn't read every passage from Milvus."""

import json
import logging
import os
import uuid
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

logger = logging.getLogger(__name__)

_FORMAT = 1
_CONTENTS = "knowledge-lookup.json"


class Bm25Snapshot:
    """A file with a search index, and which version of each document it has.

    The file is a copy: without it, or if it is damaged, of an older format or of another collection, the passages are
    read from their source. Several processes may save and restore at once; who saves last wins.

    :param path: The file.
    :param identity: Names what the passages depend on besides the documents' versions: the collection, the embedding
        model, whatever decides how documents are cut.
    :param versions: Gives the present version of every document that is ready, by file path. A version must not be new
        before the document's passages are, and the index must have been told of the change by then.
    """

    def __init__(self, path: Path, *, identity: str, versions: Callable[[], Mapping[str, str]]) -> None:
        self.path = path
        self._identity = identity
        self._versions = versions

    def restore(self, folder: Path) -> set[str] | None:
        """Unpack the index.

        :param folder: An empty folder; is left empty where nothing could be restored.
        :returns: Documents that have changed since and must be read again; None if there's no usable file.
        """
        try:
            with zipfile.ZipFile(self.path) as file:
                saved = self._read(file)
                if saved is None:
                    return None
                file.extractall(folder, [name for name in file.namelist() if name != _CONTENTS])
        except FileNotFoundError:
            return None
        # What damaged bytes can do to the reading of an archive isn't confined to a few exceptions.
        except Exception as error:
            logger.info("the snapshot '%s' can't be used and is made anew: %s", self.path, error)
            for left in folder.iterdir():
                left.unlink()
            return None
        present = self._versions()
        return {
            path for path in saved.keys() | present.keys() if not saved.get(path) or saved[path] != present.get(path)
        }

    def save(self, folder: Path, documents: Iterable[str], not_current: Callable[[], Iterable[str]]) -> None:
        """Pack the index, in place of what was saved before; a folder that can't be written is only logged.

        :param folder: The folder of the index, which nobody changes meanwhile.
        :param documents: The documents of which the index has passages.
        :param not_current: Gives the documents of which the index may not have the present version.
        """
        versions = dict(self._versions())
        # After the versions: a change that they include is either known by now, or in the index.
        stale = set(not_current())
        saved = dict.fromkeys(documents, "") | versions | dict.fromkeys(stale, "")
        temporary = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex[:8]}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with zipfile.ZipFile(temporary, "w") as file:
                for part in sorted(folder.iterdir()):
                    file.write(part, part.name)
                contents = {"format": _FORMAT, "identity": self._identity, "documents": saved}
                file.writestr(_CONTENTS, json.dumps(contents, ensure_ascii=False).encode("utf-8", "surrogatepass"))
            os.replace(temporary, self.path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            logger.warning(
                "the snapshot '%s' can't be written, the next start reads all passages: %s", self.path, error
            )

    def _read(self, file: zipfile.ZipFile) -> dict[str, str] | None:
        contents = json.loads(file.read(_CONTENTS).decode("utf-8", "surrogatepass"))
        if contents.get("format") != _FORMAT or contents.get("identity") != self._identity:
            return None
        saved: dict[str, str] = contents["documents"]
        return saved
