package reconsume_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroker = errors.New("broker says no")

// client makes producers that note what they are sent.
type client struct {
	pulsar.Client
	mu        sync.Mutex
	slow      time.Duration // to create a producer
	stuck     bool          // publishing
	failures  int           // of creating, to come
	created   []pulsar.ProducerOptions
	sent      map[string][]*pulsar.ProducerMessage
	sendErr   error
	sending   int
	closed    int
	tooSoon   bool // a producer was closed while it sent
	subscribe []pulsar.ConsumerOptions
}

func (c *client) Subscribe(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	c.subscribe = append(c.subscribe, o)
	return &consumer{}, nil
}

func (c *client) CreateProducer(o pulsar.ProducerOptions) (pulsar.Producer, error) {
	time.Sleep(c.slow)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.created = append(c.created, o)
	if c.failures--; c.failures >= 0 {
		return (*producer)(nil), errBroker // typed, as upstream's
	}
	return &producer{c: c, topic: o.Topic}, nil
}

type producer struct {
	pulsar.Producer
	c     *client
	topic string
}

func (p *producer) Topic() string { return p.topic }
func (p *producer) Close() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	p.c.closed++
	p.c.tooSoon = p.c.tooSoon || p.c.sending > 0
}

func (p *producer) Send(ctx context.Context, m *pulsar.ProducerMessage) (pulsar.MessageID, error) {
	if p.c.stuck {
		p.c.mu.Lock()
		p.c.sending++
		p.c.mu.Unlock()
		<-ctx.Done()
		time.Sleep(time.Millisecond)
		p.c.mu.Lock()
		p.c.sending--
		p.c.mu.Unlock()
		return nil, ctx.Err()
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.sendErr != nil {
		return nil, p.c.sendErr
	}
	p.c.sent[p.topic] = append(p.c.sent[p.topic], m)
	return nil, nil
}

// consumer notes what is acknowledged.
type consumer struct {
	pulsar.Consumer
	acked  int
	ackErr error
}

func (c *consumer) AckID(pulsar.MessageID) error { c.acked++; return c.ackErr }
func (c *consumer) Close()                       {}

type message struct {
	pulsar.Message
	props map[string]string
}

func (m message) ID() pulsar.MessageID          { return pulsar.NewMessageID(3, 4, 0, 1) }
func (m message) Topic() string                 { return "persistent://public/default/orders-partition-1" }
func (m message) Payload() []byte               { return []byte("secret") }
func (m message) Key() string                   { return "key" }
func (m message) OrderingKey() string           { return "ordering" }
func (m message) EventTime() time.Time          { return time.UnixMilli(5) }
func (m message) Properties() map[string]string { return m.props }
func (m message) RedeliveryCount() uint32       { return 7 }

const (
	retries     = "persistent://public/default/orders-sub-RETRY"
	deadLetters = "persistent://public/default/orders-sub-DLQ"
)

// run runs a test of a Reconsumer in virtual time.
func run(t *testing.T, o reconsume.Options, test func(*testing.T, *reconsume.Reconsumer, *client, *consumer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &client{sent: map[string][]*pulsar.ProducerMessage{}}
		o.Topic, o.Subscription = "persistent://public/default/orders-partition-3", "sub"
		r, err := reconsume.New(c, o)
		require.NoError(t, err)
		test(t, r, c, &consumer{})
		r.Close()
		r.Close()
	})
}

var bg = context.Background()

func TestOptions(t *testing.T) {
	for want, o := range map[string]reconsume.Options{
		"Subscription":     {Topic: "t"},
		"Topic":            {Subscription: "s", RetryLetterTopic: "r"},
		"non-persistent":   {Subscription: "s", Topic: "non-persistent://a/b/c"},
		"Options.Backoff":  {Subscription: "s", Topic: "t", Backoff: backoff.Exponential{Multiplier: -1}},
		"OperationTimeout": {Subscription: "s", Topic: "t", OperationTimeout: -1},
	} {
		_, err := reconsume.New(&client{}, o)
		assert.ErrorContains(t, err, want)
	}
	_, err := reconsume.New(nil, reconsume.Options{})
	assert.ErrorContains(t, err, "client is nil")
}

