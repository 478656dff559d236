"""The live sale monitor: one sampler looks, any number of people watch.

`sampler` reads the stores once a second, `loop` runs it in a worker process, `store` keeps what it
saw in Redis, `stream` hands it to browsers, `views` are the pages. Source:
docs/operations/monitor.md.
"""
