// Command kill runs a consumer whose every message fails, kills its process again and again, and counts what becomes of the messages: with
// WithAttemptLog and, beside it, with plain pulsar-client-go.
//
//	PULSAR_URL=pulsar://localhost:6650 go run ./test/kill
//	PULSAR_URL=pulsar://localhost:6650 go run ./test/kill -poison
//	PULSAR_URL=pulsar://localhost:6650 go run ./test/kill -restart -messages 5000
//	go run ./test/kill -cluster
//
// The exit status is 1 if, with the log, a message is not a dead letter in the end, is early although its last failure was counted, or is
// handled once more than it may be without an uncounted delivery that explains it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

const (
	subscription  = "kill"
	maxDeliveries = 4
	delay         = time.Second
)

var (
	messages   = flag.Int("messages", 2000, "how many there are")
	every      = flag.Duration("every", 2500*time.Millisecond, "how often the process is killed")
	limit      = flag.Duration("limit", 90*time.Second, "how long a run may take")
	types      = flag.String("types", "Exclusive,Failover,Shared,Key_Shared", "of the subscription")
	plain      = flag.Bool("plain", true, "run plain pulsar-client-go too")
	handles    = flag.Duration("handles", time.Millisecond, "how long a handler takes")
	isPoison   = flag.Bool("poison", false, "one message ends the process that handles it; the others succeed")
	inCluster  = flag.Bool("cluster", false, "topics move between two brokers, one of which is killed; the processes are not")
	isRestart  = flag.Bool("restart", false, "a service whose messages come in batches is restarted in order; see -index-acks")
	verbose    = flag.Bool("v", false, "print the log of processes that are restarted")
	histories  = flag.String("history", "", "keep histories in this folder; redelivery check reads them with -durable -max-deliveries 4")
	crashLimit = flag.Int("crash-limit", 3, "of the poison")

	// Of the process that is killed:
	child     = flag.String("child", "", "")
	kind      = flag.Int("type", 0, "")
	recordsTo = flag.String("to", "", "")
	indexAcks = flag.Bool("index-acks", true, "")
)

var bg = context.Background()

var kinds = map[string]pulsar.SubscriptionType{"Exclusive": pulsar.Exclusive, "Failover": pulsar.Failover, "Shared": pulsar.Shared,
	"Key_Shared": pulsar.KeyShared}

func main() {
	flag.Parse()
	if *inCluster {
		breakBrokers()
		return
	}
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: os.Getenv("PULSAR_URL"), Logger: quiet()})
	check(err)
	defer client.Close()
	switch {
	case *child != "" && *isRestart:
		serve(client)
	case *child != "":
		consume(client)
	case *isPoison:
		poisonAll(client)
	case *isRestart:
		restartAll(client)
	default:
		killAll(client)
	}
}

func quiet() plog.Logger {
	return plog.NewLoggerWithSlog(slog.New(slog.NewTextHandler(io.Discard, nil)))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "kill:", err)
		os.Exit(1)
	}
}

// killAll prints a table of all runs.
func killAll(client pulsar.Client) {
	fmt.Println(columns)
	good := true
	for name := range strings.SplitSeq(*types, ",") {
		for _, batched := range []bool{false, true} {
			for _, how := range []string{"log", "plain"} {
				if how == "plain" && !*plain {
					continue
				}
				r := run(client, kinds[name], batched, how == "plain")
				fmt.Println(r.row(name, batched, how))
				good = good && (r.isGood() || how == "plain")
			}
		}
	}
	judge(good)
}

// judge ends the program as one that failed, unless all runs with the log were good.
func judge(good bool) {
	if !good {
		check(errors.New("with the log all messages are dead letters, none is early whose failure was counted, and what is handled once more was not counted"))
	}
}

// run publishes the messages, and kills what consumes them until all are dead letters.
func run(client pulsar.Client, kind pulsar.SubscriptionType, batched, plain bool) (r result) {
	topic, dir, to, dead := prepare(client, kind, batched)
	if *histories == "" {
		defer os.RemoveAll(dir)
	}
	began := time.Now()
	end := began.Add(*limit)
	for r.dead < *messages && time.Now().Before(end) {
		p := start(topic, kind, dir, plain)
		deadline := time.Now().Add(*every)
		for time.Now().Before(deadline) && r.dead < *messages {
			time.Sleep(50 * time.Millisecond)
			r.dead = dead()
		}
		to.Write(history.Event{Kind: history.Killed, Consumer: fmt.Sprint(p.Process.Pid)})
		check(p.Process.Kill())
		r.faults = append(r.faults, time.Now())
		_ = p.Wait()
	}
	r.ends(began, dir)
	return r
}

// prepare publishes the messages to a topic that has a subscription. It returns the folder of the history, its file for
// what happens to processes, and a function that counts dead letters.
func prepare(client pulsar.Client, kind pulsar.SubscriptionType, batched bool) (topic, dir string, to *history.Writer, dead func() int) {
	topic = fmt.Sprintf("kill-%d", time.Now().UnixNano())
	c := subscribed(client, pulsar.ConsumerOptions{Topic: topic, SubscriptionName: subscription, Type: kind,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	c.Close()
	dead = deadLetters(client, topic)
	publish(client, topic, 0, *messages, batched)
	dir = newFolder()
	to, err := history.Create(dir, "faults")
	check(err)
	return topic, dir, to, dead
}

// subscribed subscribes. A broker of a cluster may just be giving the topic to another.
func subscribed(client pulsar.Client, opts pulsar.ConsumerOptions) pulsar.Consumer {
	for range 20 {
		if c, err := client.Subscribe(opts); err == nil {
			return c
		}
		time.Sleep(500 * time.Millisecond)
	}
	c, err := client.Subscribe(opts)
	check(err)
	return c
}

// ends notes how a run ended.
func (r *result) ends(began time.Time, dir string) {
	if r.took == "" {
		r.took = time.Since(began).Round(time.Second).String()
	}
	if r.dead < *messages {
		r.took = "not after " + r.took
	}
	r.read(dir)
}

// start starts this program as what consumes.
func start(topic string, kind pulsar.SubscriptionType, file string, plain bool, more ...string) *exec.Cmd {
	self, err := os.Executable()
	check(err)
	args := []string{"-child", topic, "-type", fmt.Sprint(int(kind)), "-to", file, "-handles", handles.String(), fmt.Sprintf("-plain=%t", plain)}
	p := exec.Command(self, append(args, more...)...)
	p.Stderr = os.Stderr
	check(p.Start())
	return p
}

// deadLetters subscribes to the dead letters of a topic, and returns a function that says how many there are.
func deadLetters(client pulsar.Client, topic string) func() int {
	c := subscribed(client, pulsar.ConsumerOptions{Topic: topic + "-" + subscription + "-DLQ", SubscriptionName: "count",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	seen := map[string]bool{}
	return func() int {
		for {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			msg, err := c.Receive(ctx)
			cancel()
			if err != nil {
				return len(seen)
			}
			seen[string(msg.Payload())] = true
			_ = c.Ack(msg)
		}
	}
}

func publish(client pulsar.Client, topic string, from, to int, batched bool) {
	p, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: !batched, BatchingMaxMessages: 20,
		BatcherBuilderType: pulsar.KeyBasedBatchBuilder})
	check(err)
	defer p.Close()
	for i := from; i < to; i++ {
		p.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "m%d", i), Key: fmt.Sprint("k", i%20)},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
	}
	check(p.FlushWithCtx(bg))
}
