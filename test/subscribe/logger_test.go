package subscribe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/logtest"
	"github.com/pulsar-redelivery/redelivery/test/testkit"
)

// callsBack is a slog.Handler that calls a function of the application once, at a log line that begins with line.
type callsBack struct {
	slog.Handler
	line string
	call chan func()
}

func (h callsBack) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, "redelivery: "+h.line) {
		select {
		case call := <-h.call:
			call()
		default: // the function was already called
		}
	}
	return h.Handler.Handle(ctx, r)
}

// The Logger calls the Consumer at each line that is logged.
func TestLoggerMayCallTheConsumer(t *testing.T) {
	t.Parallel()
	once := uint(1)
	for name, call := range map[string]func(*redelivery.Consumer){
		"Close":    (*redelivery.Consumer).Close,
		"Seek":     func(c *redelivery.Consumer) { _ = c.SeekByTime(time.Now().Add(-time.Hour)) },
		"GiveBack": func(c *redelivery.Consumer) { _ = c.GiveBack() },
		"Receive": func(c *redelivery.Consumer) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			_, _ = c.Receive(ctx)
		},
	} {
		for _, channel := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", Chan", false: ", Receive"}[channel], func(t *testing.T) {
				t.Parallel()
				for line, happens := range map[string]func(*testkit.Broker, *redelivery.Consumer){
					"subscribing again": func(_ *testkit.Broker, c *redelivery.Consumer) { require.NoError(t, c.GiveBack()) },
					"staying connected": func(b *testkit.Broker, _ *redelivery.Consumer) {
						b.InProcess.RefuseConnections(true)
						b.InProcess.DropConnections()
					},
				} {
					b := testkit.NewBrokerInProcess(t, pulsar.ClientOptions{OperationTimeout: 3 * time.Second})
					opts := b.Options(b.NewTopic(0), pulsar.Shared)
					opts.MaxReconnectToBroker = &once
					logger := callsBack{slog.NewTextHandler(io.Discard, nil), line, make(chan func(), 1)}
					subscribed := false
					c, err := redelivery.SubscribeWith(func(o pulsar.ConsumerOptions) (pulsar.Consumer, error) {
						if subscribed {
							return nil, errors.New("of the test")
						}
						subscribed = true
						return b.Client.Subscribe(o)
					}, opts, redelivery.WithLogger(slog.New(logger)))
					require.NoError(t, err)
					called := make(chan error)
					logger.call <- func() {
						defer close(called)
						call(c)
					}
					go func() {
						for {
							if _, err := testkit.Take(t.Context(), c, channel); err != nil {
								return
							}
						}
					}()
					happens(b, c)
					testkit.Returns(t, func() error { return <-called })
					testkit.Returns(t, func() error { c.Close(); return nil })
				}
			})
		}
	}
}

// Most services log JSON. The types of ids have no exported fields.
func TestLogInJSONNamesTopicAndMessage(t *testing.T) {
	t.Parallel()
	b := testkit.NewBroker(t)
	topic := b.NewTopic(0)
	opts := b.Options(topic, pulsar.Shared)
	opts.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 1}
	var log logtest.Buffer
	c := b.Subscribe(opts, redelivery.WithLogger(slog.New(slog.NewJSONHandler(&log, nil))))
	b.Send(topic, 2, false)
	first, second := testkit.Receive(t, c), testkit.Receive(t, c)
	require.NoError(t, c.DeadLetter(t.Context(), first, io.EOF))
	c.ReconsumeLater(second, 0) // fails: there is no retry topic
	for what, msg := range map[string]pulsar.Message{"dead letter": first, "reconsume later failed": second} {
		require.Contains(t, log.String(),
			fmt.Sprintf(`"msg":"redelivery: %s","topic":%q,"message":%q`, what, topic, msg.ID()))
	}
}
