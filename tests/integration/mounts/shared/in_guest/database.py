"""SQLite on the mount, with two writers and a reader at once: `database.py JOURNAL`."""

import os
import sqlite3
import sys

ROWS = 40


def open_it() -> sqlite3.Connection:
    base = sqlite3.connect("base.db", timeout=60)
    mode = base.execute(f"pragma journal_mode={sys.argv[1]}").fetchone()[0]
    assert mode == sys.argv[1], mode
    return base


def write(writer: int) -> None:
    base = open_it()
    for number in range(ROWS):
        with base:
            base.execute("insert into t values (?, ?, ?)", (writer, number, "x" * 3000))
    base.close()


def main() -> None:
    base = open_it()
    base.execute("create table t (writer, number, text)")
    base.commit()
    base.close()
    children = []
    for writer in range(2):
        child = os.fork()
        if not child:
            write(writer)
            os._exit(0)
        children.append(child)
    base = open_it()
    seen = 0
    while seen < 2 * ROWS:
        now = base.execute("select count(*) from t").fetchone()[0]
        assert now >= seen, "what was committed is gone"
        seen = now
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    with base:
        base.execute("delete from t where number % 2")
    try:
        with base:
            base.execute("delete from t")
            raise RuntimeError
    except RuntimeError:
        pass
    left = base.execute("select writer, count(*) from t group by writer").fetchall()
    assert left == [(0, ROWS // 2), (1, ROWS // 2)], left
    assert base.execute("pragma integrity_check").fetchone()[0] == "ok"
    base.close()


if __name__ == "__main__":
    main()
