# What CI does, and what people do. `make help` lists the targets.
SHELL := /bin/bash
GOLANGCI_VERSION := v2.15.0
GOVULNCHECK_VERSION := latest
# Tests wait more than they compute, so that more of them run at once than there are cores. `make lint` vets.
TEST_FLAGS ?= -race -shuffle=on -timeout 60m -p 2 -parallel 4 -vet=off
MODEL ?= -count 20000

.DEFAULT_GOAL := help
.PHONY: help run test model faults lint generate bench bench-quick vuln tools

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | column -t -s $$'\t'

run: ## run PostgreSQL, RocketMQ and the service on this machine; data is kept in .txsvc/
	go build -o bin/txsvc ./cmd/txsvc
	@exec bin/txsvc dev

test: ## run all tests; what they need beside Go, Java and Maven is fetched, and started
	@.ci/tools
	go build -o bin/withstack ./internal/tools/devstack/withstack
	@PATH="$$(.ci/tools --path):$$PATH" exec bin/withstack go test $(TEST_FLAGS) ./internal/tools/e2e ./internal/tools/faults ./... # the longest first

model: ## explore many schedules of the flow and the deliveries over a database and brokers in memory; MODEL="-from 1 -count 100000" explores more
	go test -count=1 -v -run 'TestPromises$$' ./internal/tools/model -args $(MODEL)

faults: ## break everything, again and again, and count what consumers see: an hour (see docs/faults.md); FAULTS="-each 2" is shorter
	go build -o bin/faults ./internal/tools/faults/cmd
	@exec bin/faults $(FAULTS)

lint: ## gofmt, and golangci-lint, which vets, too
	@test -z "$$(gofmt -l .)" || { gofmt -l . | sed 's/$$/: not formatted (gofmt)/'; exit 1; }
	go vet ./internal/failpoint # golangci-lint sees the other half of this package
	golangci-lint run ./...

generate: ## make generated files anew
	go generate ./...

bench: ## measure the service beside handlers without messages, in turns (see docs/benchmark.md); BENCH="-only plain,sql" measures less
	go build -o bin/bench ./internal/tools/bench
	@exec bin/bench -json bin/bench.json -svg bin/bench.svg $(BENCH)

bench-quick: ## the same in three minutes, with fewer contenders and shorter turns
	go build -o bin/bench ./internal/tools/bench
	@exec bin/bench -only plain,sql,go,ordered,outbox -rounds 3 -duration 2s -warm 1s -cold 3s -rates 0.5 -open-rounds 1 -linger 5s $(BENCH)

vuln: ## check dependencies for known vulnerabilities (needs the Internet)
	go run golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION) ./...

tools: ## install the linter
	go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
