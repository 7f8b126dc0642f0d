package main

import (
	"fmt"
	"io"
	"strings"
)

// exceptions has the tests that fail wrapped because this library differs on purpose; docs/migration.md explains each
// difference.
var exceptions = map[string]string{
	"TestZeroQueueConsumer_Chan": "`Chan` of a zero-queue consumer panics upstream, and works with this library",
	"TestPriorityConsumer":       "counts on the ten messages that upstream prefetches beyond ReceiverQueueSize",
	"TestConsumerWithInterceptors": "expects OnNegativeAcksSend for a nack; this library calls it only when it " +
		"requests a message, and not for a message in memory",
}

// notInProcess has the tests that need a feature which the broker in process lacks, and those for which it is too fast.
var notInProcess = map[string]string{
	"TestProducerReconnectWhenBacklogQuotaExceed": "backlog quotas",

	// These tests subscribe to the dead letters after the last nack, and get only later messages. The broker in process
	// is so fast that the letter is published before they subscribe.
	"TestWithDeadLetterTopicDeadLetterTopicProducerName": "its reader of dead letters may come after the dead " +
		"letter",
	"TestWithoutDeadLetterTopicDeadLetterTopicProducerName": "its reader of dead letters may come after the dead " +
		"letter",
}

// verdict is what the results of a test on a broker mean.
type verdict struct {
	plain, wrapped, broken bool
	note                   string
}

// judge compares plain and wrapped results. A test that passes wrapped in most of its runs counts as passed, with a
// note.
func judge(t test, b broker, plain, wrapped result) verdict {
	switch {
	case t.leftOut != "":
		return verdict{}
	case b.url == "" && notInProcess[t.name] != "":
		return verdict{note: "not on " + b.name + ": " + notInProcess[t.name]}
	case plain.runs+wrapped.runs == 0:
		return verdict{note: "exception: " + exceptions[t.name]}
	}
	passes := plain.ok() || t.keyShared && plain.passed > 0
	if plain.runs == 0 { // with -quick, a test that passed wrapped is not run plain
		passes = wrapped.passed > 0
	}
	switch {
	case !passes:
		return verdict{note: b.name + ", plain: " + plain.failure}
	case wrapped.ok(), t.keyShared && wrapped.passed > 0:
		return verdict{plain: true, wrapped: true}
	case exceptions[t.name] != "":
		return verdict{plain: true, note: "exception: " + exceptions[t.name]}
	case 2*wrapped.passed > wrapped.runs:
		return verdict{plain: true, wrapped: true, note: b.name + ", wrapped, sometimes: " + wrapped.failure}
	}
	return verdict{plain: true, broken: true, note: b.name + ", wrapped: " + wrapped.failure}
}

// report writes the table, and returns the tests that pass plain but not wrapped and are not exceptions.
func report(w io.Writer, title string, tests []test, brokers []broker, results map[key]result,
	quick bool) (broken []string) {
	fmt.Fprintf(w, "%s\n\n| test |", title)
	for _, b := range brokers {
		fmt.Fprintf(w, " plain, %s | wrapped, %s |", b.name, b.name)
	}
	fmt.Fprintf(w, " why not |\n|---|%s---|\n", strings.Repeat("---|", 2*len(brokers)))
	plain, wrapped, left := make([]int, len(brokers)), make([]int, len(brokers)), 0
	for _, t := range tests {
		fmt.Fprintf(w, "| %s |", t.name)
		var notes []string
		if t.leftOut != "" {
			left++
			notes = append(notes, "left out: "+t.leftOut)
		}
		for i, b := range brokers {
			p, q := results[key{t.name, b.name, false}], results[key{t.name, b.name, true}]
			fmt.Fprintf(w, " %s | %s |", p, q)
			v := judge(t, b, p, q)
			if v.plain {
				plain[i]++
			}
			if v.wrapped {
				wrapped[i]++
			}
			if v.broken {
				broken = append(broken, t.name)
			}
			if v.note != "" {
				notes = append(notes, v.note)
			}
		}
		fmt.Fprintf(w, " %s |\n", strings.Join(notes, "; "))
	}
	fmt.Fprintf(w, "\n%d tests, %d of them left out.\n", len(tests), left)
	for i, b := range brokers {
		if quick {
			fmt.Fprintf(w, "On %s %d pass wrapped; only the others were run plain.\n", b.name, wrapped[i])
		} else {
			fmt.Fprintf(w, "On %s %d pass plain, and %d of these wrapped.\n", b.name, plain[i], wrapped[i])
		}
	}
	return broken
}
