// Package fidelity plays scenarios on the broker in process and on real brokers, and compares the traces.
//
// A scenario drives a broker with raw commands, with the Go client or with the admin API. Its trace has all answers of
// the broker, with ledgers and generated names normalized. Folder testdata has the traces of a real Pulsar 4.0.7.
// Without a broker the tests compare the broker in process with these; with PULSAR_URL and PULSAR_ADMIN_URL they play
// the scenarios on that broker as well:
//
//	make fidelity                                          both brokers, side by side, for Pulsar 3.0, 4.0 and 4.2
//	eval "$(test/scripts/pulsar start)"; go test ./test/fidelity            one real broker
//	eval "$(test/scripts/pulsar start)"; go test ./test/fidelity -update    rewrite its traces
//
// A scenario is for a broker with or without batch-index acknowledgement
// (PULSAR_CONF_acknowledgmentAtBatchIndexLevelEnabled): a real broker plays only its own scenarios.
package fidelity