// What a retry says of itself, by what the message said. Hostile properties change nothing but that.
func TestPropertiesOfRetries(t *testing.T) {
	origin := map[string]string{"REAL_TOPIC": "persistent://public/default/orders", "REAL_SUBSCRIPTION": "sub",
		"ORIGIN_MESSAGE_ID": "3:4:1:0", "ORIGIN_MESSAGE_IDY_TIME": "3:4:1:0"}
	for name, c := range map[string]struct {
		props map[string]string
		level int
		want  map[string]string
		delay time.Duration
		dead  bool
	}{
		"first":                    {nil, 0, map[string]string{"RECONSUMETIMES": "1", "DELAY_TIME": "1000"}, time.Second, false},
		"third":                    {map[string]string{"RECONSUMETIMES": "2"}, 0, map[string]string{"RECONSUMETIMES": "3"}, 10 * time.Second, false},
		"a level":                  {nil, 4, map[string]string{"DELAY_LEVEL": "4", "RECONSUMETIMES": "1"}, 30 * time.Second, false},
		"after a level":            {map[string]string{"RECONSUMETIMES": "1", "DELAY_LEVEL": "4"}, 0, map[string]string{"DELAY_LEVEL": "5"}, time.Minute, false},
		"after the last":           {map[string]string{"DELAY_LEVEL": "18"}, 0, map[string]string{"DELAY_LEVEL": "18"}, 2 * time.Hour, false},
		"far too high":             {map[string]string{"DELAY_LEVEL": "99999999999999999999"}, 0, nil, time.Second, false},
		"no number":                {map[string]string{"RECONSUMETIMES": "abc", "DELAY_LEVEL": "x"}, 0, map[string]string{"RECONSUMETIMES": "1"}, time.Second, false},
		"negative":                 {map[string]string{"RECONSUMETIMES": "-1"}, 0, map[string]string{"RECONSUMETIMES": "1"}, time.Second, false},
		"huge":                     {map[string]string{"RECONSUMETIMES": "1" + strings.Repeat("0", 30)}, 0, nil, 0, true},
		"the last but one":         {map[string]string{"RECONSUMETIMES": "15"}, 0, map[string]string{"RECONSUMETIMES": "16"}, 30 * time.Minute, false},
		"one too many":             {map[string]string{"RECONSUMETIMES": "16"}, 0, map[string]string{"RECONSUMETIMES": "17", "EXCEPTION_MESSAGE": "reconsumed 16 times"}, 0, true},
		"a topic of somebody else": {map[string]string{"REAL_TOPIC": "evil", "RETRY_TOPIC": "evil"}, 0, map[string]string{"REAL_TOPIC": "evil"}, time.Second, false},
		"an origin":                {map[string]string{"ORIGIN_MESSAGE_ID": "1:1:1"}, 0, map[string]string{"ORIGIN_MESSAGE_ID": "1:1:1"}, time.Second, false},
		"own":                      {map[string]string{"mine": "x"}, 0, map[string]string{"mine": "x"}, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, cl *client, acks *consumer) {
				cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{props: c.props}}
				if c.level > 0 {
					require.NoError(t, r.LaterLevel(bg, cm, c.level))
				} else {
					require.NoError(t, r.Later(bg, cm))
				}
				require.Equal(t, 1, acks.acked)
				topic := retries
				if c.dead {
					topic = deadLetters
				}
				require.Len(t, cl.sent, 1)
				require.Len(t, cl.sent[topic], 1)
				m := cl.sent[topic][0]
				assert.Equal(t, c.delay, m.DeliverAfter)
				assert.Equal(t, "key", m.Key)
				assert.Equal(t, "ordering", m.OrderingKey)
				assert.Equal(t, "secret", string(m.Payload))
				for name, want := range origin {
					if c.props[name] == "" {
						assert.Equal(t, want, m.Properties[name], name)
					}
				}
				for name, want := range c.want {
					assert.Equal(t, want, m.Properties[name], name)
				}
			})
		})
	}
}

