package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	clientbackoff "github.com/apache/pulsar-client-go/pulsar/backoff"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/topicname"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// journal notes the successes of several Workers' handlers. A message's payload is its key and its number within the
// key.
type journal struct {
	mu        sync.Mutex
	calls     map[string]int
	succeeded map[string]int // how often each message succeeded
	last      map[string]int // the highest number of a key that succeeded
	repeated  int            // successes of messages that had succeeded before
	late      int            // messages whose first success came after that of a later message of the key
}

func newJournal() *journal {
	return &journal{calls: map[string]int{}, succeeded: map[string]int{}, last: map[string]int{}}
}

// call counts the calls of the handler with a message, from 1.
func (j *journal) call(msg pulsar.Message) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls[string(msg.Payload())]++
	return j.calls[string(msg.Payload())]
}

func (j *journal) succeeds(msg pulsar.Message) error {
	key, number, _ := strings.Cut(string(msg.Payload()), "/")
	var n int
	_, _ = fmt.Sscan(number, &n)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.succeeded[string(msg.Payload())]++
	switch last, ok := j.last[key]; {
	case j.succeeded[string(msg.Payload())] > 1:
		j.repeated++
	case ok && n < last:
		j.late++
	default:
		j.last[key] = n
	}
	return nil
}

// figures returns how many messages succeeded, how many successes were repeated, and how many messages were late.
func (j *journal) figures() (succeeded, repeated, late int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.succeeded), j.repeated, j.late
}

// publishKeyed publishes messages of keys, one after the other.
func (s *site) publishKeyed(keys []string, each int) {
	producer, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic, DisableBatching: true,
		MessageRouter: func(msg *pulsar.ProducerMessage, topic pulsar.TopicMetadata) int {
			var n uint32
			_, _ = fmt.Sscan(strings.TrimPrefix(msg.Key, "key"), &n)
			return int(n % topic.NumPartitions())
		}})
	require.NoError(s, err)
	defer producer.Close()
	for n := range each {
		for _, key := range keys {
			producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "%s/%d", key, n), Key: key},
				func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { assert.NoError(s, err) })
		}
	}
	require.NoError(s, producer.FlushWithCtx(context.Background()))
}

func (s *site) partitions(n int) { s.create(s.topic, n) }

// create makes a topic with a number of partitions; 0 makes a topic without partitions.
func (s *site) create(topic string, partitions int) {
	path, body := admin.Topic(topicname.Full(topic)), any(nil)
	if partitions > 0 {
		path, body = path+"/partitions", partitions
	}
	require.NoError(s, admin.Call(context.Background(), s.admin, "PUT", path, body, nil))
}

func (s *site) unload(topic string) {
	require.NoError(s, admin.Call(context.Background(), s.admin, "PUT", admin.Topic(topicname.Full(topic))+"/unload", nil, nil))
}

// startWorker subscribes a Consumer and runs a Worker of it until the test ends.
func (s *site) startWorker(kind pulsar.SubscriptionType, name string, handler worker.Handler, options ...worker.Option) *worker.Worker {
	s.Helper()
	return s.run(s.subscribe(pulsar.ConsumerOptions{Type: kind, Name: name}, nackDelayOf3s), handler, options...)
}

var nackDelayOf3s = redelivery.WithNackRedeliveryDelay(3 * time.Second)

