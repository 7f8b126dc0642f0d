package reconsume_test

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/internal/leaktest"
	"github.com/pulsar-redelivery/redelivery/internal/publishing"
	"github.com/pulsar-redelivery/redelivery/reconsume"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // most tests wait most of the time
	leaktest.Main(m)
}

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

func TestNewRefusesInvalidOptions(t *testing.T) {
	for want, o := range map[string]reconsume.Options{
		"Subscription":   {Topic: "t"},
		"Topic":          {Subscription: "s", RetryLetterTopic: "r"},
		"non-persistent": {Subscription: "s", Topic: "non-persistent://a/b/c"},
		"Options.Backoff": {Subscription: "s", Topic: "t",
			Backoff: backoff.Exponential{Multiplier: -1}},
		"OperationTimeout is -1ns, want 0 or more":   {Subscription: "s", Topic: "t", OperationTimeout: -1},
		"OperationTimeout is 30ns, want 1ms or more": {Subscription: "s", Topic: "t", OperationTimeout: 30},
		"without ProducerOptions.Encryption":         {Subscription: "s", Topic: "t", Decrypts: true},
		"want it with a key": {Subscription: "s", Topic: "t", Decrypts: true,
			ProducerOptions: pulsar.ProducerOptions{Encryption: &pulsar.ProducerEncryptionInfo{}}},
	} {
		_, err := reconsume.New(&client{}, o)
		assert.ErrorContains(t, err, want)
	}
	_, err := reconsume.New(nil, reconsume.Options{})
	assert.ErrorContains(t, err, "client is nil")
}

// forged are the properties of a retry on a message that is not from the retry topic.
var forged = retried("from", "persistent://public/default/orders", "RECONSUMETIMES", "16", "DELAY_LEVEL", "4",
	"DELAY_TIME", "30000", "NACK_COUNT", "16:7",
	"ATTEMPT_COUNT", "99", "REAL_TOPIC", "evil", "REAL_SUBSCRIPTION", "evil")

// A message is from the topic that its property "from" names. Without "from", a message with RECONSUMETIMES is from the
// retry topic, and any other message from the consumer's topic.
func TestPropertiesAndDelayOfARetryFollowFromItsMessage(t *testing.T) {
	origin := map[string]string{"REAL_TOPIC": "persistent://public/default/orders", "REAL_SUBSCRIPTION": "sub",
		"ORIGIN_MESSAGE_ID": "3:4:1:0", "ORIGIN_MESSAGE_IDY_TIME": "3:4:1:0"}
	for name, c := range map[string]struct {
		props map[string]string
		level int
		want  map[string]string
		delay time.Duration
		dead  bool
	}{
		"the first retry": {nil, 0, map[string]string{"RECONSUMETIMES": "1", "DELAY_TIME": "1000"},
			time.Second, false},
		"the third retry": {retried("RECONSUMETIMES", "2"), 0, map[string]string{"RECONSUMETIMES": "3"},
			10 * time.Second, false},
		"a level": {nil, 4, map[string]string{"DELAY_LEVEL": "4", "RECONSUMETIMES": "1"},
			30 * time.Second, false},
		"after a level": {retried("DELAY_LEVEL", "4", "DELAY_TIME", "30000"), 0,
			map[string]string{"DELAY_LEVEL": "5"}, time.Minute, false},
		"after the last level": {retried("DELAY_LEVEL", "18", "DELAY_TIME", "7200000"), 0,
			map[string]string{"DELAY_LEVEL": "18"}, 2 * time.Hour, false},
		"a level of the application's": {map[string]string{"DELAY_LEVEL": "4"}, 0, map[string]string{"DELAY_LEVEL": ""},
			time.Second, false},
		"a level of the application's on a retry": {retried("DELAY_LEVEL", "4", "DELAY_TIME", "1000"), 0,
			map[string]string{"DELAY_LEVEL": "4"}, 5 * time.Second, false},
		"counts of the application's": {map[string]string{"NACK_COUNT": "7", "REDELIVERY_COUNT": "8"}, 0,
			map[string]string{"NACK_COUNT": "", "REDELIVERY_COUNT": ""}, time.Second, false},
		"properties of a retry on another topic": {forged, 0,
			map[string]string{"RECONSUMETIMES": "1", "DELAY_LEVEL": "", "NACK_COUNT": ""}, time.Second, false},
		"a level of the application's that is too large": {map[string]string{"DELAY_LEVEL": "99999999999999999999"}, 0, nil, time.Second,
			false},
		"a count that is no number": {retried("RECONSUMETIMES", "abc", "DELAY_LEVEL", "x"), 0,
			map[string]string{"RECONSUMETIMES": "1"}, time.Second, false},
		"a negative count": {retried("RECONSUMETIMES", "-1"), 0, map[string]string{"RECONSUMETIMES": "1"},
			time.Second, false},
		"a huge count": {retried("RECONSUMETIMES", "1"+strings.Repeat("0", 30)), 0, nil, 0, true},
		"the last retry": {retried("RECONSUMETIMES", "15"), 0, map[string]string{"RECONSUMETIMES": "16"},
			30 * time.Minute, false},
		"one retry too many": {retried("RECONSUMETIMES", "16"), 0,
			map[string]string{"RECONSUMETIMES": "17", "EXCEPTION_MESSAGE": "reconsumed 16 times"}, 0, true},
		"a topic of another client": {map[string]string{"REAL_TOPIC": "evil", "RETRY_TOPIC": "evil"}, 0,
			map[string]string{"RETRY_TOPIC": ""}, time.Second, false},
		"an origin": {map[string]string{"ORIGIN_MESSAGE_ID": "1:1:1"}, 0, origin, time.Second, false},
		"an empty origin": {map[string]string{"REAL_TOPIC": "", "ORIGIN_MESSAGE_IDY_TIME": ""}, 0, origin,
			time.Second, false},
		"a property of the application's": {map[string]string{"mine": "x"}, 0, map[string]string{"mine": "x"}, time.Second,
			false},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, cl *client, acks *consumer) {
				cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{props: c.props, from: c.props["from"]}}
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
					assert.Equal(t, want, m.Properties[name], name)
				}
				for name, want := range c.want {
					assert.Equal(t, want, m.Properties[name], name)
				}
			})
		})
	}
}