func TestLaterAfter(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{}}
		require.NoError(t, r.LaterAfter(bg, cm, -time.Hour, map[string]string{"a": "b"}))
		require.Zero(t, c.sent[retries][0].DeliverAfter)
		require.Equal(t, "b", c.sent[retries][0].Properties["a"])
		require.Equal(t, "0", c.sent[retries][0].Properties["DELAY_TIME"])
		for _, name := range []string{"RECONSUMETIMES", "DELAY_LEVEL", "REAL_TOPIC", "ORIGIN_TOPIC"} {
			err := r.LaterAfter(bg, cm, 0, map[string]string{name: "x"})
			require.ErrorIs(t, err, reconsume.ErrSystemProperty)
			require.ErrorContains(t, err, name)
		}
		for _, level := range []int{-1, 0, 19} {
			require.ErrorContains(t, r.LaterLevel(bg, cm, level), fmt.Sprint(level))
		}
		require.Error(t, r.Later(bg, pulsar.ConsumerMessage{}))
		require.Error(t, r.DeadLetter(bg, pulsar.ConsumerMessage{}, nil))
		require.ErrorContains(t, r.Later(bg, pulsar.ConsumerMessage{Message: message{}}), "Consumer is nil")
		require.Equal(t, 1, acks.acked)
	})
	run(t, reconsume.Options{Backoff: backoff.Fixed(time.Minute)}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{}}
		require.ErrorIs(t, r.LaterLevel(bg, cm, 1), reconsume.ErrNoLevels)
		require.NoError(t, r.Later(bg, cm))
		require.Equal(t, time.Minute, c.sent[retries][0].DeliverAfter)
	})
}

func TestTheCountGoesAlong(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{props: map[string]string{"REDELIVERY_COUNT": "3"}}}
		require.NoError(t, r.LaterCounted(bg, cm, time.Second))
		require.NoError(t, r.Later(bg, cm))
		require.EqualValues(t, 8, reconsume.RedeliveryCount(message{props: c.sent[retries][0].Properties}))
		require.Zero(t, reconsume.RedeliveryCount(message{props: c.sent[retries][1].Properties}))
		require.Zero(t, reconsume.RedeliveryCount(message{props: map[string]string{"REDELIVERY_COUNT": "-1"}}))
	})
}

func TestDeadLetters(t *testing.T) {
	o := reconsume.Options{ConsumerName: "me", InitialSubscriptionName: "readers"}
	run(t, o, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{props: map[string]string{"RECONSUMETIMES": "2"}}}
		require.NoError(t, r.DeadLetter(bg, cm, errors.New(strings.Repeat("é", 1000))))
		require.NoError(t, r.DeadLetter(bg, cm, nil))
		first, second := c.sent[deadLetters][0].Properties, c.sent[deadLetters][1].Properties
		assert.Equal(t, strings.Repeat("é", 512), first["EXCEPTION_MESSAGE"])
		assert.Equal(t, "7", first["REDELIVERY_COUNT"])
		assert.Equal(t, "7", second["REDELIVERY_COUNT"])
		assert.NotContains(t, second, "EXCEPTION_MESSAGE")
		assert.Equal(t, "2", first["RECONSUMETIMES"])
		assert.Equal(t, message{}.Topic(), first["ORIGIN_TOPIC"])
		assert.Equal(t, fmt.Sprint(time.Now().UnixMilli()), first["DEAD_LETTER_TIME"])
		require.Len(t, c.created, 1)
		assert.Regexp(t, "^persistent://public/default/orders-sub-me-[0-9a-f]{10}-DLQ$", c.created[0].Name)
		assert.Equal(t, pulsar.LZ4, c.created[0].CompressionType)
		require.Len(t, c.subscribe, 1)
		assert.Equal(t, "readers", c.subscribe[0].SubscriptionName)
	})
}

