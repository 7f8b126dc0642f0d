package suite

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

// broker is a broker under test and a client of it.
type broker struct {
	t         testing.TB
	url       string
	admin     string
	client    pulsar.Client
	inProcess *pulsartest.Server // nil if the broker is a real one
}

// newBroker connects to the broker that PULSAR_URL and PULSAR_ADMIN_URL name, or starts one in this process with
// options.
func newBroker(t testing.TB, options ...pulsartest.Option) *broker {
	b := &broker{t: t, url: os.Getenv("PULSAR_URL"), admin: os.Getenv("PULSAR_ADMIN_URL")}
	if b.url == "" || b.admin == "" {
		return newInProcess(t, pulsar.ClientOptions{}, options...)
	}
	b.connect(pulsar.ClientOptions{})
	return b
}

// newInProcess starts a broker in this process, and connects to it with options.
func newInProcess(t testing.TB, o pulsar.ClientOptions, options ...pulsartest.Option) *broker {
	server := pulsartest.NewServer(t, options...)
	b := &broker{t: t, url: server.URL(), admin: server.AdminURL(), inProcess: server}
	b.connect(o)
	return b
}

// connect makes the client, with what else options say.
func (b *broker) connect(o pulsar.ClientOptions) {
	o.URL, o.Logger = b.url, logtest.Client(b.t)
	var err error
	b.client, err = pulsar.NewClient(o)
	require.NoError(b.t, err)
	b.t.Cleanup(b.client.Close)
}

// startBroker starts a real broker of the test's own, with settings of standalone.conf.
func startBroker(t *testing.T, name string, conf map[string]string) (url, admin string) {
	env := append(os.Environ(), fmt.Sprintf("PULSAR_NAME=%s-%d", name, os.Getpid()))
	for key, value := range conf {
		env = append(env, "PULSAR_CONF_"+key+"="+value)
	}
	script := func(command, line string) string {
		cmd := exec.Command("../../test/scripts/pulsar", command)
		cmd.Env = env
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		require.NoError(t, err, said.String())
		found := regexp.MustCompile(line).FindStringSubmatch(string(out))
		require.NotNil(t, found, "%s: %s", command, out)
		return found[len(found)-1]
	}
	admin = script("start", `PULSAR_ADMIN_URL=(\S+)`)
	data := script("status", `data +(\S+)`)
	t.Cleanup(func() {
		script("stop", "")
		require.NoError(t, os.RemoveAll(data))
	})
	return script("env", `PULSAR_URL=(\S+)`), admin
}

// topic returns the name of a new topic with so many partitions; 0 for none.
func (b *broker) topic(partitions int) string {
	name := fmt.Sprintf("persistent://public/default/t-%08x", rand.Uint32())
	if partitions > 0 {
		b.rest("PUT", name, "/partitions", partitions, nil)
	} else {
		b.rest("PUT", name, "", nil, nil)
	}
	return name
}

func (b *broker) rest(method, topic, path string, body, answer any) {
	b.t.Helper()
	require.NoError(b.t, admin.Call(context.Background(), b.admin, method, topic+path, body, answer))
}

func (b *broker) unload(topic string) { b.rest("PUT", topic, "/unload", nil, nil) }

// subscription is what the broker's stats say about the tests' subscription.
type subscription struct {
	Backlog int `json:"msgBacklog"`
	Unacked int `json:"unackedMessages"`
	Out     int `json:"msgOutCounter"`
}

const sub = "sub"

// partitionsOf returns the names of a topic's partitions, or its own if it has none.
func partitionsOf(topic string, partitions int) (topics []string) {
	if partitions == 0 {
		return []string{topic}
	}
	for p := range partitions {
		topics = append(topics, fmt.Sprintf("%s-partition-%d", topic, p))
	}
	return topics
}

func (b *broker) stats(topic string, partitions int) (sum subscription) {
	for _, t := range partitionsOf(topic, partitions) {
		var stats struct{ Subscriptions map[string]subscription }
		b.rest("GET", t, "/stats", nil, &stats)
		s := stats.Subscriptions[sub]
		sum.Backlog += s.Backlog
		sum.Unacked += s.Unacked
		sum.Out += s.Out
	}
	return sum
}

