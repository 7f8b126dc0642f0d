package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// A Worker that drains finishes the producers' batches that it has begun, so that no handled message comes again. With
// WithFinishBatches(false) the handled messages of unfinished batches come again. If the drain timeout is too short to
// finish a batch, the Worker does not begin to finish it.
func TestDrainFinishesBatches(t *testing.T) {
	t.Parallel()
	const each, takes = 200, time.Millisecond
	options := map[string][]worker.Option{
		"a Handler":             nil,
		"a Handler, by key":     {worker.WithKeyOrder()},
		"a BatchHandler":        nil,
		"not at all":            {worker.WithFinishBatches(false)},
		"if there is no time":   {worker.WithDrainTimeout(20 * time.Millisecond)},
		"with batch-index acks": nil,
	}
	for name, options := range options {
		for _, kind := range []pulsar.SubscriptionType{pulsar.Shared, pulsar.Exclusive} {
			t.Run(fmt.Sprint(name, " ", kind), func(t *testing.T) {
				s := newSite(t)
				opts := pulsar.ConsumerOptions{Type: kind, EnableBatchIndexAcknowledgment: strings.Contains(name, "index")}
				first := s.subscribe(opts)
				first.Close()
				publishBatches(t, s, 5, each)
				var mu sync.Mutex
				handled := map[string]int{}
				var log logtest.Buffer
				options := append(options, worker.WithConcurrency(4), worker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				work := func(done func(n int) bool) (worker.Stats, int) {
					c := s.subscribe(opts, redelivery.WithNackRedeliveryDelay(time.Hour))
					defer c.Close()
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					handle := func(msgs ...pulsar.Message) {
						time.Sleep(takes)
						mu.Lock()
						defer mu.Unlock()
						for _, msg := range msgs {
							handled[string(msg.Payload())]++
						}
						if done(len(handled)) {
							cancel()
						}
					}
					w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error { handle(msg); return nil }, options...)
					if name == "a BatchHandler" {
						w, err = worker.NewBatch(c, func(_ context.Context, msgs []pulsar.Message) error { handle(msgs...); return nil },
							worker.Batch{MaxMessages: 7}, options...)
					}
					require.NoError(t, err)
					require.NoError(t, w.Run(ctx))
					return w.Stats(), c.Stats().Unfinished
				}
				stats, unfinished := work(func(n int) bool { return n >= each+each/2 })
				t.Logf("%d handled, %d come again, %d left", stats.Succeeded, unfinished, stats.Left)
				require.Contains(t, log.String(), fmt.Sprint("unfinished=", unfinished))
				if unfinished > 0 {
					again := "may come again"
					if kind == pulsar.Exclusive { // where Subscribe does not switch batch-index acks on
						again = "come again"
					}
					require.Contains(t, log.String(), `level=WARN msg="worker: stopped; finished messages `+again+`"`)
				} else {
					require.Contains(t, log.String(), `level=INFO msg="worker: stopped"`)
				}
				finishes := strings.HasPrefix(name, "a ")
				switch {
				case finishes:
					if strings.Contains(name, "by key") && stats.Succeeded > 2*each { // a message of the third batch waited for its key
						require.EqualValues(t, 3*each, stats.Succeeded)
					} else {
						require.EqualValues(t, 2*each, stats.Succeeded)
					}
					require.Zero(t, unfinished)
				case name == "if there is no time":
					require.Contains(t, log.String(), "cannot be handled within the drain timeout")
					fallthrough
				case name == "not at all":
					require.GreaterOrEqual(t, unfinished, each/2)
					require.Less(t, stats.Succeeded, uint64(2*each))
				default:
					require.Less(t, stats.Succeeded, uint64(2*each))
				}
				work(func(n int) bool { return n == 5*each })
				again := 0
				for _, n := range handled {
					again += n - 1
				}
				// With batch-index acks, unfinished is right only if the broker keeps them. The one in process does not.
				if !strings.Contains(name, "index") {
					require.Equal(t, unfinished, again)
				}
			})
		}
	}
}

// publishBatches publishes a number of batches. each is the number of messages in a batch; they all have different
// keys.
func publishBatches(t *testing.T, s *site, batches, each int) {
	t.Helper()
	producer, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic, BatchingMaxMessages: uint(each),
		BatchingMaxPublishDelay: time.Minute, BatchingMaxSize: 1 << 20})
	require.NoError(t, err)
	defer producer.Close()
	for b := range batches {
		for i := range each {
			producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(fmt.Sprint(b, " ", i)), Key: fmt.Sprint(i)},
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { require.NoError(t, err) })
		}
		require.NoError(t, producer.FlushWithCtx(context.Background()))
	}
}

