"""A first question to an output: which passages surprised the model most? Usage: first_query.py OUT"""

import sys

import duckdb

QUERY = """
SELECT coalesce(display_path, title) AS place, line_start AS line,
       round(-mean_logprob, 2) AS surprisal, left(replace(text, chr(10), ' '), 60) AS passage
FROM read_parquet(? || '/spans/*/*.parquet')
ORDER BY mean_logprob
LIMIT 5
"""

sys.stdout.write("Most surprising passages (nats a token):\n")
duckdb.sql(QUERY, params=[sys.argv[1]]).show()
