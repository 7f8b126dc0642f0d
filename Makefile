# `make help` lists the targets, and docs/CONTRIBUTING.md explains the main ones. `.ci/run` runs those of CI.
# Tools are built once, into .tools; later runs need no network.
tool = $(CURDIR)/.tools/$(1)/$(firstword $(subst @, ,$(1)))
GOLANGCI = $(call tool,golangci-lint@v2.15.0)
VALE = $(call tool,vale@v3.21.0)
ACTIONLINT = $(call tool,actionlint@v1.7.12)
BENCHSTAT = $(call tool,benchstat@v0.0.0-20260908200009-22c9c6c9d4da)
GOVULNCHECK = $(call tool,govulncheck@v1.8.0)
GORELEASE = $(call tool,gorelease@v0.0.0-20261014143641-f0251eb4aa3e)
MODULE = github.com/pulsar-redelivery/redelivery

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: test
test: ## run all tests with the race detector, on a broker in process, or on that of PULSAR_URL and PULSAR_ADMIN_URL (8 minutes)
	go test -race ./...

# BROKER_TESTS are the tests of whole Consumers. They run on the broker of PULSAR_URL if it is set.
BROKER_TESTS = $(addprefix ./test/,ack nack retry owners receive close subscribe matrix random)

.PHONY: test-long
test-long: ## run the tests, and those that take minutes (nightly, 30 minutes)
	go test -race -count 1 -timeout 60m ./test/model $(BROKER_TESTS) ./test/upstream -args -long

.PHONY: test-broker
test-broker: ## run the tests against a real broker, started for them
	broker=$$(test/scripts/pulsar start) && eval "$$broker" && \
		go test -race -p 1 -count 1 -timeout 20m $(BROKER_TESTS) ./reconsume ./pulsartest

# VERSIONS are the versions of Pulsar that test-versions starts.
VERSIONS ?= 3.0.7 4.2.4
.PHONY: test-versions
test-versions: ## start other versions of Pulsar, one after the other, and run the tests against each (nightly, 15 minutes)
	status=0; for version in $(VERSIONS); do \
		export PULSAR_VERSION=$$version PULSAR_NAME=version-$$version; \
		broker=$$(test/scripts/pulsar start) && eval "$$broker" && \
			go test -p 1 -count 1 -timeout 30m $(BROKER_TESTS) ./reconsume || status=1; \
		test/scripts/pulsar stop; \
	done; exit $$status

# UPSTREAM is a version, branch or commit of pulsar-client-go. If it is empty, the version of go.mod is tested.
.PHONY: test-upstream
test-upstream: ## run pulsar-client-go's own tests through Subscribe, on the broker in process and on a real one (nightly, 15 minutes)
	broker=$$(PULSAR_NAME=upstream PULSAR_CONF_maxMessageSize=1048576 test/scripts/pulsar start) && eval "$$broker" && \
		go run ./test/upstream -upstream '$(UPSTREAM)'; status=$$?; PULSAR_NAME=upstream test/scripts/pulsar stop; exit $$status

.PHONY: test-upstream-main
test-upstream-main: ## the same with the newest commit of pulsar-client-go, whatever go.mod says
	$(MAKE) test-upstream UPSTREAM=master

.PHONY: fidelity
fidelity: ## play scenarios on the broker in process and on Pulsar 3.0, 4.0 and 4.2, side by side (8 minutes)
	test/fidelity/run

.PHONY: chaos
chaos: ## break brokers, connections and consumers while they handle messages, and count lost, early and repeated ones (40 minutes)
	go run ./test/faults

.PHONY: chaos-short
chaos-short: ## the quick faults of chaos (1 minute)
	go run ./test/faults -short

.PHONY: kill
kill: ## kill and restart processes whose failures and crashes are in a log of attempts, and a broker of a cluster (20 minutes)
	go run ./test/faults kill

.PHONY: owners
owners: ## change the owners of partitions and keys under Workers (8 minutes)
	go run ./test/faults owners

.PHONY: compared
compared: ## run four clients under the same faults, and write docs/compared.md (15 minutes)
	broker=$$(test/scripts/pulsar start) && eval "$$broker" && cd test/compared && go run . && go run . -page ../../docs/compared.md

# DEEPER is how many steps explore plays beyond those of CI. Each step makes it take three times as long.
DEEPER ?= 3
.PHONY: explore
explore: ## play every short history of the machine, and of two machines with a log of attempts; remove each rule in turn (an hour)
	go test ./internal/partition -run Exploration -deeper $(DEEPER) -count 1 -timeout 2h -v
	go test ./attempts -run Exploration -deeper 2 -count 1 -timeout 2h -v
	go test ./internal/partition -run Mutants -mutants -count 1 -timeout 2h -v
	go test ./attempts -run Mutants -mutants -count 1 -timeout 2h -v

.PHONY: soak
soak: ## inject random faults for an hour
	go run ./test/faults -for 1h

.PHONY: quickstart
quickstart: ## show planned and actual delays of redelivered messages
	@echo "The first run compiles pulsar-client-go, which takes a minute, and fetches a broker, which takes another." >&2
	broker=$$(test/scripts/pulsar start) && eval "$$broker" && go run ./examples/quickstart

.PHONY: broker
broker: ## start a real broker and print where it is
	test/scripts/pulsar start

.PHONY: lint
lint: lint-prose lint-commits $(GOLANGCI) $(ACTIONLINT) ## check code (.golangci.yml), prose, commit subjects, workflows, and that go.mod is tidy
	$(GOLANGCI) run ./...
	$(ACTIONLINT)
	go mod tidy -diff

