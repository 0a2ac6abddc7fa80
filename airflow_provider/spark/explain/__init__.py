"""``spark-recovery explain``: what auto mode would do to a script, without running a Spark job of it.

``stand_ins`` puts harmless functions in the place of the script's actions, ``sql_commands`` does so for SQL,
``deciding`` asks the rules and the price of auto mode about each plan, ``explanation`` holds the answer, ``text`` shows
it.
"""
