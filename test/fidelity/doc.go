// Package fidelity plays scenarios on the broker in process and on real ones, and compares what happens.
//
// A scenario drives a broker with raw commands, with the Go client or with the admin API, and leaves a trace of all
// that the broker answered, in which ledgers and generated names are made equal. Folder testdata has the traces of a
// real Pulsar 4.0.7. Without a broker the tests hold the broker in process against these; with PULSAR_URL and
// PULSAR_ADMIN_URL they play the scenarios on that broker as well:
//
//	make fidelity                                          both brokers, side by side, for Pulsar 3.0, 4.0 and 4.2
//	eval "$(test/scripts/pulsar start)"; go test ./test/fidelity            one real broker
//	eval "$(test/scripts/pulsar start)"; go test ./test/fidelity -update    rewrite its traces
//
// A scenario is for a broker with or without batch-index acknowledgement
// (PULSAR_CONF_acknowledgmentAtBatchIndexLevelEnabled): a real one plays only those that are for it.
package fidelity
