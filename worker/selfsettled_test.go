package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/worker"
)

func TestHandlerThatSettlesItsMessageIsLoggedOnce(t *testing.T) {
	for name, settle := range map[string]func(*redelivery.Consumer, pulsar.Message) error{
		"an ack":           func(c *redelivery.Consumer, msg pulsar.Message) error { return c.Ack(msg) },
		"an ack by id":     func(c *redelivery.Consumer, msg pulsar.Message) error { return c.AckID(msg.ID()) },
		"a nack":           func(c *redelivery.Consumer, msg pulsar.Message) error { c.Nack(msg); return nil },
		"a nack and error": func(c *redelivery.Consumer, msg pulsar.Message) error { c.Nack(msg); return errTest },
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				_, stop := t.start(func(_ context.Context, msg pulsar.Message) error { return settle(t.consumer, msg) },
					worker.WithConcurrency(1))
				t.publish("a", "b", "c")
				t.sleep(time.Second)
				require.NoError(t, stop())
				require.Len(t, t.linesWith("the handler acknowledged or nacked its message itself"), 1)
				require.Contains(t, t.log.String(), "message=1:0:0:0")
			})
		})
	}
}

func TestHandlerThatLeavesSettlingToTheWorkerIsNotLogged(t *testing.T) {
	for name, options := range map[string][]redelivery.Option{
		"no ack timeout": nil, "ack timeouts that end": {redelivery.WithAckTimeout(time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, orders, func(t *rig) {
				_, stop := t.start(func(_ context.Context, msg pulsar.Message) error {
					if msg.RedeliveryCount() == 0 {
						time.Sleep(3 * time.Second)
						return errTest
					}
					return nil
				})
				t.publish("a", "b", "c")
				t.sleep(time.Hour)
				require.NoError(t, stop())
				require.Empty(t, t.linesWith("message itself"))
			}, options...)
		})
	}
}