// run runs a Worker until the test ends.
func (s *site) run(c *redelivery.Consumer, handler worker.Handler, options ...worker.Option) *worker.Worker {
	s.Helper()
	w, err := worker.New(c, handler, append([]worker.Option{worker.WithConcurrency(4), worker.WithLogger(quiet)}, options...)...)
	require.NoError(s, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	s.Cleanup(func() {
		cancel()
		err := <-done
		select {
		case <-c.Done(): // it gave up, because another consumer has the Exclusive subscription
			assert.ErrorContains(s, err, "the consumer is lost")
		default:
			assert.NoError(s, err)
		}
	})
	return w
}

// withAndWithout runs a test with key order, and for comparison without it.
func withAndWithout(t *testing.T, test func(t *testing.T, options ...worker.Option)) {
	t.Run("without key order", func(t *testing.T) { t.Parallel(); test(t) })
	t.Run("with key order", func(t *testing.T) { t.Parallel(); test(t, worker.WithKeyOrder()) })
}

// In each partition a key waits: its first message has failed, and all later ones wait for it. Then another consumer
// joins and gets one of the partitions. Only after that do the first messages succeed.
func TestKeysKeepTheirOrderWhenAPartitionMoves(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, options ...worker.Option) {
		s, j := newSite(t), newJournal()
		s.partitions(2)
		var moved atomic.Bool
		handler := func(_ context.Context, msg pulsar.Message) error {
			if call := j.call(msg); strings.HasSuffix(string(msg.Payload()), "/0") && (call == 1 || !moved.Load()) {
				return worker.RetryAfter(300*time.Millisecond, errTest)
			}
			return j.succeeds(msg)
		}
		s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Failover}).Close()
		s.publishKeyed([]string{"key0", "key1"}, 200)
		a := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Failover, Name: "a"})
		s.allTaken(a, s.run(a, handler, options...), j, 400)
		lost := a.NextLoss()
		s.startWorker(pulsar.Failover, "b", handler, options...)
		waittest.Next(t, lost)
		moved.Store(true)
		s.judge(j, 400, len(options) > 0)
	})
}

// allTaken waits until a Worker has taken all messages: they succeeded, or wait in the Worker or in its Consumer.
func (s *site) allTaken(c *redelivery.Consumer, w *worker.Worker, j *journal, messages int) {
	s.Helper()
	require.Eventually(s, func() bool {
		succeeded, _, _ := j.figures()
		return succeeded+w.Stats().Waiting+w.Stats().InFlight+c.Stats().Waiting >= messages
	}, waittest.Limit, 10*time.Millisecond)
}

// Two keys wait: the first message of each has failed, and all later ones wait for it. Then the topic is unloaded, and
// another consumer takes it over before the first one reconnects.
func TestKeysKeepTheirOrderWhenExclusiveIsTakenOver(t *testing.T) {
	t.Parallel()
	withAndWithout(t, func(t *testing.T, options ...worker.Option) {
		s, j := newSite(t), newJournal()
		handler := func(_ context.Context, msg pulsar.Message) error {
			if call := j.call(msg); call == 1 && strings.HasSuffix(string(msg.Payload()), "/0") {
				return errTest
			}
			return j.succeeds(msg)
		}
		s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Exclusive}).Close()
		s.publishKeyed([]string{"key0", "key1"}, 200)
		// consumer a acknowledges nothing before consumer b has taken the topic over: the change of owner would lose
		// acknowledgements of the last 100 ms
		waits := redelivery.WithNackRedeliveryDelay(time.Minute)
		over := make(chan struct{})
		reconnects := func() clientbackoff.Policy { <-over; return clientbackoff.NewDefaultBackoff() }
		a := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.Exclusive, Name: "a", BackOffPolicyFunc: reconnects}, waits)
		takeOver := sync.OnceFunc(func() { close(over) })
		s.Cleanup(takeOver)
		s.allTaken(a, s.run(a, handler, options...), j, 400)
		s.unload(s.topic)
		for deadline := time.Now().Add(waittest.Limit); ; time.Sleep(10 * time.Millisecond) {
			b, err := s.trySubscribe(pulsar.ConsumerOptions{Type: pulsar.Exclusive, Name: "b"}, nackDelayOf3s)
			if err == nil {
				s.run(b, handler, options...)
				break
			}
			require.True(t, time.Now().Before(deadline), "%v", err)
		}
		takeOver()
		s.judge(j, 400, len(options) > 0)
	})
}

// Many keys wait while the topic, or one of its partitions, is unloaded and another consumer joins.
func TestKeysKeepTheirOrderAfterAnUnload(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		partitions int
		joinsFirst bool
	}{
		"a join follows": {}, "a join goes before": {joinsFirst: true},
		"of one partition, a join follows": {partitions: 2}, "of one partition, a join goes before": {2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keysMove(t, c.partitions, c.joinsFirst)
		})
	}
}

