.DEFAULT_GOAL := help
.PHONY: help demo test lint format types stack down bench chaos docs

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## a whole flash sale on the real stack, to an audited result
	bin/demo

test: ## set up, lint, type-check and run every test
	bin/test

lint: ## ruff and the import contracts
	.venv/bin/ruff check . && .venv/bin/lint-imports

format: ## format the code
	.venv/bin/ruff format . && .venv/bin/ruff check --fix .

types: ## mypy, strict
	eval "$$(bin/stack env)" && .venv/bin/mypy .

stack: ## start PostgreSQL, Redis and RocketMQ
	bin/stack up

down: ## stop them
	bin/stack down

bench: ## accepted per second at 200 connections (bin/bench --help for the others)
	bin/bench accept

chaos: ## ten sales under faults drawn from seeds (bin/chaos --help: more, or one again)
	bin/chaos --seeds 10

docs: ## write the generated pages (states, dependencies of settings)
	eval "$$(bin/stack env)" && .venv/bin/python -m docs.generate