.PHONY: lint-prose
lint-prose: $(VALE) ## check spelling and wording of documents and comments (.vale/vale.ini)
	$(VALE) --config=.vale/vale.ini --minAlertLevel=error --glob='!.prometheus/**' .

.PHONY: lint-commits
lint-commits: ## check the subjects of commits: "package: verb", at most 72 characters
	test/scripts/subjects

.PHONY: fuzz
fuzz: ## fuzz each parser of foreign input, for a minute each
	go test -run '^$$' -fuzz FuzzParseDelayLevels -fuzztime 1m ./backoff
	go test -run '^$$' -fuzz FuzzParse -fuzztime 1m -fuzzminimizetime 1x ./config
	go test -run '^$$' -fuzz FuzzHostileProperties -fuzztime 1m ./reconsume
	go test -run '^$$' -fuzz FuzzReader -fuzztime 1m ./pulsartest/internal/wire
	go test -run '^$$' -fuzz FuzzServer -fuzztime 1m ./pulsartest
	go test -run '^$$' -fuzz FuzzParse -fuzztime 1m ./internal/history

.PHONY: bench
bench: ## run all benchmarks, on the broker in process or on that of PULSAR_URL
	go test -run '^$$' -bench . -benchmem ./... -timeout 30m

.PHONY: vulncheck
vulncheck: $(GOVULNCHECK) ## look for known vulnerabilities (needs the network)
	$(GOVULNCHECK) ./...

# Before the first release no proxy lists versions of this module; .bench/proxy has an empty list of them. gorelease also looks for retracted
# versions in the list of each dependency. An empty list is an error there, unless go.mod requires a commit of the dependency.
.PHONY: release-check
release-check: export GOPROXY := $(if $(BASE),,file://$(CURDIR)/.bench/proxy,)$(shell go env GOPROXY)
release-check: $(GORELEASE) ## say which version the API needs next; BASE is the last one, as in make release-check BASE=v0.1.0
	@mkdir -p .bench/proxy/$(MODULE)/@v && : > .bench/proxy/$(MODULE)/@v/list
	@go list -m -versions -retracted -f '{{if not (or .Main .Versions)}}{{.Path}} {{.Version}}{{end}}' all > .bench/unlisted
	@! grep -Ev '[0-9]{14}-[0-9a-f]{12}' .bench/unlisted || { echo "The module proxy lists no version of these modules." >&2; exit 1; }
	$(GORELEASE) $(if $(BASE),-base=$(BASE),-base=none -version=v0.1.0)

.PHONY: benchstat
benchstat: $(BENCHSTAT) ## compare the cost of the machine and the Consumer with docs/benchmarks.txt
	@mkdir -p .bench
	go test -run '^$$' -bench 'Consumer$$|^BenchmarkAck$$|Nack$$' -benchmem -benchtime 100000x -count 6 \
		./test/ack ./internal/partition > .bench/new.txt
	$(BENCHSTAT) docs/benchmarks.txt .bench/new.txt

.PHONY: benchmarks
benchmarks: ## compare with other clients and write benchmarks/RESULTS.md (25 minutes, a calm machine)
	broker=$$(test/scripts/pulsar start) && eval "$$broker" && cd benchmarks && go run . -docs ../docs

.PHONY: benchmarks-quick
benchmarks-quick: ## the same in 4 minutes, into benchmarks/out
	broker=$$(test/scripts/pulsar start) && eval "$$broker" && cd benchmarks && go run . -quick

.PHONY: otel
otel: $(GOLANGCI) ## check and test module otel
	cd otel && $(GOLANGCI) run ./... && go mod tidy -diff && go test -race ./...

.PHONY: inbox
inbox: $(GOLANGCI) ## check and test module inbox, on SQLite and on a PostgreSQL that the target starts
	server=$$(test/scripts/postgres start) && eval "$$server" && (cd inbox && $(GOLANGCI) run ./... && go mod tidy -diff && go test -race ./...); \
		status=$$?; test/scripts/postgres stop; exit $$status
	go -C examples/inbox run .

# PICTURES is -update to write the pictures of docs/ui.md.
PICTURES ?=
.PHONY: ui
ui: $(GOLANGCI) ## check and test the pages in a headless Chromium, which CHROMIUM names (2 minutes)
	cd ui/browsertest && $(GOLANGCI) run ./... && go mod tidy -diff && go test -race -timeout 10m . -args $(PICTURES)

.PHONY: dashboard
dashboard: ## fetch Prometheus, run dashboard and alerts against it, and draw their pictures (2 minutes)
	folder=$$(test/scripts/prometheus) && eval "$$folder" && go test ./metrics/deploy -v -count 1 -update -scrape 60s

.PHONY: lint-benchmarks
lint-benchmarks: $(GOLANGCI) ## check and test the module of the benchmarks; its pictures must match its tables
	cd benchmarks && $(GOLANGCI) run ./... && go mod tidy -diff && go test ./...

$(GOLANGCI): path = github.com/golangci/golangci-lint/v2/cmd
$(VALE): path = github.com/vale-cli/vale/v3/cmd
$(ACTIONLINT): path = github.com/rhysd/actionlint/cmd
$(BENCHSTAT): path = golang.org/x/perf/cmd
$(GOVULNCHECK): path = golang.org/x/vuln/cmd
$(GORELEASE): path = golang.org/x/exp/cmd
$(GOLANGCI) $(VALE) $(ACTIONLINT) $(BENCHSTAT) $(GOVULNCHECK) $(GORELEASE):
	GOFLAGS= GOBIN=$(@D) go install $(path)/$(notdir $(@D))