// retried returns the properties that a client writes on a retry, and more properties: names and values in turn.
func retried(more ...string) map[string]string {
	props := map[string]string{"RECONSUMETIMES": "1", "REAL_TOPIC": "persistent://public/default/orders",
		"ORIGIN_MESSAGE_IDY_TIME": "3:4:1:0"}
	for i := 0; i < len(more); i += 2 {
		props[more[i]] = more[i+1]
	}
	return props
}

// The custom properties of the application are a copy of the message's own, with some added.
func TestCustomPropertiesReplaceNoneOfTheClients(t *testing.T) {
	run(t, reconsume.Options{MaxDeliveries: 2}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		props := map[string]string{"mine": "1", "EXCEPTION_MESSAGE": "mine too", "DELAY_LEVEL": "x"}
		for range 3 {
			custom := maps.Clone(props)
			custom["more"], custom["RECONSUMETIMES"], custom["REAL_TOPIC"], custom["ORIGIN_TOPIC"] = "2", "99", "evil", "evil"
			require.NoError(t, r.LaterAfter(bg, pulsar.ConsumerMessage{Consumer: acks, Message: message{props: props}},
				0, custom))
			if len(c.sent[deadLetters]) > 0 {
				break
			}
			props = c.sent[retries][len(c.sent[retries])-1].Properties
		}
		require.Len(t, c.sent[retries], 2)
		require.Len(t, c.sent[deadLetters], 1)
		assert.Equal(t, "2", props["RECONSUMETIMES"])
		assert.Equal(t, "persistent://public/default/orders", props["REAL_TOPIC"])
		assert.NotContains(t, props, "ORIGIN_TOPIC")
		for _, name := range []string{"mine", "more", "EXCEPTION_MESSAGE"} {
			assert.Contains(t, props, name)
		}
		assert.Equal(t, retries, c.sent[deadLetters][0].Properties["ORIGIN_TOPIC"])
	})
}

func TestUnlimitedMakesNoDeadLetter(t *testing.T) {
	run(t, reconsume.Options{MaxDeliveries: reconsume.Unlimited},
		func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			for _, times := range []string{"17", "18", "4000000000", "99999999999"} {
				require.NoError(t, r.Later(bg,
					pulsar.ConsumerMessage{Consumer: acks, Message: message{props: retried("RECONSUMETIMES", times)}}))
				require.Equal(t, 2*time.Hour, c.sent[retries][len(c.sent[retries])-1].DeliverAfter)
			}
			require.Empty(t, c.sent[deadLetters])
		})
}

