"""Auto mode: recovery points in scripts that have none.

``actions`` sees each action of the script, ``jvm/optimized`` reads its optimized plan, ``rules`` says where points
belong, ``cost`` whether they are worth their price, ``placing`` puts them in place. ``persisted`` does the same for
what the script caches.
"""
