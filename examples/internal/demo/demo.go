// Package demo has the parts that the examples share: a client of the broker, and the table that they print.
package demo

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

var url = flag.String("url", os.Getenv("PULSAR_URL"),
	"Pulsar service `URL`, or PULSAR_URL; empty for a broker in this process")

// URL returns the address of the broker that Connect found or started.
func URL() string { return *url }

// Connect parses the flags, and returns a client of the broker that -url or PULSAR_URL names. If neither is set,
// Connect starts a broker in this process. Call close at the end.
func Connect() (client pulsar.Client, close func(), err error) {
	flag.Parse()
	stop := func() {}
	if *url == "" {
		server, err := pulsartest.Start()
		if err != nil {
			return nil, nil, err
		}
		*url, stop = server.URL(), server.Close
		fmt.Print("The broker is a test broker in this process; -url or PULSAR_URL names a real one.\n\n")
	}
	quiet := plog.NewLoggerWithSlog(slog.New(slog.DiscardHandler))
	client, err = pulsar.NewClient(pulsar.ClientOptions{URL: *url, Logger: quiet, OperationTimeout: 10 * time.Second})
	if err != nil {
		stop()
		return nil, nil, err
	}
	return client, func() { client.Close(); stop() }, nil
}

// Topic returns the name of a new topic.
func Topic(example string) string { return fmt.Sprintf("%s-%08x", example, rand.Uint32()) }

// Table prints a row for each message as it comes.
type Table struct {
	late  []time.Duration
	began bool
}

// Row prints a delivery that came at the time now. The delay of this delivery began at from and ended at due. Both are
// zero for a first delivery.
func (t *Table) Row(name string, redelivery uint32, from, due, now time.Time) {
	if !t.began {
		t.began = true
		fmt.Println("message    redelivery    planned     actual      late  ▇ = 1 ms")
	}
	if due.IsZero() {
		fmt.Printf("%-10s %10d          -          -         -\n", name, redelivery)
		return
	}
	late := now.Sub(due)
	t.late = append(t.late, late)
	fmt.Printf("%-10s %10d %8.0fms %8.1fms %7.1fms  %s\n", name, redelivery, ms(due.Sub(from)), ms(now.Sub(from)),
		ms(late), bar(late))
}

// Summary prints how late the redeliveries were, and a verdict. It returns an error if a redelivery was early.
func (t *Table) Summary() error {
	if len(t.late) == 0 {
		return fmt.Errorf("no message was redelivered")
	}
	slices.Sort(t.late)
	early, _ := slices.BinarySearch(t.late, 0)
	at := func(q float64) float64 { return ms(t.late[int(q*float64(len(t.late)-1))]) }
	fmt.Printf("\n%d redeliveries, late by p50 %.1fms, p99 %.1fms, max %.1fms; %d early, 0 missing\n",
		len(t.late), at(0.5), at(0.99), at(1), early)
	if early > 0 {
		return fmt.Errorf("%d redeliveries were early", early)
	}
	fmt.Println("OK: every failed message came back, as often as it failed and never before its time.")
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// bar returns one block for each millisecond of lateness.
func bar(d time.Duration) string {
	if d < 0 {
		return "EARLY"
	}
	return strings.Repeat("▇", min(24, int(d/time.Millisecond)))
}