func TestCallbackGetsTheOutcomeOnceAndTheCallDoesNotWait(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		outcomes := make(chan error, 3)
		done := reconsume.WithCallback(func(err error) { outcomes <- err })
		cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{}}
		require.NoError(t, r.Later(bg, cm, done))
		require.NoError(t, <-outcomes)
		require.NoError(t, r.LaterLevel(bg, cm, 1, done))
		require.NoError(t, <-outcomes)
		require.Equal(t, 2, acks.acked)
		c.lost = all
		require.NoError(t, r.LaterAfter(bg, cm, 0, nil, done))
		synctest.Wait()
		require.Empty(t, outcomes)
		r.Close()
		require.ErrorIs(t, <-outcomes, reconsume.ErrClosed)
		require.NoError(t, r.LaterAfter(bg, cm, 0, nil, done))
		require.ErrorIs(t, <-outcomes, reconsume.ErrClosed)
		require.Error(t, r.LaterAfter(bg, pulsar.ConsumerMessage{}, 0, nil, done))
		synctest.Wait()
		require.Empty(t, outcomes, "the callback was called though the call returned an error")
	})
}

func TestWrongDelaysLevelsAndMessagesAreRefused(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{}}
		require.NoError(t, r.LaterAfter(bg, cm, -time.Hour, map[string]string{"a": "b"}))
		require.Zero(t, c.sent[retries][0].DeliverAfter)
		require.Equal(t, "b", c.sent[retries][0].Properties["a"])
		require.Equal(t, "0", c.sent[retries][0].Properties["DELAY_TIME"])
		for _, level := range []int{-1, 0, 19} {
			require.ErrorContains(t, r.LaterLevel(bg, cm, level), fmt.Sprint(level))
		}
		require.Error(t, r.Later(bg, pulsar.ConsumerMessage{}))
		require.Error(t, r.DeadLetter(bg, pulsar.ConsumerMessage{}, nil))
		require.ErrorContains(t, r.Later(bg, pulsar.ConsumerMessage{Message: message{}}), "Consumer is nil")
		require.Equal(t, 1, acks.acked)
	})
	run(t, reconsume.Options{Backoff: backoff.Fixed(time.Minute)},
		func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
			cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{}}
			require.ErrorIs(t, r.LaterLevel(bg, cm, 1), reconsume.ErrNoLevels)
			require.NoError(t, r.Later(bg, cm))
			require.Equal(t, time.Minute, c.sent[retries][0].DeliverAfter)
		})
}

func all(*pulsar.ProducerMessage) bool { return true }

func TestNackedRetryCarriesTheRedeliveryCount(t *testing.T) {
	run(t, reconsume.Options{}, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{props: retried("NACK_COUNT", "1:3")}}
		require.NoError(t, r.Publisher(false).StartLater(bg, cm, publishing.Retry{Delay: time.Second, Nacked: true}, &publishing.Note{})())
		require.NoError(t, r.Later(bg, cm))
		require.EqualValues(t, 8, publishing.RedeliveryCount(message{props: c.sent[retries][0].Properties}))
		require.Zero(t, publishing.RedeliveryCount(message{props: c.sent[retries][1].Properties}))
		require.Zero(t, publishing.RedeliveryCount(message{props: retried("NACK_COUNT", "1:-1")}))
		require.Zero(t, publishing.RedeliveryCount(message{props: map[string]string{"NACK_COUNT": ":3"}}), "NACK_COUNT counted on a message that is no retry")
		require.Zero(t, publishing.RedeliveryCount(message{props: retried("NACK_COUNT", "3")}),
			"a property of the application's own counted")
	})
}

func TestDelayTimeCountsOnRetriesOnly(t *testing.T) {
	for want, props := range map[time.Duration]map[string]string{
		1500 * time.Millisecond: retried("DELAY_TIME", "1500"),
		0:                       {"DELAY_TIME": "1500"},
		-1:                      {"DELAY_TIME": "1500", "RECONSUMETIMES": "1"},
		-2:                      retried("DELAY_TIME", "9223372036854775807"),
		-3:                      retried("DELAY_TIME", "-1"),
	} {
		d, ok := publishing.DelayTime(message{props: props})
		assert.Equal(t, max(0, want), d)
		assert.Equal(t, want > 0, ok)
	}
}

