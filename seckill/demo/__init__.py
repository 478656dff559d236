"""`bin/demo`: a whole flash sale, from an empty folder to an audited result.

`rig` is the system under it (servers, topics, processes), `sale` the activity, `crowd` the buyers
in a process of their own, `story` the phases, `screen` what a person sees, `result` the audit.
`bin/bench` builds on the first two.
"""
