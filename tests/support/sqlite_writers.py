"""Programs that write to the votes in a SQLite file until they are killed.

Their arguments are the file, a seed and a strategy.

Each has users of its own, so that none waits for what another inserts.
"""

PROGRAMS = {
    "sqlite3": """
import random, sqlite3, sys
path, users = sys.argv[1], range(1000 * int(sys.argv[2]), 1000 * int(sys.argv[2]) + 200)
db = sqlite3.connect(path, timeout=20, isolation_level=None)
while True:
    item, user, n = random.randint(1, 5), random.choice(users), random.randint(-2, 3)
    db.execute("BEGIN IMMEDIATE")
    for _ in range(random.randint(1, 3)):
        db.execute(random.choice((
            "INSERT INTO vote (item_id, user_id, val) VALUES (?1, ?2, ?3)"
            " ON CONFLICT (item_id, user_id) DO UPDATE SET val = excluded.val",
            "UPDATE OR IGNORE vote SET item_id = ?1, val = ?3 WHERE user_id = ?2",
            "DELETE FROM vote WHERE user_id = ?2 AND ?1 = ?1 AND ?3 = ?3",
        )), (item, user, n))
    db.execute(random.choice(("COMMIT", "COMMIT", "ROLLBACK")))
""",
    "hotcount": """
import hotcount, random, sys
path, users = sys.argv[1], range(1000 * int(sys.argv[2]), 1000 * int(sys.argv[2]) + 200)
votes = hotcount.Votes(hotcount.Database(f"sqlite:///{path}", timeout=20), None, sys.argv[3])
while True:
    votes.cast_many([random.randint(1, 5) for _ in range(20)], random.choices(users, k=20),
                    [random.randint(-2, 3) for _ in range(20)])
    votes.erase_user(random.choice(users))
""",
    "integration": """
import hotcount, random, sqlalchemy as sa, sys
from hotcount.integrations.sqlalchemy import cast_vote
path, users = sys.argv[1], range(1000 * int(sys.argv[2]), 1000 * int(sys.argv[2]) + 200)
votes = hotcount.Votes(hotcount.Database(f"sqlite:///{path}", timeout=20), None, sys.argv[3])
engine = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": 20})
while True:
    with engine.begin() as session:
        cast_vote(session, votes, random.randint(1, 5), random.choice(users), random.randint(0, 3))
        session.execute(sa.text("DELETE FROM vote WHERE user_id = :u"), {"u": random.choice(users)})
        cast_vote(session, votes, random.randint(1, 5), random.choice(users), random.randint(0, 3))
""",
}
