package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// maxDeliveries is how often a message is handled before it becomes a dead letter.
const maxDeliveries = 4

var (
	doomed = work{App: failing, Messages: 2000, Min: time.Second, Log: true, Durable: true,
		MaxDeliveries: maxDeliveries, Processes: 1}
	poisoning = work{App: poisoned, Messages: 2000, Min: time.Second, Log: true, MaxDeliveries: maxDeliveries,
		Processes: 1}
	serving = work{App: service, Messages: 5000, Min: 200 * time.Millisecond, MaxDeliveries: maxDeliveries,
		Processes: 3}
)

var killFaults = []fault{
	{set: kill, name: "killed again and again",
		what:  "SIGKILL of the process every 2.5 s, until all messages are dead letters",
		types: allTypes, work: doomed, short: true, make: killUntilOver},
	{set: kill, name: "poison", what: "one message ends each process that handles it; the next one starts",
		types: onlyShared, work: with(poisoning, 3), also: [][]string{{"alone"}}, make: poison},
	{set: kill, name: "poison in one process", what: "as poison, with one process, on Exclusive",
		types: []pulsar.SubscriptionType{pulsar.Exclusive}, work: poisoning, make: poison},
	{set: kill, name: "restarted",
		what: "SIGINT of each of three processes in turn when half of the messages are settled; another takes its " +
			"place",
		types: onlyShared, work: serving, make: restart,
		also: [][]string{{"no index acks"}, {"one process"}, {"one process", "no index acks"}}},
	{set: kill, name: "brokers move",
		what:  "all topics move between two brokers 15 times; at the third time the broker that has them is killed",
		types: allTypes, work: with(doomed, 2), needs: clustered, make: moveTopics},
}

func with(w work, processes int) work {
	w.Processes = processes
	return w
}

// killUntilOver kills the process repeatedly until the broker has no message left, for at most a minute and a half.
func killUntilOver(ctx context.Context, t *trial) error {
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		sleep(ctx, 2500*time.Millisecond)
		if t.isOver(ctx) {
			return nil
		}
		if err := replace(ctx, t); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// poison publishes a message that ends each process that handles it. It starts further processes until the message is a
// dead letter.
func poison(ctx context.Context, t *trial) error {
	if t.work.Alone {
		if err := t.drain(ctx); err != nil {
			return err
		}
	}
	if err := t.publish(ctx, t.work.Messages, t.work.Messages+1); err != nil {
		return err
	}
	crashes := 0
	for end := time.Now().Add(90 * time.Second); !t.isOver(ctx); sleep(ctx, 50*time.Millisecond) {
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("after %d crashes the message that ends processes is still no dead letter", crashes)
		}
		for i, p := range t.others {
			select {
			case <-p.over:
			default:
				continue
			}
			if code := p.ProcessState.ExitCode(); code != crashed {
				return fmt.Errorf("%s ended with status %d, want %d", p.name, code, crashed)
			}
			crashes++
			t.others = append(t.others[:i:i], t.others[i+1:]...)
			if err := t.startProcess(); err != nil {
				return err
			}
			break
		}
	}
	t.notes = append(t.notes, fmt.Sprintf("%d crashes", crashes))
	return nil
}

// restart replaces the processes one after the other when half of the messages are settled. Each time, it waits until
// the new process has subscribed.
func restart(ctx context.Context, t *trial) error {
	begin := 0
	err := t.untilBroker(ctx, func(s state) bool {
		begin = max(begin, s.backlog)
		return s.backlog <= begin/2
	})
	for range t.work.Processes {
		if err == nil {
			err = t.end(os.Interrupt)
		}
		if err == nil {
			err = t.startProcess()
		}
		if err == nil {
			err = t.untilBroker(ctx, func(s state) bool { return s.consumers == t.work.Processes })
		}
	}
	return err
}

// untilBroker waits until the topic has reached a state.
func (t *trial) untilBroker(ctx context.Context, reached func(state) bool) error {
	for {
		if s, ok := t.broker.state(ctx, t.work.topics()[0]); ok && reached(s) {
			return nil
		}
		if sleep(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
