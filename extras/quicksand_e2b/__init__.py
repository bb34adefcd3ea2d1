"""E2B's HTTP API over our sandboxes: the server of `quicksand-tui api`.

It stands on the engine's public names, and needs aiohttp (the extra ``quicksand-tui[api]``). Its
command (`command`) and the literal of its verb (`verb`) enter the program by an entry point.

One module an idea: the wire (`wire`, `fields`, `errors`), the clients (`keys`, `signatures`,
`gate`), the files (`records`), the engine (`machines`; `fleet_machines` for a fleet), the life of
sandboxes (`sandboxes`, `making`), the work in a guest (`processes`, `filesystem`, `contents`), and
the routes (`control_routes`, `guest_routes`, `server`). docs/internals/e2b-api.md tells which parts
of the API exist.
"""

from typing import TYPE_CHECKING

from quicksand.extending import on_demand

if TYPE_CHECKING:
    from quicksand_e2b.keys import Keys as Keys
    from quicksand_e2b.making import Usual as Usual
    from quicksand_e2b.places import api_dir as api_dir
    from quicksand_e2b.server import Options as Options
    from quicksand_e2b.server import serving as serving
else:
    __getattr__, __dir__ = on_demand()
