package deadletter_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/doctor"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
)

// site describes the surroundings of a service.
type site struct {
	topics   map[string]any // the namespaces' policy for topics that the broker creates on use
	apart    bool           // letters have a namespace of their own
	replicas int
	chained  bool // another service forwards the messages, with the properties of its retries and replays
}

// The service has retries, dead letters and a log of attempts. Each message is retried, fails, becomes a letter that
// names the service's topic, is replayed, and is processed once. The doctor finds all topics and subscriptions.
func TestLetterOfAServiceIsProcessedOnceInEachSetup(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]site{
		"topics are created partitioned":      {topics: creations["partitioned"]},
		"no topics are created":               {topics: creations["off"]},
		"letters in a namespace of their own": {apart: true},
		"two replicas":                        {replicas: 2},
		"chain of two services":               {chained: true},
		"all of these": {topics: creations["partitioned"],
			apart: true, replicas: 2, chained: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBroker(t)
			if b.inProcess != nil && (s.topics != nil || s.apart) {
				t.Skip("needs a real broker: PULSAR_URL and PULSAR_ADMIN_URL")
			}
			s.works(t, b)
		})
	}
}

func (s site) works(t *testing.T, b *broker) {
	const n = 12
	s.setNamespace(b)
	namespace := b.namespace
	tp := s.names(b)
	if s.apart { // also without -RETRY and -DLQ at the end of names, which the broker treats specially
		s.setNamespace(b)
		tp.retry, tp.dlq = tp.origin+"-later", s.names(b).origin+"-letters"
	}
	if s.topics["allowAutoTopicCreation"] == false {
		for _, topic := range []string{tp.origin, tp.retry, tp.dlq, tp.origin + "-" + sub + "-ATTEMPTS"} {
			b.create(topic, 0)
		}
	}
	shop := shop{t: t, want: n, down: true, retried: map[string]bool{}, processed: map[string]pulsar.Message{}}
	var consumers []*redelivery.Consumer
	for range max(1, s.replicas) {
		c := b.service(tp.origin, redelivery.DeadLetterPolicy{MaxDeliveries: 2, RetryTopic: tp.retry, Topic: tp.dlq},
			redelivery.WithNackRedeliveryDelay(100*time.Millisecond),
			redelivery.WithAttemptLog(redelivery.AttemptLog{}))
		consumers = append(consumers, c)
		go shop.handle(c)
	}
	var msgs []*pulsar.ProducerMessage
	for i := range n {
		msgs = append(msgs, &pulsar.ProducerMessage{Payload: fmt.Append(nil, i), Key: fmt.Sprint(i % 5)})
	}
	if s.chained {
		msgs = s.forwarded(b, msgs)
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.origin}, 3, msgs...)

	dlq := b.open(tp.dlq, func(o *deadletter.Options) { o.Subscription, o.AnyTopic = "inspect", true })
	var dead []deadletter.Letter
	require.Eventually(t, func() bool {
		dead = nil
		died := map[string]bool{}
		for l, err := range dlq.Peek(bg, 2*n) {
			if err != nil {
				break // there is no such topic before the first letter
			}
			dead = append(dead, l)
			died[string(l.Payload)] = true
		}
		return len(died) == n
	}, time.Minute, 500*time.Millisecond)
	doubles := len(dead) - n // on a slow broker, another consumer may get a message before its letter is confirmed
	for _, l := range dead {
		if doubles > 0 && slices.ContainsFunc(dead, func(other deadletter.Letter) bool {
			return other.ID != l.ID && string(other.Payload) == string(l.Payload) && other.Reason == "no stock"
		}) {
			continue
		}
		require.Equal(t, tp.origin, l.Origin)
		require.Equal(t, sub, l.Subscription)
		require.Equal(t, "no stock", l.Reason)
		require.Equal(t, "1", l.Properties["RECONSUMETIMES"])
		require.Zero(t, l.Replays)
	}
	require.Len(t, shop.retried, n)
	require.Eventually(t, func() bool { return len(consumers[0].AttemptLog().Sessions()) == len(consumers) },
		15*time.Second, 50*time.Millisecond)
	for _, f := range doctor.Examine(t.Context(),
		doctor.Setup{Admin: doctor.Admin{URL: b.admin}, Client: b.client, Topic: tp.origin, Subscription: sub,
			RetryTopic: tp.retry, DeadLetterTopic: tp.dlq}) {
		require.NotContains(t, f.Found, "404", f.Check)
		require.NotContains(t, f.Found, "does not exist", f.Check)
	}

	shop.open()
	o := deadletter.ReplayOptions{Canary: 2, CanaryTimeout: 30 * time.Second}
	if s.apart {
		_, err := dlq.Replay(bg, deadletter.ReplayOptions{ToOrigin: true})
		require.ErrorIs(t, err, deadletter.ErrOtherNamespace)
		o.Topic, o.Namespaces = tp.retry, []string{namespace}
	}
	report, err := dlq.Replay(bg, o)
	require.NoError(t, err)
	require.GreaterOrEqual(t, report.Done, n)
	require.Equal(t, tp.retry, report.Targets[0].Topic)
	require.Eventually(t, func() bool { return shop.all() == n }, 30*time.Second, 50*time.Millisecond)
	require.LessOrEqual(t, shop.twice, doubles)
	for payload, msg := range shop.processed {
		require.Equal(t, "1", msg.Properties()["REPLAY_COUNT"], payload)
		require.Equal(t, tp.origin, msg.Properties()["REAL_TOPIC"], payload)
	}
	require.Eventually(t, func() bool { return consumers[0].AttemptLog().Stats().Records == 0 }, 15*time.Second,
		50*time.Millisecond)
	b.noJournal(tp)
}