func TestProducersHaveTheConfiguredNames(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{"", "^persistent://public/default/orders-partition-3-sub-[a-z]{5}-[a-z]{5}-DLQ$"},
		{"mine", "^mine$"},
	} {
		o := reconsume.Options{DeadLetterTopicProducerName: c.given,
			ProducerOptions: pulsar.ProducerOptions{Name: "retries"}}
		run(t, o, func(t *testing.T, r *reconsume.Reconsumer, cl *client, acks *consumer) {
			cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{}}
			require.NoError(t, r.LaterAfter(bg, cm, 0, nil))
			require.NoError(t, r.DeadLetter(bg, cm, nil))
			assert.Equal(t, "retries", cl.created[0].Name)
			assert.Regexp(t, c.want, cl.created[1].Name)
		})
	}
}

// A new producer has another name than the producer that it replaces, which may not be closed yet.
func TestReplacedProducerHasAnotherName(t *testing.T) {
	o := reconsume.Options{ProducerOptions: pulsar.ProducerOptions{Encryption: &pulsar.ProducerEncryptionInfo{Keys: []string{"k"}}}}
	run(t, o, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		c.failures = 1
		cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{}}
		require.Error(t, r.DeadLetter(bg, cm, nil))
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, r.DeadLetter(bg, cm, nil))
		require.Len(t, c.created, 2)
		require.NotEqual(t, c.created[0].Name, c.created[1].Name)
		require.NotSame(t, c.created[0].Encryption, c.created[1].Encryption)
	})
}

func TestDeadLetterHasItsCauseAndItsOrigin(t *testing.T) {
	o := reconsume.Options{ConsumerName: "me", InitialSubscriptionName: "readers"}
	run(t, o, func(t *testing.T, r *reconsume.Reconsumer, c *client, acks *consumer) {
		cm := pulsar.ConsumerMessage{Consumer: acks, Message: message{props: map[string]string{"RECONSUMETIMES": "2"}}}
		require.NoError(t, r.DeadLetter(bg, cm,
			fmt.Errorf("%s%w", strings.Repeat("é", 1000), &fs.PathError{Err: errBroker})))
		require.NoError(t, r.DeadLetter(bg, cm, nil))
		first, second := c.sent[deadLetters][0].Properties, c.sent[deadLetters][1].Properties
		assert.Equal(t, strings.Repeat("é", 512), first["EXCEPTION_MESSAGE"])
		assert.Equal(t, "7", first["REDELIVERY_COUNT"])
		assert.Equal(t, "*fs.PathError", first["EXCEPTION_TYPE"])
		assert.NotContains(t, second, "EXCEPTION_MESSAGE")
		assert.NotContains(t, second, "EXCEPTION_TYPE")
		assert.Equal(t, "2", first["RECONSUMETIMES"])
		assert.Equal(t, retries, first["ORIGIN_TOPIC"])
		assert.Equal(t, fmt.Sprint(time.Now().UnixMilli()), first["DEAD_LETTER_TIME"])
		require.Len(t, c.created, 1)
		assert.Regexp(t, "^persistent://public/default/orders-partition-3-sub-me-[a-z]{5}-DLQ$", c.created[0].Name)
		assert.Equal(t, pulsar.LZ4, c.created[0].CompressionType)
		assert.Equal(t, "readers", reflect.ValueOf(c.created[0]).FieldByName("initialSubscriptionName").String())
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
		m := message{props: map[string]string{"RECONSUMETIMES": times, "DELAY_LEVEL": level, "DELAY_TIME": delay,
			"REAL_TOPIC": level}}
		require.NoError(t, r.Later(bg, pulsar.ConsumerMessage{Consumer: &consumer{}, Message: m}))
		require.Equal(t, 1, len(c.sent[retries])+len(c.sent[deadLetters]), "the message went to another topic")
		for name, value := range retried() {
			if m.props[name] == "" {
				m.props[name] = value
			}
		}
		d, ok := publishing.DelayTime(m)
		require.True(t, d >= 0 && (ok || d == 0))
	})
}
