package browsertest

import (
	"context"
	crand "crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	plog "github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/config"
	"github.com/pulsar-redelivery/redelivery/internal/race"
	"github.com/pulsar-redelivery/redelivery/pulsartest"
	"github.com/pulsar-redelivery/redelivery/ui"
	"github.com/pulsar-redelivery/redelivery/worker"
)

const limit = time.Minute // of every wait

// site is a service whose handler can be broken, and the pages about it.
type site struct {
	t        *testing.T
	name     string // of its topic, in public/default
	orders   string // the topic
	dead     string // its dead letter topic
	url      string // of the broker
	adminURL string
	broker   *pulsartest.Server // nil for a real one
	admin    *httptest.Server   // the broker's admin API, which can be away
	away     atomic.Bool
	client   pulsar.Client
	pages    *ui.Handler
	server   *httptest.Server
	broken   atomic.Bool
	handled  atomic.Int64
	failed   atomic.Int64 // calls for slow orders
	consumer *redelivery.Consumer
}

// newSite starts a service that consumes orders on the subscription billing, and the pages. The broker is that of
// PULSAR_URL and PULSAR_ADMIN_URL, or else one in this process.
func newSite(t *testing.T) *site {
	s := &site{t: t, name: "orders", url: os.Getenv("PULSAR_URL"), adminURL: os.Getenv("PULSAR_ADMIN_URL")}
	if s.url == "" {
		s.broker = pulsartest.NewServer(t, pulsartest.WithBatchIndexAcknowledgment())
		s.url, s.adminURL = s.broker.URL(), s.broker.AdminURL()
	} else {
		s.name += "-" + crand.Text()[:8]
	}
	s.orders = "persistent://public/default/" + s.name
	s.dead = s.orders + "-billing-DLQ"
	s.broken.Store(true)
	s.admin = httptest.NewServer(http.HandlerFunc(s.serveAdmin))
	t.Cleanup(s.admin.Close)
	quiet := slog.New(slog.DiscardHandler)
	var err error
	s.client, err = pulsar.NewClient(pulsar.ClientOptions{URL: s.url, Logger: plog.NewLoggerWithSlog(quiet),
		MetricsRegisterer: prometheus.NewRegistry()})
	require.NoError(t, err)
	t.Cleanup(s.client.Close)
	s.subscribe(s.dead, "inspect")
	s.consumer, err = redelivery.Subscribe(s.client,
		pulsar.ConsumerOptions{Topic: s.orders, SubscriptionName: "billing", Type: pulsar.Shared},
		redelivery.WithNackRedeliveryBackoff(backoff.Exponential{Min: time.Minute, Max: 10 * time.Minute,
			Multiplier: 2}), redelivery.WithReconsumeBackoff(backoff.DelayLevels{time.Second, time.Minute}),
		redelivery.WithAttemptLog(redelivery.AttemptLog{}), redelivery.WithLogger(quiet),
		redelivery.WithObserver(redelivery.Observer{}),
		redelivery.WithDeadLetterPolicy(redelivery.DeadLetterPolicy{MaxDeliveries: 8, MaxReconsumes: 8,
			InitialSubscriptionName: "inspect"}))
	require.NoError(t, err)
	t.Cleanup(s.consumer.Close)
	w, err := worker.New(s.consumer, s.handle, worker.WithConcurrency(4), worker.WithLogger(quiet))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	s.pages, err = ui.New(ui.Options{Client: s.client, Admin: ui.Admin{URL: s.admin.URL},
		Services:     []ui.Service{{Consumer: s.consumer, Worker: w}},
		AllowChanges: true, ExportDir: t.TempDir(), Logger: quiet,
		Config: &config.Config{Policies: map[string]backoff.RedeliveryBackoff{
			"billing": backoff.Exponential{Min: time.Second, Max: 10 * time.Minute, Multiplier: 2}}}})
	require.NoError(t, err)
	t.Cleanup(s.pages.Close)
	s.server = httptest.NewServer(http.StripPrefix("/debug", s.pages))
	t.Cleanup(s.server.Close)
	return s
}

// goAway makes the admin API unreachable. If the test can, it makes the broker unreachable, too: the broker in this
// process, or a real broker that test/scripts/pulsar started under the name PULSAR_NAME.
func (s *site) goAway() {
	s.away.Store(true)
	switch {
	case s.broker != nil && race.Enabled: // a producer of pulsar-client-go has data races when it connects again
	case s.broker != nil:
		s.broker.RefuseConnections(true)
		s.broker.DropConnections()
	case os.Getenv("PULSAR_NAME") != "":
		s.script("kill")
	}
}

func (s *site) comeBack() {
	switch {
	case s.broker != nil:
		s.broker.RefuseConnections(false)
	case os.Getenv("PULSAR_NAME") != "":
		s.script("start", "-keep")
	}
	s.away.Store(false)
}