// setNamespace puts topics into a new namespace. The broker in this process has only one namespace.
func (s site) setNamespace(b *broker) {
	if b.inProcess == nil {
		b.creates(s.topics)
	}
}

func (s site) names(b *broker) topics {
	name := fmt.Sprintf("persistent://%s/orders-%08x", b.namespace, rand.Uint32())
	return topics{name, name + "-" + sub + "-RETRY", name + "-" + sub + "-DLQ"}
}

// forwarded returns messages as another service forwards them, after its own retries and replays.
func (s site) forwarded(b *broker, msgs []*pulsar.ProducerMessage) (all []*pulsar.ProducerMessage) {
	ctx := waittest.Context(b.t)
	first := b.topics(0)
	c := b.service(first.origin, redelivery.DeadLetterPolicy{})
	next := func() pulsar.Message {
		msg, err := c.Receive(ctx)
		require.NoError(b.t, err)
		return msg
	}
	b.publish(pulsar.ProducerOptions{Topic: first.origin}, 3, msgs...)
	for range msgs {
		require.NoError(b.t, c.DeadLetter(ctx, next(), errors.New("no address")))
	}
	dlq := b.open(first.dlq, func(o *deadletter.Options) { o.Subscription = "inspect" })
	_, err := dlq.Replay(bg, deadletter.ReplayOptions{})
	require.NoError(b.t, err)
	for range msgs {
		require.NoError(b.t, c.ReconsumeLaterNext(ctx, next()))
	}
	for range msgs {
		msg := next()
		require.Equal(b.t, "1", msg.Properties()["REPLAY_COUNT"])
		require.Equal(b.t, "1", msg.Properties()["RECONSUMETIMES"])
		all = append(all, &pulsar.ProducerMessage{Payload: msg.Payload(), Key: msg.Key(),
			Properties: maps.Clone(msg.Properties())})
		require.NoError(b.t, c.Ack(msg))
	}
	return all
}

// shop handles messages. Until it opens, each message is retried once and then fails.
type shop struct {
	t    *testing.T
	want int

	mu        sync.Mutex
	down      bool
	retried   map[string]bool
	processed map[string]pulsar.Message
	twice     int
}

func (s *shop) handle(c *redelivery.Consumer) {
	for {
		msg, err := c.Receive(s.t.Context())
		if err != nil {
			return
		}
		s.mu.Lock()
		payload := string(msg.Payload())
		down, first := s.down, !s.retried[payload]
		s.retried[payload] = true
		if !down {
			if s.processed[payload] != nil {
				s.twice++
			}
			s.processed[payload] = msg
		}
		s.mu.Unlock()
		switch {
		case !down:
			err = c.Ack(msg)
		case first:
			err = c.ReconsumeLaterNext(s.t.Context(), msg)
		default:
			err = c.NackWithReason(msg, errors.New("no stock"))
		}
		if err != nil && s.t.Context().Err() == nil {
			s.t.Errorf("%s: %v", payload, err)
		}
	}
}

func (s *shop) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

func (s *shop) all() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.processed)
}