func keysMove(t *testing.T, partitions int, joinsFirst bool) {
	withAndWithout(t, func(t *testing.T, options ...worker.Option) {
		s, j := newSite(t), newJournal()
		unloaded := s.topic
		if partitions > 0 {
			s.partitions(partitions)
			unloaded += "-partition-0"
		}
		var moved atomic.Bool
		handler := func(_ context.Context, msg pulsar.Message) error {
			if call := j.call(msg); strings.HasSuffix(string(msg.Payload()), "/0") && (call == 1 || !moved.Load()) {
				return worker.RetryAfter(300*time.Millisecond, errTest)
			}
			time.Sleep(5 * time.Millisecond)
			return j.succeeds(msg)
		}
		s.subscribe(pulsar.ConsumerOptions{Type: pulsar.KeyShared}).Close()
		var keys []string
		for n := range 20 {
			keys = append(keys, fmt.Sprint("key", n))
		}
		s.publishKeyed(keys, 10)
		a := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.KeyShared, Name: "a"})
		s.allTaken(a, s.run(a, handler, options...), j, 200)
		if joinsFirst {
			s.startWorker(pulsar.KeyShared, "b", handler, options...)
			time.Sleep(100 * time.Millisecond)
		}
		lost := a.NextLoss()
		s.unload(unloaded)
		if !joinsFirst {
			s.startWorker(pulsar.KeyShared, "b", handler, options...)
		}
		waittest.Next(t, lost)
		moved.Store(true)
		s.judge(j, 200, len(options) > 0)
	})
}

// judge waits until all messages have succeeded, and then longer for repeated ones. It checks the figures of the
// journal.
func (s *site) judge(j *journal, messages int, inOrder bool) {
	s.Helper()
	assert.Eventually(s, func() bool { succeeded, _, _ := j.figures(); return succeeded == messages }, 40*time.Second, 100*time.Millisecond)
	time.Sleep(5 * time.Second)
	succeeded, repeated, late := j.figures()
	s.Logf("%d of %d succeeded, %d of the successes were repeated, %d messages were late", succeeded, messages, repeated, late)
	require.Equal(s, messages, succeeded)
	if inOrder { // without key order the figures are only logged
		require.Zero(s, late)
		require.LessOrEqual(s, repeated, 4, "more successes were repeated than handlers were running")
	}
}

// The connection of another partition is lost while a message waits for its retry. The Worker drops the message, since
// it may be another consumer's, and the Consumer requests it later. Newer messages of its key wait for it.
func TestNewerMessagesDoNotOvertakeALostMessage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.partitions(2)
	c := s.subscribe(pulsar.ConsumerOptions{Type: pulsar.KeyShared}, redelivery.WithNackRedeliveryDelay(2*time.Second))
	j := newJournal()
	failed := make(chan struct{})
	w, err := worker.New(c, func(_ context.Context, msg pulsar.Message) error {
		if j.call(msg) == 1 && string(msg.Payload()) == "key0/0" {
			close(failed)
			return errors.New("not yet")
		}
		return j.succeeds(msg)
	}, worker.WithKeyOrder(), worker.WithLogger(quiet))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	p, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: s.topic + "-partition-0", DisableBatching: true})
	require.NoError(t, err)
	defer p.Close()
	publish := func(n int) {
		_, err := p.Send(ctx, &pulsar.ProducerMessage{Payload: fmt.Appendf(nil, "key0/%d", n), Key: "key0"})
		require.NoError(t, err)
	}
	publish(0)
	waittest.Next(t, failed)
	s.unload(s.topic + "-partition-1")
	time.Sleep(500 * time.Millisecond) // the partition is connected again, and the message still waits
	for n := range 5 {
		publish(n + 1)
	}
	require.Eventually(t, func() bool { succeeded, _, _ := j.figures(); return succeeded == 6 }, 20*time.Second,
		10*time.Millisecond)
	cancel()
	require.NoError(t, waittest.Next(t, ended))
	_, _, late := j.figures()
	require.Zero(t, late, "messages succeeded after a later one of their key")
}
