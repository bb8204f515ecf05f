"""Export: copies a run's records into a file, goes on after any crash, and never doubles or loses one.

The file is a copy; the records themselves were made durable by the queue. How each kind of file
stays whole is explained in its module: `append_writer`, `sqlite_writer`, `rewrite_writer`.
"""

from __future__ import annotations

from pathlib import Path

from shoal.core.run import Run
from shoal.store.base import Checkpoint, OutputWriter, RecordReader, WrittenOutput
from shoal.store.formats import FORMATS, check_output, open_output
from shoal.store.output_state import OutputState
from shoal.store.split_writer import SplitWriter, split_field

__all__ = ["FORMATS", "Exporter", "check_output"]


class Exporter:
    """Keeps one output file in step with the records of one run; `state` is the state's folder.

    fresh: a file of something else is set aside. replace: only one that shoal wrote is replaced.
    in_order: records are in the order of the list that the run reads, not in that in which they came.
    columns: the header of a table without rows, where it is known.
    restored: the last restore of the queue; a file from before it is set aside and written anew.
    """

    def __init__(
        self,
        queue: RecordReader,
        run: Run,
        path: Path | str,
        state: Path,
        *,
        fresh: bool = False,
        replace: bool = False,
        csv_safe: bool = False,
        csv_bom: bool = False,
        in_order: bool = False,
        columns: tuple[str, ...] = (),
        restored: str = "",
    ) -> None:
        self.path = Path(path).resolve()
        output_format = check_output(self.path)
        self.is_incremental = output_format.is_incremental and not in_order
        field = split_field(self.path)
        self._state = OutputState(run, self.path, state, restored)
        if field:

            def open_file(records: RecordReader, file: Path) -> Exporter:
                return Exporter(
                    records,
                    run,
                    file,
                    state,
                    fresh=fresh,
                    replace=replace,
                    csv_safe=csv_safe,
                    csv_bom=csv_bom,
                    in_order=in_order,
                    restored=restored,
                )

            self._output: OutputWriter = SplitWriter(queue, run.id, self.path, field, open_file)
            return
        try:
            self._state.keep_former()
            form = Checkpoint(safe=csv_safe, bom=csv_bom, in_order=in_order)
            self._output = open_output(
                output_format, queue, run.id, self._state, fresh=fresh, replace=replace, form=form, columns=columns
            )
        except BaseException:
            self._state.release()
            raise

    @property
    def rows(self) -> int:
        """Rows that are in the file."""
        return self._output.rows

    @property
    def columns(self) -> tuple[str, ...]:
        return self._output.columns

    @property
    def files(self) -> list[WrittenOutput]:
        """What was written: one file, or one for each value of the field that the output is split by."""
        if isinstance(self._output, SplitWriter):
            return self._output.files
        return [(self.path, self.rows, self.columns)]

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know about the file as it was written."""
        kept = self._state.kept_as
        why = "was written before the queue was restored" if self._state.was_restored else "was there already"
        aside = (f"{self.path.name} {why}: it is kept as {kept}",) if kept else ()
        return (*aside, *self._output.notes)

    async def drain(self) -> int:
        """Copy what was settled since the last time, as far as that is cheap; says how many records.

        Files that cannot be added to are left for `finish`.
        """
        return await self._output.drain()

    async def finish(self) -> int:
        """Make the file hold every record there is; says how many are new. More may follow later."""
        return await self._output.finish()

    def close(self) -> None:
        self._output.close()
        self._state.release()
