package worker_test

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/leaktest"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/internal/race"
	"github.com/pulsar-redelivery/redelivery/internal/virtual"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func TestMain(m *testing.M) {
	runMoreInParallel()
	leaktest.Main(m)
}

// runMoreInParallel lets more tests run in parallel than there are processors, since they mostly wait for brokers. If
// -parallel is set, it does nothing.
func runMoreInParallel() {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		parallel := "48"
		if race.Enabled { // tests take ten times as long
			parallel = "12"
		}
		_ = flag.Set("test.parallel", parallel)
	}
}

var (
	errTest = errors.New("no luck")
	orders  = pulsar.ConsumerOptions{Topic: "orders", SubscriptionName: "billing", Type: pulsar.Shared}
)

const deadLetters = "orders-billing-DLQ"

// withDeadLetters returns options of a consumer that makes a dead letter after maxDeliveries deliveries of a message.
func withDeadLetters(maxDeliveries uint32) pulsar.ConsumerOptions {
	opts := orders
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: maxDeliveries}
	return opts
}

// rig is a Consumer of a virtual broker, in virtual time.
type rig struct {
	*testing.T
	broker   *virtual.Broker
	consumer *redelivery.Consumer
	log      *logtest.Buffer
	logger   *slog.Logger
}

// virtually runs a test in virtual time. The test fails if a goroutine is left at its end.
func virtually(t *testing.T, opts pulsar.ConsumerOptions, test func(*rig), options ...redelivery.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, log: &logtest.Buffer{}}
		r.logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		setup(r, opts, append(options, redelivery.WithLogger(r.logger))...)
		defer r.consumer.Close()
		test(r)
	})
}

// setup makes the broker and the Consumer of a rig.
func setup(r *rig, opts pulsar.ConsumerOptions, options ...redelivery.Option) {
	var err error
	r.broker = &virtual.Broker{}
	r.consumer, err = redelivery.Subscribe(r.broker, opts, options...)
	require.NoError(r, err)
}

func (r *rig) publish(payloads ...string) {
	for _, payload := range payloads {
		r.broker.Publish("orders", &pulsar.ProducerMessage{Payload: []byte(payload)})
	}
}

// start runs a Worker until stop is called. stop returns the error of Run.
func (r *rig) start(handler worker.Handler, options ...worker.Option) (w *worker.Worker, stop func() error) {
	r.Helper()
	w, err := worker.New(r.consumer, handler, append([]worker.Option{worker.WithLogger(r.logger)}, options...)...)
	require.NoError(r, err)
	return w, r.run(w)
}

func (r *rig) run(w *worker.Worker) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	returned := make(chan error, 1)
	go func() { returned <- w.Run(ctx) }()
	return func() error {
		cancel()
		return <-returned
	}
}

// letters returns the payloads and reasons of the dead letters.
func (r *rig) letters() (all []string) {
	for _, msg := range r.broker.Published(deadLetters) {
		all = append(all, string(msg.Payload)+": "+msg.Properties["EXCEPTION_MESSAGE"])
	}
	return all
}

// sleep lets time pass, and then waits until all goroutines are blocked.
func (r *rig) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// calls notes the calls of a handler.
type calls struct {
	mu    sync.Mutex
	began time.Time
	at    []time.Duration
	what  []string
}

func newCalls() *calls { return &calls{began: time.Now()} }

func (c *calls) note(msg pulsar.Message) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = append(c.at, time.Since(c.began))
	c.what = append(c.what, string(msg.Payload()))
	return len(c.at)
}

func (c *calls) times() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]time.Duration(nil), c.at...)
}
