package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/backoff"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// The pause policy is asked once for each try, and may call the Worker.
func TestPausePolicyIsAskedOncePerTry(t *testing.T) {
	virtually(t, orders, func(t *rig) {
		var mu sync.Mutex
		var asked []uint32
		var w *worker.Worker
		w, stop := t.start(func(context.Context, pulsar.Message) error { return errTest },
			worker.WithConcurrency(4), worker.WithPauseOnFailure(2, 1, backoff.Func(func(try uint32) time.Duration {
				w.Pause()
				w.Resume()
				require.True(t, w.Stats().Outage)
				require.NoError(t, w.Healthy())
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, try)
				return 10 * time.Second
			})))
		for range 10 {
			t.publish("tea")
		}
		t.sleep(45 * time.Second)
		require.Equal(t, []uint32{0, 1, 2, 3, 4}, asked)
		t.sleep(5 * time.Second)
		require.NoError(t, stop())
		require.Len(t, asked, 5+1)
	})
}
