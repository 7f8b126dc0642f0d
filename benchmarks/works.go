package main

import (
	"fmt"
	"time"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/benchmarks/internal/worker"
)

// A client is a row of the tables: a program, and the settings of its consumer.
type client struct {
	name string
	task worker.Task // the fields that replace those of a setting's task
	only string      // the one setting that the client can do; "" for all
	none bool        // the client cannot do the work
	note string
}

// A setting is one way to run a work.
type setting struct {
	name       string
	task       worker.Task
	every      time.Duration // between messages published
	partitions int
	full       bool // left out of a quick run
}

// A column of a work's table.
type column struct {
	title, figure, format string
}

// A work is done by each of its clients in each of its settings.
type work struct {
	name, title, text string
	rounds            int // how often the work is done; the median counts
	settings          []setting
	clients           []client
	columns           []column
}

var zero = 0

// The first client of each program has the program's default settings.
var (
	ours    = client{name: "redelivery", task: worker.Task{Program: "redelivery"}}
	ours1ms = client{name: "redelivery, 1 ms",
		task: worker.Task{Program: "redelivery", Client: worker.Client{ResolutionMs: 1}}}
	fromMemory = client{name: "redelivery, from memory",
		task: worker.Task{Program: "redelivery", Client: worker.Client{From: redelivery.FromMemory}}}
	fromBroker = client{name: "redelivery, from the broker",
		task: worker.Task{Program: "redelivery", Client: worker.Client{From: redelivery.FromBroker}}}
	plain      = client{name: "pulsar-client-go", task: worker.Task{Program: "go"}}
	plain0Bits = client{name: "pulsar-client-go, 0 bits",
		task: worker.Task{Program: "go", Client: worker.Client{PrecisionBits: &zero}}}
	java      = client{name: "Java", task: worker.Task{Program: "java"}}
	java0Bits = client{name: "Java, 0 bits",
		task: worker.Task{Program: "java", Client: worker.Client{PrecisionBits: &zero}}}
	java100 = client{name: "Java, tick 100 ms", task: worker.Task{Program: "java", Client: worker.Client{TickMs: 100}}}
	python  = client{name: "Python",
		task: worker.Task{Program: "python", Delays: worker.Delays{MinMs: 400, MaxMs: 400}}, only: "steady",
		note: "Python's client has no backoff: its delay is always 400 ms."}
	pythonAck = client{name: "Python",
		task: worker.Task{Program: "python", Client: worker.Client{AckTimeoutMs: 10_000}}, only: "1 s",
		note: "Python's client accepts no ack timeout under 10 s, so its timeout is 10 s."}
	plainNone = client{name: plain.name, task: plain.task, none: true}
	tracked   = client{name: "redelivery, ack timeout",
		task: worker.Task{Program: "redelivery", Client: worker.Client{AckTimeoutMs: 60_000}}}

	nackTracker = client{name: "nack.Tracker", task: worker.Task{Program: "redelivery", Tracker: "nack"}}
	ackTracker  = client{name: "acktimeout.Tracker", task: worker.Task{Program: "redelivery", Tracker: "acktimeout"}}
)

var lateness = []column{
	{"early", "earlyPercent", "%.0f %%"}, {"early by up to", "earlyMs", "%.0f ms"}, {"p50", "p50", "%.1f ms"},
	{"p90", "p90", "%.1f ms"}, {"p99", "p99", "%.1f ms"}, {"max", "max", "%.1f ms"},
	{"p99 of \\|actual − planned\\|", "p99abs", "%.1f ms"}, {"CPU", "cpuSeconds", "%.2f s"},
}

// works returns the works that compare clients. size chooses between the size of a full run and that of a quick one.
func works(size func(full, quick int) int) []work {
	nack := worker.Task{Kind: "lateness", Messages: 200, Redeliveries: size(6, 3),
		Delays: worker.Delays{MinMs: 100, MaxMs: 3200}}
	sparse := nack
	sparse.Messages = size(20, 5)
	mixed := nack
	mixed.Messages, mixed.Mixed = size(200, 60), true
	ack := worker.Task{Kind: "lateness", Messages: 100, Redeliveries: size(4, 1),
		Client: worker.Client{AckTimeoutMs: 1000}}
	ackBackoff := ack
	ackBackoff.MinMs, ackBackoff.MaxMs = 100, 3200
	spread := hourTask("waiting", size(50_000, 10_000), size(10, 2))
	atOnce := spread
	atOnce.DueInMs = size(35_000, 8_000)
	consume := worker.Task{Kind: "consume", Messages: size(1_000_000, 100_000), BatchSize: 1000}
	idle := hourTask("idle", 100, size(15, 3))
	tracker := func(n int) worker.Task { return worker.Task{Kind: "trackers", Messages: n, Seconds: size(10, 2)} }

	byType := func(task worker.Task, partitions int) (all []setting) {
		for _, name := range []string{"Exclusive", "Failover", "Key_Shared"} {
			task.Subscription = name
			if partitions > 0 {
				name = fmt.Sprintf("%s, partitions: %d", name, partitions)
			}
			all = append(all, setting{name: name, task: task, partitions: partitions})
		}
		return all
	}
	backlog := worker.Task{Kind: "lateness", Messages: size(3000, 600), Redeliveries: 1, FailsEach: 30, HandleMs: 20,
		Delays: worker.Delays{MinMs: 100, MaxMs: 3200}}
	batches := nack
	batches.BatchSize = 10

	return []work{{
		name: "W1", title: "Precision of nacks",
		text: "Each message fails on every delivery but the last, as soon as it is received; its delay is 100 ms · " +
			"2ⁿ. steady: all messages are published together. sparse: one every 400 ms. mixed: one every 20 ms, each " +
			"failing one to six times.",
		settings: []setting{{name: "steady", task: nack}, {name: "sparse", task: sparse, every: 400 * time.Millisecond},
			{name: "mixed", task: mixed, every: 20 * time.Millisecond}},
		clients: []client{ours, ours1ms, fromMemory, plain, plain0Bits, java, java0Bits, python}, columns: lateness,
	}, {
		name: "W1b", title: "Precision of nacks on other subscription types, and of batches",
		text: "As `steady` of W1: on Exclusive, Failover and Key_Shared without batches, and on Shared in batches " +
			"of ten.",
		settings: append(byType(nack, 0), setting{name: "Shared, batches", task: batches}),
		clients:  []client{ours, plain}, columns: lateness,
	}, {
		name: "W1c", title: "Precision of nacks behind a backlog",
		text: "3,000 messages are published together. One goroutine handles them, 20 ms each. Every thirtieth " +
			"message fails once, with a delay of 100 ms.",
		settings: []setting{{name: "Shared, backlog", task: backlog}},
		clients:  []client{ours, plain}, columns: lateness,
	}, {
		name: "W2", title: "Precision of ack timeouts",
		text: "Each message reaches its ack timeout a few times, and is then acknowledged. The timeout is 1 s; with " +
			"backoff, 1 s + 100 ms · 2ⁿ.",
		settings: []setting{{name: "1 s", task: ack}, {name: "with backoff", task: ackBackoff}},
		clients:  []client{ours, ours1ms, plainNone, java, java100, pythonAck}, columns: lateness,
	}, {
		name: "W3", title: "Many messages waiting",
		text: "The table has the live heap for each waiting message, the heap for each message id that the " +
			"application or the client holds (redelivery's first figure includes the ids), and the CPU while nothing " +
			"is due. spread: the messages become due over ten minutes. at once: all become due at one moment, and " +
			"are received and acknowledged.",
		settings: []setting{{name: "spread", task: spread, full: true}, {name: "at once", task: atOnce}},
		clients:  []client{ours, plain, java},
		columns: []column{{"waiting", "messages", "%.0f"}, {"heap per message", "bytes", "%.0f B"},
			{"its id object", "idBytes", "%.0f B"},
			{"nack", "nackNs", "%.0f ns"}, {"idle CPU", "idlePercent", "%.2f %%"},
			{"handed over", "handOverMs", "%.0f ms"},
			{"CPU per message handed over", "handOverCPUus", "%.1f µs"}, {"early", "early", "%.0f"}},
	}, {
		name: "W3b", title: "Very many keys in a tracker",
		text: "The trackers of this library by themselves. track + untrack: one key comes, another goes. handed " +
			"over: the call of Due that returns all keys. blocked: how long this call holds up all other calls.",
		settings: []setting{{name: "200,000", task: tracker(200_000)}, {name: "1,000,000", task: tracker(1_000_000)}},
		clients:  []client{nackTracker, ackTracker},
		columns: []column{{"per key", "bytes", "%.0f B"}, {"track, growing", "fillNs", "%.0f ns"},
			{"track + untrack", "pairNs", "%.0f ns"},
			{"allocations", "allocs", "%.2f"}, {"untrack", "untrackNs", "%.0f ns"},
			{"idle CPU", "idlePercent", "%.2f %%"},
			{"handed over", "handOverMs", "%.0f ms"}, {"blocked", "blockedMs", "%.2f ms"}},
	}, {
		name: "W4", title: "Consuming and acknowledging", rounds: size(9, 1),
		text: "Small messages in batches of 1000, published before the consumer subscribes. CPU of the consumer's " +
			"process alone.",
		settings: []setting{{name: "", task: consume}},
		clients:  []client{ours, tracked, plain, java},
		columns: []column{{"messages", "messages", "%.0f"}, {"CPU per message", "cpuUs", "%.2f µs"},
			{"over pulsar-client-go", "cpuUsOverPlain", "%+.2f µs"}, {"messages per second", "perSecond", "%.0f"}},
	}, {
		name: "W5", title: "Idle consumers",
		text: "CPU of one consumer in percent of one core: with nothing waiting, and with 100 messages waiting for " +
			"an hour.",
		settings: []setting{{name: "1 partition", task: idle, partitions: 1, full: true},
			{name: "20 partitions", task: idle, partitions: 20, full: true},
			{name: "100 partitions", task: idle, partitions: 100}},
		clients: []client{ours, plain, java},
		columns: []column{{"nothing waiting", "idlePercent", "%.2f %%"}, {"100 waiting", "waitingPercent", "%.2f %%"},
			{"heap", "heapMB", "%.1f MB"}},
	}, {
		name: "W5b", title: "Idle consumers of other subscription types",
		text:     "As W5.",
		settings: append(byType(idle, 1), byType(idle, 100)...),
		clients:  []client{ours, plain},
		columns:  []column{{"nothing waiting", "idlePercent", "%.2f %%"}, {"heap", "heapMB", "%.1f MB"}},
	}}
}

// hourTask returns a task whose messages wait for 60 to 70 minutes. Clients derive their ticks from the short delays of
// the same task.
func hourTask(kind string, messages, seconds int) worker.Task {
	return worker.Task{Kind: kind, Messages: messages, Seconds: seconds,
		Delays: worker.Delays{MinMs: 100, MaxMs: 3200, FirstMs: 3_600_000, SpreadMs: 600_000}}
}
