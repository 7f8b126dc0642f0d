// Quickstart publishes messages of several kinds, fails some of them a few times, and shows when each came back: planned
// by the policy and in fact.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
)

var policy = backoff.Exponential{Min: 200 * time.Millisecond, Max: 2 * time.Second, Multiplier: 2}

// fails is how often the handler fails on each message; the first four go out in one batch.
var fails = []struct {
	name  string
	times uint32
}{{"batch 1", 0}, {"batch 2", 1}, {"batch 3", 3}, {"batch 4", 0}, {"single", 2}, {"keyed", 4}, {"good", 0}, {"stubborn", 5}}

func main() {
	url := flag.String("url", cmp.Or(os.Getenv("PULSAR_URL"), "pulsar://localhost:6650"), "Pulsar service `URL`, or PULSAR_URL")
	wrap := flag.Bool("wrap", false, "use Prepare, client.Subscribe and Wrap in place of Subscribe")
	flag.Parse()
	if err := run(*url, *wrap); err != nil {
		log.Fatal(err)
	}
}

func run(url string, wrap bool) error {
	quiet := plog.NewLoggerWithSlog(slog.New(slog.NewTextHandler(io.Discard, nil)))
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: quiet, OperationTimeout: 10 * time.Second})
	if err != nil {
		return err
	}
	defer client.Close()
	topic := fmt.Sprintf("quickstart-%08x", rand.Uint32())
	consumer, err := subscribe(client, topic, wrap)
	if err != nil {
		return err
	}
	defer consumer.Close()
	if err := publish(client, topic); err != nil {
		return err
	}

	due := map[string]time.Time{}    // when the policy wants a message back
	failed := map[string]time.Time{} // when it was nacked
	var late []time.Duration
	fmt.Println("message    redelivery   planned    actual      late")
	for open := len(fails); open > 0; {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		msg, err := consumer.Receive(ctx)
		cancel()
		if err != nil {
			return fmt.Errorf("%d messages are missing: %w", open, err)
		}
		name, now, n := string(msg.Payload()), time.Now(), consumer.RedeliveryCount(msg)
		if at, ok := due[name]; ok {
			late = append(late, now.Sub(at))
			fmt.Printf("%-10s %10d %7.0fms %7.1fms %7.1fms  %s\n", name, n, ms(at.Sub(failed[name])),
				ms(now.Sub(failed[name])), ms(now.Sub(at)), bar(now.Sub(at)))
		} else {
			fmt.Printf("%-10s %10d         -         -         -\n", name, n)
		}
		if n < times(name) { // the handler fails
			failed[name], due[name] = now, now.Add(policy.Next(n))
			consumer.Nack(msg)
			continue
		}
		if err := consumer.Ack(msg); err != nil {
			return err
		}
		open--
	}
	return summary(late)
}

func subscribe(client pulsar.Client, topic string, wrap bool) (*redelivery.Consumer, error) {
	opts := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "quickstart", Type: pulsar.Shared}
	option := redelivery.WithNackRedeliveryBackoff(policy)
	if !wrap {
		return redelivery.Subscribe(client, opts, option)
	}
	prepared, err := redelivery.Prepare(opts, option)
	if err != nil {
		return nil, err
	}
	consumer, err := client.Subscribe(prepared)
	if err != nil {
		return nil, err
	}
	return redelivery.Wrap(consumer)
}

func publish(client pulsar.Client, topic string) error {
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, BatchingMaxMessages: 4,
		BatchingMaxPublishDelay: time.Minute})
	if err != nil {
		return err
	}
	defer producer.Close()
	for i, m := range fails {
		msg := &pulsar.ProducerMessage{Payload: []byte(m.name)}
		if m.name == "keyed" {
			msg.Key = m.name
		}
		producer.SendAsync(context.Background(), msg, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				log.Printf("publishing: %v", err)
			}
		})
		if i >= 3 { // the first four wait for each other
			if err := producer.FlushWithCtx(context.Background()); err != nil {
				return err
			}
		}
	}
	return nil
}

func times(name string) uint32 {
	return fails[slices.IndexFunc(fails, func(f struct {
		name  string
		times uint32
	}) bool {
		return f.name == name
	})].times
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// bar shows lateness, a block for each millisecond.
func bar(d time.Duration) string {
	if d < 0 {
		return "EARLY"
	}
	return strings.Repeat("▇", min(30, int(d/time.Millisecond)))
}

func summary(late []time.Duration) error {
	slices.Sort(late)
	early, _ := slices.BinarySearch(late, 0)
	at := func(q float64) float64 { return ms(late[int(q*float64(len(late)-1))]) }
	fmt.Printf("\n%d redeliveries, late by p50 %.1fms, p99 %.1fms, max %.1fms; %d early, 0 missing\n",
		len(late), at(0.5), at(0.99), at(1), early)
	if early > 0 {
		return fmt.Errorf("%d redeliveries were early", early)
	}
	return nil
}
