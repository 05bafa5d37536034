# Every target sets up what it needs in .venv; PYTHON picks the interpreter (3.10 to 3.13).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARDS := build/demo

.PHONY: setup demo test lint types unit engines

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	rm -rf $(SHARDS)
	$(BIN)/elmo featurize pipelines/samples/english.txt --output $(SHARDS)/english --format text --tokenizer spacy:en
	$(BIN)/elmo featurize pipelines/samples/chinese.txt --output $(SHARDS)/chinese --format text --tokenizer spacy:zh
	$(BIN)/elmo inspect $(SHARDS)/english
	$(BIN)/elmo inspect $(SHARDS)/chinese
	@echo "The shards lie in $(SHARDS)/english/shards and $(SHARDS)/chinese/shards."

test: lint types unit engines

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

unit: setup
	$(BIN)/pytest -m 'not engine'

engines: setup
	$(BIN)/pytest -m engine
