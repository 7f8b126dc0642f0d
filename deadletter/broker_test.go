package deadletter_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/admin"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
)

var bg = context.Background()

// own is the subscription that replays and purges use.
const own = "redelivery"

// dry returns the options of a dry run.
func dry(o deadletter.ReplayOptions) deadletter.ReplayOptions {
	o.DryRun = true
	return o
}

// broker is a broker for a test, and a client of it.
type broker struct {
	t          testing.TB
	url, admin string
	namespace  string
	client     pulsar.Client
	inProcess  *pulsartest.Server // nil if the broker is a real one
}

// newBroker connects to the broker that PULSAR_URL and PULSAR_ADMIN_URL name. If they are not set, it starts a broker
// in this process.
func newBroker(t testing.TB) *broker {
	b := &broker{t: t, url: os.Getenv("PULSAR_URL"), admin: os.Getenv("PULSAR_ADMIN_URL"), namespace: "public/default"}
	if b.url == "" || b.admin == "" {
		return newInProcess(t)
	}
	b.client = b.connect()
	return b
}

func newInProcess(t testing.TB, o ...pulsartest.Option) *broker {
	server := pulsartest.NewServer(t, o...)
	b := &broker{t: t, url: server.URL(), admin: server.AdminURL(), namespace: "public/default", inProcess: server}
	b.client = b.connect()
	return b
}

// real returns a real broker. Without one, it skips the test.
func real(t testing.TB) *broker {
	b := newBroker(t)
	if b.inProcess != nil {
		t.Skip("needs a real broker: PULSAR_URL and PULSAR_ADMIN_URL")
	}
	return b
}

func (b *broker) connect() pulsar.Client {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: b.url, Logger: logtest.Client(b.t),
		MetricsRegisterer: prometheus.NewRegistry()})
	require.NoError(b.t, err)
	b.t.Cleanup(client.Close)
	return client
}

func (b *broker) callAdmin(method, path string, body, answer any) {
	b.t.Helper()
	require.NoError(b.t, admin.Call(bg, b.admin, method, path, body, answer))
}

// deduplicate puts the test's topics into a namespace of their own, in which the broker drops duplicates.
func (b *broker) deduplicate() {
	b.namespace = fmt.Sprintf("public/dedup-%08x", rand.Uint32())
	b.callAdmin("PUT", "namespaces/"+b.namespace, map[string]any{"replication_clusters": []string{"standalone"}}, nil)
	b.callAdmin("POST", "namespaces/"+b.namespace+"/deduplication", true, nil)
}

const sub = "billing"

// topics has the names of a dead letter topic of the subscription billing, of its origin and of its retry topic.
type topics struct{ origin, retry, dlq string }

func (b *broker) topics(partitions int) topics {
	name := fmt.Sprintf("persistent://%s/orders-%08x", b.namespace, rand.Uint32())
	t := topics{name, name + "-" + sub + "-RETRY", name + "-" + sub + "-DLQ"}
	for _, topic := range []string{t.origin, t.retry, t.dlq} {
		b.create(topic, partitions)
	}
	b.subscribe(t.origin, sub).Close()
	b.subscribe(t.retry, sub).Close()
	return t
}

func (b *broker) create(topic string, partitions int) {
	if partitions > 0 {
		b.callAdmin("PUT", topic+"/partitions", partitions, nil)
	} else {
		b.callAdmin("PUT", topic, nil, nil)
	}
}

func (b *broker) subscribe(topic, name string) pulsar.Consumer {
	c, err := b.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: name, Type: pulsar.Shared,
		AckWithResponse:             true,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	require.NoError(b.t, err)
	return c
}

func (b *broker) open(topic string, change ...func(*deadletter.Options)) *deadletter.Topic {
	o := deadletter.Options{Topic: topic, Admin: deadletter.Admin{URL: b.admin}}
	for _, f := range change {
		f(&o)
	}
	d, err := deadletter.Open(b.client, o)
	require.NoError(b.t, err)
	if b.inProcess != nil {
		d.Hurry(300 * time.Millisecond)
	}
	return d
}