// script runs test/scripts/pulsar for the broker of PULSAR_NAME.
func (s *site) script(args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 5*limit)
	defer cancel()
	out, err := exec.CommandContext(ctx, "../../test/scripts/pulsar", args...).CombinedOutput()
	require.NoError(s.t, err, string(out))
}

// handle fails permanently on payloads that are not JSON. On slow orders it always fails, but not permanently. On all
// other orders it fails permanently while the service is broken.
func (s *site) handle(_ context.Context, msg pulsar.Message) error {
	var order struct {
		Order int
		Slow  bool
	}
	if err := json.Unmarshal(msg.Payload(), &order); err != nil {
		return worker.Permanent(err)
	}
	if order.Slow {
		s.failed.Add(1)
		return fmt.Errorf("the warehouse of order %d does not answer", order.Order)
	}
	if s.broken.Load() {
		return worker.Permanent(fmt.Errorf("charge order %d: dial tcp 10.0.3.7:5432: connect: connection refused",
			order.Order))
	}
	s.handled.Add(1)
	return nil
}

// serveAdmin serves the broker's admin API, with the rates of a real broker.
func (s *site) serveAdmin(w http.ResponseWriter, r *http.Request) {
	if s.away.Load() {
		panic(http.ErrAbortHandler)
	}
	forward(s, w, r)
}

func (s *site) subscribe(topic, name string) {
	c, err := s.client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: name, Type: pulsar.Shared})
	require.NoError(s.t, err)
	c.Close()
}

func (s *site) publish(topic string, messages ...*pulsar.ProducerMessage) {
	p, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	require.NoError(s.t, err)
	defer p.Close()
	for _, m := range messages {
		p.SendAsync(context.Background(), m, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				s.t.Error(err)
			}
		})
	}
	require.NoError(s.t, p.FlushWithCtx(context.Background()))
}

// order returns a message for the service.
func order(n int) *pulsar.ProducerMessage {
	return &pulsar.ProducerMessage{Key: fmt.Sprintf("customer-%d", n%23),
		Properties: map[string]string{"traceparent": fmt.Sprintf("00-4bf92f3577b34da6a3ce929d%08x-00f067aa0ba902b7-01",
			n)},
		Payload: fmt.Appendf(nil, `{"order": %d, "customer": {"id": %d, "name": "Åsa Öberg"}, "total": "%d.90", "items": [{"sku": "A-%d", "n": 2}, {"sku": "B-7", "n": 1}]}`, n, n%23, n, n)}
}

// slow returns an order that fails and waits.
func slow(n int) *pulsar.ProducerMessage {
	return &pulsar.ProducerMessage{Key: "customer-9", Payload: fmt.Appendf(nil, `{"order": %d, "slow": true}`, 4711+n)}
}

// storeOldLetters stores n dead letters that died in the last hours.
func (s *site) storeOldLetters(n int) {
	causes := []struct{ kind, reason string }{
		{"*net.OpError", "dial tcp 10.0.3.%d:5432: connect: connection refused"},
		{"*net.OpError", "dial tcp 10.0.3.%d:5432: connect: connection refused"},
		{"*net.OpError", "dial tcp 10.0.3.%d:5432: connect: connection refused"},
		{"*pay.Declined", "card of customer %d declined: insufficient funds"},
		{"*json.SyntaxError", "invalid character '<' looking for beginning of value at offset %d"},
		{"context.deadlineExceededError", "charge order %d: context deadline exceeded"},
	}
	random := rand.New(rand.NewPCG(1, 2))
	var all []*pulsar.ProducerMessage
	for i := range n {
		cause := causes[i%len(causes)]
		at := time.Now().Add(-time.Duration(random.ExpFloat64()*float64(40*time.Minute)) - time.Duration(i%len(causes)/3)*time.Hour)
		m := order(2000 + i)
		maps.Copy(m.Properties, map[string]string{"REAL_TOPIC": s.orders, "REAL_SUBSCRIPTION": "billing",
			"ORIGIN_MESSAGE_ID":   fmt.Sprintf("7:%d:-1", i),
			"ORIGIN_PUBLISH_TIME": fmt.Sprint(at.Add(-3 * time.Minute).UnixMilli()),
			"EXCEPTION_TYPE":      cause.kind, "EXCEPTION_MESSAGE": fmt.Sprintf(cause.reason, i%90),
			"REDELIVERY_COUNT": "12", "DEAD_LETTER_TIME": fmt.Sprint(at.UnixMilli())})
		all = append(all, m)
	}
	s.publish(s.dead, all...)
}

// newBrowser returns the context of a headless Chromium.
func newBrowser(t *testing.T) context.Context {
	path := os.Getenv("CHROMIUM")
	if path == "" {
		path = "chromium"
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WindowSize(1280, 800),
		chromedp.Flag("hide-scrollbars", true),
		chromedp.Flag("lang", "en-US"))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 3*limit)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Run(ctx)) // starts the browser, which ends with ctx
	return ctx
}
