"""A line to type in, whose keys take effect in the order in which they were typed."""

from __future__ import annotations

from textual import events
from textual.widgets import Input


class LineInput(Input):
    """Textual lets keys that are bound, as Backspace is, travel to the app and back, while letters
    typed behind them are already in: a burst over a slow line would end up in another order."""

    def takes(self, event: events.Key) -> bool:
        """Whether a key has an effect here. The app sees none of these again but one that was on
        its way to something else when this got the focus."""
        return event.is_printable or event.key in self._bindings.key_to_bindings

    async def _on_key(self, event: events.Key) -> None:
        bound = [] if event.is_printable else self._bindings.key_to_bindings.get(event.key, [])
        if not bound:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        await self.run_action(bound[0].action)
