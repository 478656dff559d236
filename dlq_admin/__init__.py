"""The desk for dead messages: tickets, dry run, approval, replay, proof and audit."""