// The last line of the log says why finished messages come again: the Consumer may send no batch-index
// acknowledgements, or the broker may not keep them.
func TestLastLineSaysWhyFinishedMessagesComeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		options      []redelivery.Option
		want, remedy string
	}{
		"by default": {nil, `finished messages may come again" .* unfinished=1 why="the broker may keep no batch-index acknowledgements, `, ""},
		"off": {[]redelivery.Option{redelivery.WithoutBatchIndexAcks()}, `finished messages come again" .* unfinished=1 why="the consumer sends no batch-index `,
			", then EnableBatchIndexAcknowledgment: true in pulsar.ConsumerOptions"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			var log logtest.Buffer
			c1 := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared}, append(c.options, redelivery.WithNackRedeliveryDelay(time.Hour))...)
			publishBatches(t, s, 1, 2)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			handled := 0
			w, err := worker.New(c1, func(context.Context, pulsar.Message) error {
				handled++
				if handled == 2 {
					cancel()
					return errors.New("no luck")
				}
				return nil
			}, worker.WithConcurrency(1), worker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			require.NoError(t, err)
			require.NoError(t, w.Run(ctx))
			require.Regexp(t, `level=WARN msg="worker: stopped; `+c.want+`.* remedy="acknowledgmentAtBatchIndexLevelEnabled=true in broker.conf`+c.remedy+`"`, log.String())
		})
	}
}

// The broker sent an acknowledged message again: it may keep no batch-index acknowledgements, or have lost them in an
// unload, as Pulsar 4.0 does.
func TestLastLineNamesAnUnloadIfAcknowledgedMessagesCameAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var log logtest.Buffer
	c := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared}, redelivery.WithRedeliveryFrom(redelivery.FromBroker),
		redelivery.WithNackRedeliveryDelay(3*time.Second)) // after 2.1 s the broker surely has the acknowledgement
	publishBatches(t, s, 1, 2)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	handled := 0
	w, err := worker.New(c, func(context.Context, pulsar.Message) error {
		handled++
		if handled == 1 {
			return nil
		}
		if handled == 3 {
			cancel()
		}
		return errors.New("no luck")
	}, worker.WithConcurrency(1), worker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	require.NoError(t, w.Run(ctx))
	require.Equal(t, redelivery.IndexAcksIgnored, c.Stats().IndexAcks)
	require.Regexp(t, `finished messages may come again" .* unfinished=1 why="the broker keeps no batch-index acknowledgements, `+
		`or lost them in an unload, .* remedy="acknowledgmentAtBatchIndexLevelEnabled=true in broker.conf"`, log.String())
}

// An earlier consumer acknowledged some messages of a batch at a broker that keeps batch-index acknowledgements. The
// consumer that gets the rest never receives these messages.
func TestDrainDoesNotWaitForMessagesAcknowledgedBefore(t *testing.T) {
	t.Parallel()
	for rest, limit := range map[string]time.Duration{
		"b": 700 * time.Millisecond, // the gap before it shows that the broker keeps the acknowledgements
		"a": 2 * time.Second,
	} {
		t.Run(rest, func(t *testing.T) {
			s := newSiteInProcess(t, pulsartest.WithBatchIndexAcknowledgment())
			first := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared})
			s.publish(true, "a", "b", "c")
			for range 3 {
				msg, err := first.Receive(context.Background())
				require.NoError(t, err)
				if string(msg.Payload()) != rest {
					require.NoError(t, first.Ack(msg))
				}
			}
			time.Sleep(300 * time.Millisecond) // acknowledgements are sent after 100 ms
			first.Close()
			var log logtest.Buffer
			handled := make(chan string, 3)
			w, err := worker.New(s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Shared}),
				func(_ context.Context, msg pulsar.Message) error {
					handled <- string(msg.Payload())
					return nil
				}, worker.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			require.Equal(t, rest, waittest.Next(t, handled))
			began := time.Now()
			cancel()
			require.NoError(t, waittest.Next(t, ended))
			require.Less(t, time.Since(began), limit)
			require.NotContains(t, log.String(), "drain timeout is over")
			if rest == "b" {
				require.NotContains(t, log.String(), "may come again")
			}
		})
	}
}