// Nothing is acknowledged unless the publish was confirmed.
func TestErrors(t *testing.T) {
	later := func(r *reconsume.Reconsumer, ctx context.Context, acks *consumer) error {
		return r.Later(ctx, pulsar.ConsumerMessage{Consumer: acks, Message: message{}})
	}
	for name, test := range map[string]func(*testing.T, *reconsume.Reconsumer, *client, *consumer){
		"publish": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.sendErr = errBroker
			require.ErrorIs(t, later(r, bg, acks), errBroker)
			require.ErrorContains(t, later(r, bg, acks), retries)
			c.sendErr = pulsar.ErrProducerClosed
			require.Error(t, later(r, bg, acks))
			require.Len(t, c.created, 1)
			c.sendErr = errBroker
			require.Error(t, later(r, bg, acks))
			require.Len(t, c.created, 2, "a producer that closed itself is replaced")
		},
		"publish in time": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.stuck = true
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			require.ErrorIs(t, later(r, ctx, acks), context.DeadlineExceeded)
		},
		"no producer": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.failures, c.slow = 100, time.Millisecond
			var calls sync.WaitGroup
			for range 10 { // share an attempt
				calls.Go(func() { assert.ErrorIs(t, later(r, bg, acks), errBroker) })
			}
			calls.Wait()
			synctest.Wait()
			require.Len(t, c.created, 1)
			begin := time.Now()
			for range 12 {
				require.ErrorIs(t, later(r, bg, acks), errBroker)
			}
			require.Equal(t, 5*10*time.Second+12712*time.Millisecond, time.Since(begin), "0.1, 0.2, 0.4 … 6.4, 10, 10 … s")
		},
		"no producer in time": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.slow = time.Minute
			ctx, cancel := context.WithTimeout(bg, time.Second)
			defer cancel()
			begin := time.Now()
			require.ErrorIs(t, later(r, ctx, acks), context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(begin))
			require.ErrorIs(t, later(r, bg, acks), context.DeadlineExceeded)
			require.Equal(t, 31*time.Second, time.Since(begin), "the operation timeout")
			r.Close()
			time.Sleep(time.Minute)
			c.mu.Lock()
			defer c.mu.Unlock()
			require.Equal(t, 1, c.closed, "what came too late is closed")
		},
		"closed meanwhile": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			c.stuck = true
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() { assert.ErrorIs(t, later(r, bg, acks), reconsume.ErrClosed) })
			}
			synctest.Wait()
			r.Close()
			calls.Wait()
			require.Equal(t, 1, c.closed)
			require.False(t, c.tooSoon)
		},
		"cancelled": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			ctx, cancel := context.WithCancel(bg)
			cancel()
			require.ErrorIs(t, later(r, ctx, acks), context.Canceled)
			require.Empty(t, c.created)
		},
		"closed": func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			r.Close()
			require.ErrorIs(t, later(r, bg, acks), reconsume.ErrClosed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
				test(t, r, c, acks)
				require.Zero(t, acks.acked)
			})
		})
	}
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		acks.ackErr = errBroker
		err := later(r, bg, acks)
		require.ErrorIs(t, err, reconsume.ErrNotAcknowledged)
		require.ErrorIs(t, err, errBroker)
	})
	run(t, reconsume.Options{Decrypts: true}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		require.ErrorContains(t, later(r, bg, acks), "Encryption")
		require.Empty(t, c.created)
	})
}

func FuzzHostileProperties(f *testing.F) {
	for _, s := range []string{"", "1", "-1", "abc", "1e30", "99999999999999999999", "0x10", " 1"} {
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, times, level, delay string) {
		c := &client{sent: map[string][]*pulsar.ProducerMessage{}}
		r, err := reconsume.New(c, reconsume.Options{Topic: "persistent://public/default/orders", Subscription: "sub"})
		require.NoError(t, err)
		defer r.Close()
		m := message{props: map[string]string{"RECONSUMETIMES": times, "DELAY_LEVEL": level, "DELAY_TIME": delay, "REAL_TOPIC": level}}
		require.NoError(t, r.Later(bg, pulsar.ConsumerMessage{Consumer: &consumer{}, Message: m}))
		require.Equal(t, 1, len(c.sent[retries])+len(c.sent[deadLetters]), "it goes where the configuration says")
		d, ok := reconsume.DelayTime(m)
		require.True(t, d >= 0 && (ok || d == 0))
	})
}
