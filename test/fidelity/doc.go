// Package fidelity plays scenarios on the broker in process and on real brokers, and compares their traces.
//
// A scenario drives a broker with raw commands, with the Go client or with the admin API. Its trace has all answers of
// the broker, with ledgers and generated names normalized. Folder testdata has the traces of a real Pulsar 4.0.7.
// The tests compare the broker in process with these traces. If PULSAR_URL and PULSAR_ADMIN_URL name a real broker, the
// tests play the scenarios on this broker as well:
//
//	make fidelity                                                           compares with Pulsar 3.0, 4.0 and 4.2
//	eval "$(test/scripts/pulsar start)"; go test ./test/fidelity            compares with one real broker
//	eval "$(test/scripts/pulsar start)"; go test ./test/fidelity -update    records that broker's traces
//
// Some scenarios need a broker with batch-index acknowledgement (PULSAR_CONF_acknowledgmentAtBatchIndexLevelEnabled),
// and the others need a broker without it. On a real broker the tests play only the scenarios that fit its setting.
package fidelity
