"""The terminal application of `stowplan top`: screens, keys, and two refreshes a second."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.widgets import DataTable, Footer, Input, Static

from stowplan.cli.runs.top.page_client import PageClient, PageUnreachable
from stowplan.cli.runs.top.top_rows import (
    ROWS_MAX,
    TABLES,
    TopRow,
    in_order,
    matching,
    node_map,
    node_text,
    pending_row,
    status_text,
    why_text,
)

REFRESH_S = 0.5
PAGE_ROWS = "500"
SCREENS = tuple(TABLES)
EMPTY = {
    "nodes": "no nodes",
    "pending": "no pod is pending",
    "queues": "no scheduler of this process has queues",
    "decisions": "none yet",
}
SHORT_NAMES = {"no": "nodes", "po": "pending", "pods": "pending", "qu": "queues", "de": "decisions"}
"""What may follow `:`, as in k9s."""
MAP_HEIGHT = 8
KEYS = """\
1 2 3 4      nodes, pending pods, queues, decisions (also :nodes, :pending, :queues, :decisions)
/            filter by words; Esc removes it
arrows       move; Page Up, Page Down, Home, End
Enter        open a node, or why a pod is where it is; Esc goes back
s, S         sort by the next column; the other way round
r            next resource
Space        pause
q            quit
"""


class TopApp(App[None]):
    """One screen at a time. screen_name: which. filter_text, sort_column, is_down: of its table.
    n_updates: how often the tables were updated."""

    CSS = """
    #status { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
    #title { height: 1; padding: 0 1; background: $panel; }
    #map { height: auto; max-height: 9; padding: 0 1; }
    #table { height: 1fr; }
    #detail { height: 1fr; padding: 0 1; display: none; }
    #entry { display: none; height: 3; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(number), f"open('{name}')", name)
            for number, name in enumerate(SCREENS, start=1)
        ),
        Binding("slash", "enter_text('/')", "filter", key_display="/"),
        Binding("colon", "enter_text(':')", "screen", show=False),
        Binding("s", "sort(False)", "sort"),
        Binding("S", "sort(True)", "turn", show=False),
        Binding("r", "resource", "resource"),
        Binding("space", "pause", "pause"),
        Binding("escape", "back", "back"),
        Binding("question_mark", "keys", "keys", key_display="?"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, client: PageClient, screen: str = "nodes") -> None:
        super().__init__()
        self.client = client
        self.screen_name = screen
        self.filter_text = ""
        self.sort_column: int | None = None
        self.is_down = False
        self.resource = ""
        self.is_paused = False
        self.n_updates = 0
        self._entered = ""
        self._is_due = True
        self._columns_of = ""
        self._rows: list[TopRow] = []
        self._listed: list[TopRow] = []
        self._paged: list[TopRow] | None = None
        self._background: set[asyncio.Task[None]] = set()

    def compose(self) -> ComposeResult:
        """See `App`."""
        yield Static(id="status")
        yield Static(id="title")
        yield Static(id="map")
        table: DataTable[Text] = DataTable(id="table", cursor_type="row", zebra_stripes=True)
        yield table
        with VerticalScroll(id="detail"):
            yield Static(id="text")
        yield Input(id="entry")
        yield Footer()

    async def on_mount(self) -> None:
        """See `App`."""
        self.title = "stowplan top"
        self.query_one("#table").focus()
        await self.client.subscribe("status", self.screen_name)
        self._start(self.client.follow(self._changed))
        self.set_interval(REFRESH_S, self._refresh)

    async def on_unmount(self) -> None:
        """See `App`."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.client.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _changed(self) -> None:
        self._is_due = True

    # Drawing.

    async def _refresh(self) -> None:
        if not self._is_due or self.is_paused:
            return
        self._is_due = False
        if self.screen_name == "pending" and not self._is_complete:
            await self._read_page()
        self.draw()

    @property
    def _is_complete(self) -> bool:
        return bool(self.client.state.pending_tree.get("complete", True))

    async def _read_page(self) -> None:
        """Of a long queue the server sends pages only."""
        try:
            tree = await self.client.get("pending", limit=PAGE_ROWS, filter=self.filter_text)
        except PageUnreachable as problem:
            self.client.problem = str(problem)
            return
        columns = {name: place for place, name in enumerate(tree["columns"])}
        reasons = tree["reasons"]

        def reason(number: int) -> str:
            return ": ".join(part for part in reasons[number] if part)

        state = self.client.state
        self._paged = [pending_row(state, row, columns, reason) for row in tree["rows"]]

    def draw(self) -> None:
        """Draw all of the current state."""
        state, name = self.client.state, self.screen_name
        self.n_updates += 1
        if self.resource not in state.resources and state.resources:
            self.resource = "cpu" if "cpu" in state.resources else state.resources[0]
        resource = self.resource or "cpu"
        self.query_one("#status", Static).update(
            status_text(state, self.client.problem, self.client.url)
        )
        picture = self.query_one("#map", Static)
        picture.display = name == "nodes" and not self._is_open
        if picture.display:
            width = max(10, self.size.width - 2)
            picture.update(node_map(state, resource, width, MAP_HEIGHT))
        is_paged = name == "pending" and not self._is_complete
        rows = (
            list(self._paged or ())
            if is_paged
            else matching(TABLES[name].rows(state, resource), self.filter_text)
        )
        self._rows = in_order(rows, self.sort_column, is_down=self.is_down)
        self._draw_table()
        self._draw_title(resource)

    def _draw_title(self, resource: str) -> None:
        parts = [self.screen_name, f"{len(self._rows):,}"]
        if len(self._rows) > ROWS_MAX:
            parts.append(f"first {ROWS_MAX} shown, / filters")
        if self.screen_name == "pending" and not self._is_complete:
            parts.append(f"of {self.client.state.pending_tree['total']:,}")
        if self.screen_name in ("nodes", "queues"):
            parts.append(f"resource {resource}")
        if not self._rows:
            parts.append("nothing matches" if self.filter_text else EMPTY[self.screen_name])
        if self.filter_text:
            parts.append(f"filter {self.filter_text}")
        if self.sort_column is not None:
            title = TABLES[self.screen_name].columns[self.sort_column][0]
            parts.append(f"by {title} {'descending' if self.is_down else 'ascending'}")
        if self.is_paused:
            parts.append("paused")
        self.query_one("#title", Static).update(Text(" · ".join(parts), style="bold"))

    def _draw_table(self) -> None:
        table = self.query_one("#table", DataTable)
        columns = TABLES[self.screen_name].columns
        listed, before = self._rows[:ROWS_MAX], self._listed
        kept = self.selected
        if self._columns_of != self.screen_name:
            table.clear(columns=True)
            table.add_columns(*(title for title, _ in columns))
            self._columns_of = self.screen_name
            before = []
        if [one.key for one in listed] == [one.key for one in before]:
            for place, (row, old) in enumerate(zip(listed, before, strict=True)):
                for column, text in enumerate(row.cells):
                    if text != old.cells[column]:
                        table.update_cell_at(
                            Coordinate(place, column), _cell(text, columns[column])
                        )
        else:
            table.clear()
            for row in listed:
                table.add_row(*map(_cell, row.cells, columns))
            place = next((k for k, row in enumerate(listed) if row.key == kept), 0)
            table.cursor_coordinate = Coordinate(place, 0)
        self._listed = listed

    @property
    def selected(self) -> str:
        """What the cursor is on, "" for nothing."""
        row = self.query_one("#table", DataTable).cursor_row
        is_there = self._columns_of == self.screen_name and 0 <= row < len(self._listed)
        return self._listed[row].key if is_there else ""

    # Keys.

    async def action_open(self, name: str) -> None:
        """Show a screen."""
        self._close()
        self.screen_name, self.filter_text, self.sort_column = name, "", None
        await self.client.subscribe("status", name)
        self._is_due = True
        self.draw()

    def action_enter_text(self, what: str) -> None:
        """Ask for a filter, or a screen's name."""
        self._entered = what
        entry = self.query_one("#entry", Input)
        entry.placeholder = "filter" if what == "/" else f"one of {', '.join(SCREENS)}"
        entry.value = self.filter_text if what == "/" else ""
        entry.display = True
        entry.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """A filter works while it is typed."""
        if self._entered == "/":
            self.filter_text = event.value
            self._is_due = True

    async def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter in the line."""
        entered = self._entered
        self._leave_entry()
        if entered == ":":
            name = SHORT_NAMES.get(event.value.strip(), event.value.strip())
            if name in SCREENS:
                await self.action_open(name)
            else:
                self.notify(f"no screen {name!r}: one of {', '.join(SCREENS)}", severity="error")
        self._is_due = True

    def _leave_entry(self) -> None:
        self._entered = ""
        self.query_one("#entry", Input).display = False
        self.query_one("#table").focus()

    def action_sort(self, turns: bool) -> None:
        """Sort by the next column, or the other way round."""
        if turns:
            self.is_down = not self.is_down
        else:
            count = len(TABLES[self.screen_name].columns)
            self.sort_column = 0 if self.sort_column is None else (self.sort_column + 1) % count
            self.is_down = TABLES[self.screen_name].columns[self.sort_column][1]
        self.draw()

    def action_resource(self) -> None:
        """The next resource."""
        resources = self.client.state.resources
        if resources:
            place = resources.index(self.resource) if self.resource in resources else -1
            self.resource = resources[(place + 1) % len(resources)]
            self.draw()

    def action_pause(self) -> None:
        """Keep the moment, or go on."""
        self.is_paused = not self.is_paused
        self._is_due = True
        self._draw_title(self.resource or "cpu")

    async def action_back(self) -> None:
        """Close the line, the detail, or remove the filter."""
        if self._entered:
            self._leave_entry()
        elif self._is_open:
            self._close()
        else:
            self.filter_text = ""
        self._is_due = True

    def action_keys(self) -> None:
        """Show the keys."""
        self._show(Text(KEYS))

    async def on_data_table_row_selected(self, _: DataTable.RowSelected) -> None:
        """Enter: what the cursor is on."""
        key = self.selected
        if not key:
            return
        try:
            if self.screen_name == "nodes":
                self._show(node_text(await self.client.get(f"nodes/{key}")))
            elif self.screen_name == "queues":
                await self.action_open("pending")
                self.filter_text = key
            else:
                self._show(why_text(await self.client.get(f"pods/{key}/why")))
        except PageUnreachable as problem:
            self._show(Text(str(problem), style="red"))

    # The detail.

    @property
    def _is_open(self) -> bool:
        return bool(self.query_one("#detail").display)

    def _show(self, text: Text) -> None:
        self.query_one("#text", Static).update(text)
        self.query_one("#table").display = False
        self.query_one("#map").display = False
        detail = self.query_one("#detail")
        detail.display = True
        detail.focus()

    def _close(self) -> None:
        self.query_one("#detail").display = False
        table = self.query_one("#table")
        table.display = True
        table.focus()


def _cell(text: str, column: tuple[str, bool]) -> Text:
    """A cell as text, never as markup. column: title, and whether it is a number."""
    return Text(text, justify="right" if column[1] else "left")
