"""Auto mode: keep the shuffles of scripts that name no recovery points, and put them back in a retry.

``watching`` observes the script's own plans while they run, ``keeping`` copies what their map tasks have written, and
``restoring`` puts it back into the plans of a retry (``restored_plan``: into one). ``kept_frames`` and
``restored_frames`` do the same for what the script has cached. ``mode`` ties them together. No plan is rewritten.
"""
