package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// turning is the work of Workers that join and leave while messages are published.
var turning = work{App: byKey, Ordered: true, Min: 200 * time.Millisecond, Processes: 2}

// sharing is the same work for Shared, where keys have no order.
var sharing = work{App: byKey, Min: 200 * time.Millisecond, Processes: 2}

var ownerFaults = []fault{
	{set: owners, name: "owners change",
		what:  "200 messages a second of 50 keys; Workers join and leave, and topics are unloaded, at random",
		types: []pulsar.SubscriptionType{pulsar.Failover, pulsar.KeyShared}, work: turning, short: true,
		make: changeOwners,
		also: [][]string{{"any order"}, {"partitions"}, {"partitions", "any order"}}},
	{set: owners, name: "sharers change",
		what:  "the same on Shared, where keys have no owner",
		types: onlyShared, work: sharing, short: true, make: changeOwners, also: [][]string{{"partitions"}}},
}

func changeOwners(ctx context.Context, t *trial) error {
	begin := time.Now()
	published := make(chan error, 1)
	go func() {
		for time.Now().Before(begin.Add(t.during)) && ctx.Err() == nil {
			n := t.work.Messages
			t.work.Messages++
			if err := t.publisher.send(ctx, n); err != nil {
				published <- err
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		published <- t.publisher.flush(ctx)
	}()
	var err error
	for err == nil && time.Now().Before(begin.Add(t.during)) {
		sleep(ctx, time.Duration(500+t.random.IntN(4500))*time.Millisecond)
		switch n := t.random.IntN(4); {
		case n == 0 && len(t.others) < 4, len(t.others) == 1:
			err = t.startProcess()
		case n == 1:
			err = t.end(os.Interrupt)
		default:
			topics := t.work.topics()
			if which := t.random.IntN(len(topics) + 1); which < len(topics) {
				topics = topics[which : which+1]
			}
			err = t.each(ctx, topics, "PUT", "/unload")
		}
	}
	return errors.Join(err, <-published)
}
