package main

import (
	"fmt"

	"github.com/pulsar-redelivery/redelivery/benchmarks/internal/worker"
)

// costs returns the works behind the cost model: one quantity each, at three sizes.
func costs(size func(full, quick int) int) []work {
	seconds := size(10, 3)
	clients := []client{ours, plain}
	var waiting, consumers, batches []setting
	for _, n := range []int{1000, 10_000, size(49_000, 20_000)} {
		waiting = append(waiting, setting{name: fmt.Sprint(n), task: hour("waiting", n, seconds)})
	}
	for _, n := range []int{1, 10, 100} {
		task := hour("idle", 0, seconds)
		task.Consumers = n
		consumers = append(consumers, setting{name: fmt.Sprint(n), task: task})
	}
	for _, n := range []int{1, 10, 100} {
		batches = append(batches, setting{name: fmt.Sprint(n), task: worker.Task{
			Kind: "batch", Messages: size(20_000, 5000), BatchSize: n,
			MinMs: 100, MaxMs: 3200, FirstMs: 2000, SpreadMs: 1000}})
	}
	return []work{{
		name: "cost waiting", title: "Cost of waiting messages", settings: waiting, clients: clients,
		text: "The first column is how many messages wait.",
		columns: []column{{"heap per message", "bytes", "%.0f B"}, {"its id object", "idBytes", "%.0f B"},
			{"CPU of receive and nack", "nackCPUus", "%.1f µs"}, {"idle CPU", "idlePercent", "%.2f %%"}},
	}, {
		name: "cost consumers", title: "Cost of consumers", settings: consumers, clients: clients,
		text: "The first column is how many consumers a process has, on one topic and with nothing waiting.",
		columns: []column{{"idle CPU per consumer", "idlePerConsumer", "%.2f %%"},
			{"heap per consumer", "heapPerConsumerKB", "%.0f KB"}},
	}, {
		name: "cost batches", title: "Cost of batches", settings: batches, clients: clients,
		text: "Every message is nacked once, to come back two to three seconds later, and then acknowledged. The first column is the size of the batches; figures are " +
			"for each message. Requests are those of all kinds, with acknowledgements and flow.",
		columns: []column{{"CPU", "cpuUs", "%.1f µs"}, {"requests", "requests", "%.2f"}, {"deliveries", "deliveries", "%.2f"},
			{"bytes received", "bytesIn", "%.0f"}, {"bytes sent", "bytesOut", "%.0f"}},
	}}
}
