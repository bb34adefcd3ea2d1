"""E2B's HTTP API over our sandboxes: what `quicksand-tui api` serves.

It stands on the engine alone, and needs aiohttp (the extra ``quicksand-tui[api]``). One module an
idea: the wire (`wire`, `fields`, `errors`), who may ask (`keys`, `signatures`, `gate`), what stands
on disk (`records`), the engine (`machines`), the life of sandboxes (`sandboxes`, `making`,
`clock`), what is done in a guest (`processes`, `filesystem`, `contents`), and the routes
(`control`, `data`, `server`). docs/internals/e2b-api.md tells what of the API there is.
"""
