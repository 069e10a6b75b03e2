"""Copies a recording, with the events of its last step repeated until there are so many.

    many_events.py FROM.db TO.db EVENTS
"""
import shutil
import sqlite3
import sys

source, target, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
shutil.copy(source, target)
with sqlite3.connect(target) as database:
    columns = "run_id, rank, time_ns, step, operation_id, tensor_id, role, bytes, live_bytes, address, arena"
    last, = database.execute("SELECT MAX(step) FROM memory_events").fetchone()
    step = database.execute(f"SELECT {columns} FROM memory_events WHERE step = ? ORDER BY seq", (last,)).fetchall()
    count, seq, until = database.execute("SELECT COUNT(*), MAX(seq), MAX(time_ns) FROM memory_events").fetchone()
    began, rows, shift = step[0][2], [], 0
    while count + len(rows) < wanted:
        shift += until - began + 1000
        rows += [(run, rank, seq + 1 + len(rows) + i, time + shift, *rest) for i, (run, rank, time, *rest) in enumerate(step)]
    database.executemany("INSERT INTO memory_events (run_id, rank, seq, time_ns, step, operation_id, tensor_id, role, bytes,"
                         " live_bytes, address, arena) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", rows[:wanted - count])
