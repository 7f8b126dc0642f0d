package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// consume is the process that is killed.
func consume(client pulsar.Client) {
	opts := pulsar.ConsumerOptions{Topic: *child, SubscriptionName: subscription, Type: pulsar.SubscriptionType(*kind),
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest}
	to, err := os.OpenFile(*recordsTo, os.O_APPEND|os.O_WRONLY, 0)
	check(err)
	note := func(what string, msg pulsar.Message) {
		fmt.Fprintf(to, "%s %s %d %d\n", what, msg.Payload(), time.Now().UnixMicro(), msg.RedeliveryCount())
	}
	if *isPoison {
		handlePoison(client, opts, note)
		return
	}
	var c pulsar.Consumer
	for c == nil { // the broker may not have noticed yet that the last one is gone
		if c, err = subscribe(client, opts); err != nil {
			fmt.Fprintln(os.Stderr, "subscribing:", err)
			c = nil
			time.Sleep(20 * time.Millisecond)
		}
	}
	for {
		msg, err := c.Receive(context.Background())
		check(err)
		note("h", msg)
		time.Sleep(*handles)
		note("n", msg)
		c.Nack(msg)
	}
}

func subscribe(client pulsar.Client, opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	if *plain {
		opts.NackRedeliveryDelay = delay
		opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: maxDeliveries - 1, DeadLetterTopic: opts.Topic + "-" + subscription + "-DLQ"} // which are redeliveries there
		return client.Subscribe(opts)
	}
	return redelivery.Subscribe(client, opts, options()...)
}

func options() []redelivery.Option {
	return []redelivery.Option{redelivery.WithNackRedeliveryDelay(delay), redelivery.WithAttemptLog(redelivery.AttemptLog{}),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: maxDeliveries}),
		redelivery.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))}
}

// handlePoison handles messages, of which one ends the process.
func handlePoison(client pulsar.Client, opts pulsar.ConsumerOptions, note func(string, pulsar.Message)) {
	handle := func(_ context.Context, msg pulsar.Message) error {
		note("h", msg)
		if string(msg.Payload()) == poison {
			os.Exit(3)
		}
		time.Sleep(*handles)
		note("ok", msg)
		return nil
	}
	for {
		c, err := subscribe(client, opts)
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		rc, ok := c.(*redelivery.Consumer)
		if !ok {
			for {
				msg, err := c.Receive(context.Background())
				check(err)
				if err := handle(context.Background(), msg); err == nil {
					check(c.Ack(msg))
				}
			}
		}
		w, err := worker.New(rc, handle, worker.WithConcurrency(4), worker.WithCrashLimit(*crashLimit), worker.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
		check(err)
		check(w.Run(context.Background()))
	}
}

const poison = "poison"

// read counts what the processes noted.
func (r *result) read(file string, killed []time.Time) {
	f, err := os.Open(file)
	check(err)
	defer f.Close()
	handled, counted, nacked := map[string]int{}, map[string]int{}, map[string]time.Time{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var what, name string
		var micros int64
		var count int
		if n, err := fmt.Sscan(lines.Text(), &what, &name, &micros, &count); n < 4 || err != nil && !errors.Is(err, io.EOF) || strings.Contains(name, " ") {
			continue // the process was killed while it wrote
		}
		at := time.UnixMicro(micros)
		if what == "n" {
			nacked[name], counted[name] = at, count+1
			continue
		}
		handled[name]++
		r.handled++
		last, ok := nacked[name]
		if ok && at.Before(last.Add(delay)) {
			r.early++
		}
		if ok && count < counted[name] {
			r.forgotten++
			r.lost = max(r.lost, lost(last, killed))
		}
		delete(nacked, name)
	}
	for _, n := range handled {
		if r.most = max(r.most, n); n > maxDeliveries {
			r.excess++
		}
	}
}

// lost returns how long before the end of its process something happened.
func lost(at time.Time, killed []time.Time) time.Duration {
	for _, k := range killed {
		if d := k.Sub(at); d > -50*time.Millisecond {
			return max(0, d)
		}
	}
	return 0
}
