package main

import (
	"fmt"
	"strings"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/benchmarks/internal/worker"
)

// costs returns the works for the cost model. Each work varies one quantity over three sizes.
func costs(size func(full, quick int) int) []work {
	seconds := size(10, 3)
	clients := []client{ours, plain}
	var waiting, consumers, batches []setting
	for _, n := range []int{1000, 10_000, size(49_000, 20_000)} {
		waiting = append(waiting, setting{name: fmt.Sprint(n), task: hourTask("waiting", n, seconds)})
	}
	for _, n := range []int{1, 10, 100} {
		task := hourTask("idle", 0, seconds)
		task.Consumers = n
		consumers = append(consumers, setting{name: fmt.Sprint(n), task: task})
	}
	for _, n := range []int{1, 10, 100} {
		batches = append(batches, setting{name: fmt.Sprint(n), task: worker.Task{
			Kind: "batch", Messages: size(20_000, 5000), BatchSize: n,
			Delays: worker.Delays{MinMs: 100, MaxMs: 3200, FirstMs: 2000, SpreadMs: 1000}}})
	}
	return []work{{
		name: "cost waiting", title: "Cost of waiting messages", settings: waiting,
		clients: []client{ours, fromBroker, plain},
		text: "The first column is how many messages wait. By default a Consumer keeps them, with upstream's message " +
			"object and the payload, as long as the memory limit of 16 MiB has room. Beyond the limit, and with " +
			"`WithRedeliveryFrom(FromBroker)`, it keeps only their ids.",
		columns: []column{{"heap per message", "bytes", "%.0f B"}, {"its id object", "idBytes", "%.0f B"},
			{"CPU of receive and nack", "nackCPUus", "%.1f µs"}, {"idle CPU", "idlePercent", "%.2f %%"}},
	}, {
		name: "cost consumers", title: "Cost of consumers", settings: consumers, clients: clients,
		text: "The first column is how many consumers a process has, on one topic and with nothing waiting.",
		columns: []column{{"idle CPU per consumer", "idlePerConsumer", "%.2f %%"},
			{"heap per consumer", "heapPerConsumerKB", "%.0f KB"}},
	}, {
		name: "cost batches", title: "Cost of batches", settings: batches, clients: clients,
		text: "Every message is nacked once, to come back two to three seconds later, and then acknowledged. With " +
			"pulsar-client-go " +
			"the whole batch comes back when its first message is due. The first column is the size of the " +
			"batches; figures are for " +
			"each message. Requests are of all kinds: redelivery, acknowledgements and flow.",
		columns: []column{{"CPU", "cpuUs", "%.1f µs"}, {"requests", "requests", "%.2f"},
			{"deliveries", "deliveries", "%.2f"},
			{"bytes received", "bytesIn", "%.0f"}, {"bytes sent", "bytesOut", "%.0f"}},
	}}
}

// model extrapolates the figures to 1,000 consumers and to 1,000,000 messages a second.
func (rep *report) model() string {
	// figure returns a figure of a setting. If setting is "", this is the last setting, which is the largest.
	figure := func(work, setting, client, name string) (f float64) {
		for _, r := range rep.Results {
			if r.Work == work && (setting == "" || r.Setting == setting) && r.Client == client && r.Failed == "" {
				f = r.Figures[name]
			}
		}
		return f
	}
	var b strings.Builder
	b.WriteString("### Extrapolation\n\nFor 1,000 idle consumers in one process the figures follow from the growth " +
		"between 10 and 100 consumers. The 1,000,000 messages a second come in batches of 1000. If one message " +
		"in a hundred is nacked and waits for a minute, 600,000 messages wait. redelivery then keeps only their ids, " +
		"and 16 MiB of messages (the memory limit).\n\n" +
		"| | 1,000 idle consumers | | 1,000,000 messages a second | 600,000 waiting |\n|---|--:|--:|--:|--:|\n")
	rows := 0
	for _, c := range []client{ours, tracked, plain} {
		idleName, waitingName, keptBytes := c.name, c.name, 0.0
		if c.name != plain.name {
			// an ack timeout costs nothing while a consumer is idle or a message waits
			idleName = ours.name
			// beyond the memory limit, only ids are kept
			waitingName, keptBytes = fromBroker.name, float64(redelivery.DefaultMemoryLimit)
		}
		slope := func(name string) float64 { // growth of a figure with each consumer
			at10 := figure("cost consumers", "10", idleName, name)
			at100 := figure("cost consumers", "100", idleName, name)
			return (100*at100 - 10*at10) / 90
		}
		cpu := figure("W4", "", c.name, "cpuUs")
		waiting := 600_000*figure("cost waiting", "", waitingName, "bytes") + keptBytes
		if cpu == 0 || slope("heapPerConsumerKB") == 0 {
			continue
		}
		rows++
		fmt.Fprintf(&b, "| %s | %.0f %% of a core | %.0f MB | %.1f cores | %.0f MB |\n", c.name,
			1000*slope("idlePerConsumer"),
			slope("heapPerConsumerKB"), cpu, waiting/1e6)
	}
	if rows == 0 {
		return ""
	}
	return b.String() + "\n"
}
