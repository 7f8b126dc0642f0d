// Compare runs the same code on plain pulsar-client-go and on this library. It shows what happens to a batch in which
// one message fails. The two runs differ in the line that subscribes.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/examples/internal/demo"
)

const duration, outage = 9 * time.Second, 1500 * time.Millisecond

type scenario struct {
	name   string
	typ    pulsar.SubscriptionType
	orders int // published together, in batches of up to 1,000
	fails  func(id int, after time.Duration) bool
	dead   int // how many orders always fail, and so become dead letters
}

func onlyFourth(id int, _ time.Duration) bool { return id == 3 }

func manyDuringOutage(id int, after time.Duration) bool {
	return id%100 == 3 || id%10 == 7 && after < outage
}

var scenarios = []scenario{
	{"Shared, one batch of 6 orders, 1 always fails", pulsar.Shared, 6, onlyFourth, 1},
	{"Exclusive, one batch of 6 orders, 1 always fails", pulsar.Exclusive, 6, onlyFourth, 1},
	{"Shared, 5,000 orders, 500 fail for 1.5s, 50 always", pulsar.Shared, 5000, manyDuringOutage, 50},
}

// result counts all calls of the handler, the calls for acknowledged orders, all dead letters, and the dead letters of
// acknowledged orders.
type result struct{ calls, again, dead, deadAcked int }

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	client, stop, err := demo.Connect()
	if err != nil {
		return err
	}
	defer stop()
	quiet := redelivery.WithLogger(slog.New(slog.DiscardHandler))
	subscribes := []func(pulsar.ConsumerOptions) (pulsar.Consumer, error){
		func(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) { return client.Subscribe(opts) },
		func(opts pulsar.ConsumerOptions) (pulsar.Consumer, error) {
			return redelivery.Subscribe(client, opts, quiet)
		},
	}
	fmt.Printf("A failed order is nacked and comes back after 1s; DLQPolicy.MaxDeliveries is 3. Each run takes %v; "+
		"they run side by side.\n\n", duration)
	results, errs, all := make([][2]result, len(scenarios)), make([]error, 2*len(scenarios)), sync.WaitGroup{}
	for i, s := range scenarios {
		for j, subscribe := range subscribes {
			all.Go(func() { results[i][j], errs[2*i+j] = s.play(client, subscribe) })
		}
	}
	all.Wait()
	fmt.Printf("%-50s  pulsar-client-go  redelivery\n", "")
	for i, s := range scenarios {
		plain, here := results[i][0], results[i][1]
		fmt.Println(s.name)
		fmt.Printf("%50s  %16d  %10d\n", "calls of the handler", plain.calls, here.calls)
		fmt.Printf("%50s  %16d  %10d\n", "of these for acknowledged orders", plain.again, here.again)
		fmt.Printf("%50s  %16d  %10d\n", "dead letters", plain.dead, here.dead)
		fmt.Printf("%50s  %16d  %10d\n", "of these acknowledged orders", plain.deadAcked, here.deadAcked)
		if here.again+here.deadAcked > 0 || here.dead != s.dead {
			errs = append(errs, fmt.Errorf("%s: want %d dead letters, none of an acknowledged order", s.name, s.dead))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Println("\nOK: redelivery made one dead letter of each order that always fails, and no acknowledged order " +
		"came again.")
	return nil
}

// play publishes orders, handles them until the time is over, and counts the dead letters.
func (s scenario) play(client pulsar.Client, subscribe func(pulsar.ConsumerOptions) (pulsar.Consumer, error)) (r result,
	err error) {
	topic := demo.Topic("compare")
	dlq := pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: topic + "-billing-DLQ",
		InitialSubscriptionName: "inspect"}
	consumer, err := subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "billing", Type: s.typ,
		NackRedeliveryDelay: time.Second, DLQ: &dlq})
	if err != nil {
		return r, err
	}
	defer consumer.Close()
	if err := s.publish(client, topic); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), duration)
	defer cancel()
	acked, began := map[string]bool{}, time.Now()
	for msg, err := consumer.Receive(ctx); ctx.Err() == nil; msg, err = consumer.Receive(ctx) {
		if err != nil {
			return r, err
		}
		r.calls++
		order, id := string(msg.Payload()), 0
		if acked[order] {
			r.again++
		}
		if _, err := fmt.Sscan(order, &id); err != nil {
			return r, err
		}
		if s.fails(id, time.Since(began)) {
			consumer.Nack(msg)
			continue
		}
		if err := consumer.Ack(msg); err != nil {
			return r, err
		}
		acked[order] = true
	}
	letters, err := client.CreateReader(pulsar.ReaderOptions{Topic: dlq.DeadLetterTopic,
		StartMessageID: pulsar.EarliestMessageID()})
	if err != nil {
		return r, err
	}
	defer letters.Close()
	for ; letters.HasNext(); r.dead++ {
		letter, err := letters.Next(context.Background())
		if err != nil {
			return r, err
		}
		if acked[string(letter.Payload())] {
			r.deadAcked++
		}
	}
	return r, nil
}

func (s scenario) publish(client pulsar.Client, topic string) error {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, MaxPendingMessages: s.orders,
		BatchingMaxPublishDelay: time.Minute}) // so that batches are full even on a slow computer
	if err != nil {
		return err
	}
	defer producer.Close()
	published := make(chan error, s.orders)
	for id := range s.orders {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: fmt.Append(nil, id)},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { published <- err })
	}
	err = producer.FlushWithCtx(context.Background())
	for range s.orders {
		err = errors.Join(err, <-published)
	}
	return err
}