// letter returns a dead letter with the properties that this library writes.
func (t topics) letter(i int) *pulsar.ProducerMessage {
	return &pulsar.ProducerMessage{
		Payload: []byte(fmt.Sprintf("letter %d", i)),
		Properties: map[string]string{
			"number": fmt.Sprint(i), "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"REAL_TOPIC": t.origin, "REAL_SUBSCRIPTION": sub, "ORIGIN_MESSAGE_ID": fmt.Sprintf("7:%d:-1", i),
			"ORIGIN_MESSAGE_IDY_TIME": fmt.Sprintf("7:%d:-1", i),
			"ORIGIN_TOPIC":            t.origin, "RECONSUMETIMES": "16", "DELAY_TIME": "7200000", "DELAY_LEVEL": "18",
			"NACK_COUNT":        "1:4",
			"EXCEPTION_MESSAGE": fmt.Sprintf("order %d: connection refused", i), "EXCEPTION_TYPE": "*net.OpError",
			"REDELIVERY_COUNT": "4", "DEAD_LETTER_TIME": fmt.Sprint(time.Now().UnixMilli()),
		},
	}
}

// publish publishes messages, single or in batches of the given size. It returns when the broker has stored all of
// them.
func (b *broker) publish(o pulsar.ProducerOptions, batch int, msgs ...*pulsar.ProducerMessage) {
	b.t.Helper()
	o.MaxPendingMessages = len(msgs) + 1000 // each chunk takes a place, too
	if batch > 1 {
		o.BatchingMaxMessages, o.BatchingMaxPublishDelay = uint(batch), time.Minute
	} else {
		o.DisableBatching = true
	}
	p, err := b.client.CreateProducer(o)
	require.NoError(b.t, err)
	defer p.Close()
	errs := make(chan error, len(msgs))
	for _, m := range msgs {
		p.SendAsync(bg, m, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { errs <- err })
	}
	require.NoError(b.t, p.FlushWithCtx(bg))
	for range msgs {
		require.NoError(b.t, <-errs)
	}
}

func (t topics) letters(n int) []*pulsar.ProducerMessage {
	var all []*pulsar.ProducerMessage
	for i := range n {
		all = append(all, t.letter(i))
	}
	return all
}

// receive returns all messages of the subscription billing on a topic, and acknowledges them.
func (b *broker) receive(topic string) []pulsar.Message {
	b.t.Helper()
	c := b.subscribe(topic, sub)
	defer c.Close()
	var all []pulsar.Message
	for end := time.Now().Add(waittest.Limit); b.backlog(topic, sub) > 0; {
		require.True(b.t, time.Now().Before(end), "the backlog does not empty: received %v", numbers(all))
		ctx, cancel := context.WithTimeout(bg, 200*time.Millisecond)
		msg, err := c.Receive(ctx)
		cancel()
		if err != nil { // no message yet, or the broker has not handled the acknowledgements of chunks yet
			continue
		}
		require.NoError(b.t, c.Ack(msg))
		all = append(all, msg)
	}
	return all
}

func numbers(msgs []pulsar.Message) []string {
	var all []string
	for _, m := range msgs {
		all = append(all, m.Properties()["number"])
	}
	return all
}

func upTo(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// backlog returns the backlog of a subscription; -1 if there is no such subscription.
func (b *broker) backlog(topic, name string) int {
	b.t.Helper()
	partitions, err := b.client.TopicPartitions(topic)
	require.NoError(b.t, err)
	sum := -1
	for _, p := range partitions {
		var stats struct {
			Subscriptions map[string]struct{ MsgBacklog int }
		}
		b.callAdmin("GET", p+"/stats?getPreciseBacklog=true", nil, &stats)
		if s, ok := stats.Subscriptions[name]; ok {
			sum = max(sum, 0) + s.MsgBacklog
		}
	}
	return sum
}

// adminBut returns the URL of a proxy for the broker's admin API. For paths that end in suffix, answer is called
// instead of the API.
func (b *broker) adminBut(suffix string, answer http.HandlerFunc) (url string) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, suffix) {
			answer(w, r)
			return
		}
		resp, err := http.Get(b.admin + r.URL.String())
		if assert.NoError(b.t, err) {
			defer resp.Body.Close()
			w.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(w, resp.Body)
		}
	}))
	b.t.Cleanup(proxy.Close)
	return proxy.URL
}

func full(topic string) string { return strings.TrimPrefix(topic, "persistent://") }