// permits returns how many messages the broker may still send to the consumers of a topic without partitions.
func (b *broker) permits(topic string) (sum int) {
	b.t.Helper()
	var stats struct {
		Subscriptions map[string]struct {
			Consumers []struct{ AvailablePermits int }
		}
	}
	b.rest("GET", topic, "/stats", nil, &stats)
	for _, c := range stats.Subscriptions[sub].Consumers {
		sum += c.AvailablePermits
	}
	return sum
}

// settles asserts that everything gets acknowledged at the broker.
func (b *broker) settles(topic string, partitions int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		s := b.stats(topic, partitions)
		return s.Backlog == 0 && s.Unacked <= 0 // it falls below 0 where the broker has no batch-index acks but the client sends them
	}, patience, 50*time.Millisecond, "the backlog does not empty: %+v", b.stats(topic, partitions))
}

// send publishes the payloads "0" … "n-1", in one batch if batched, each with its payload as key.
func (b *broker) send(topic string, n int, batched bool) {
	b.t.Helper()
	opts := pulsar.ProducerOptions{Topic: topic, DisableBatching: !batched}
	if batched {
		opts.BatchingMaxMessages, opts.BatchingMaxPublishDelay = uint(n), time.Minute
		// one batch for each partition, whatever the keys
		opts.MessageRouter = func(m *pulsar.ProducerMessage, meta pulsar.TopicMetadata) int {
			return int(m.Payload[len(m.Payload)-1]) % int(meta.NumPartitions())
		}
	}
	p, err := b.client.CreateProducer(opts)
	require.NoError(b.t, err)
	defer p.Close()
	for i := range n {
		payload := fmt.Sprint(i)
		m := &pulsar.ProducerMessage{Payload: []byte(payload)}
		if !batched {
			m.Key = payload
		}
		p.SendAsync(context.Background(), m, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				b.t.Errorf("send: %v", err)
			}
		})
	}
	require.NoError(b.t, p.FlushWithCtx(context.Background()))
}

// publish sends messages one by one.
func (b *broker) publish(o pulsar.ProducerOptions, msgs ...*pulsar.ProducerMessage) {
	b.t.Helper()
	p, err := b.client.CreateProducer(o)
	require.NoError(b.t, err)
	defer p.Close()
	for _, m := range msgs {
		_, err := p.Send(context.Background(), m)
		require.NoError(b.t, err)
	}
}

func (b *broker) options(topic string, kind pulsar.SubscriptionType) pulsar.ConsumerOptions {
	return pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: sub, Type: kind,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}
}

func (b *broker) subscribe(opts pulsar.ConsumerOptions, options ...redelivery.Option) *redelivery.Consumer {
	b.t.Helper()
	options = append([]redelivery.Option{redelivery.WithLogger(logtest.Logger(b.t))}, options...)
	c, err := redelivery.Subscribe(b.client, opts, options...)
	require.NoError(b.t, err)
	b.t.Cleanup(c.Close)
	if opts.EnableZeroQueueConsumer { // pulsar-client-go drops a message that comes before its dispatcher has noticed the connection
		time.Sleep(ms(200))
	}
	return c
}

func logTo(w io.Writer) redelivery.Option {
	return redelivery.WithLogger(slog.New(slog.NewTextHandler(w, nil)))
}

// receive returns the next message, for which it waits fifteen seconds at most.
func receive(t testing.TB, c *redelivery.Consumer) pulsar.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	msg, err := c.Receive(ctx)
	require.NoError(t, err)
	return msg
}

// takeBy takes a message from the channel, or by Receive.
func takeBy(ctx context.Context, c pulsar.Consumer, channel bool) (pulsar.Message, error) {
	if !channel {
		return c.Receive(ctx)
	}
	select {
	case cm := <-c.Chan():
		return cm.Message, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// nothing asserts that no message comes for d.
func nothing(t testing.TB, c *redelivery.Consumer, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if msg, err := c.Receive(ctx); err == nil {
		t.Errorf("unexpected message %q, id %v", msg.Payload(), msg.ID())
	}
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }
