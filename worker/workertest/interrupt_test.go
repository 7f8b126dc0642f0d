package workertest_test

import (
	"context"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/worker"
	"github.com/pulsar-redelivery/redelivery/worker/workertest"
)

// A handler has two effects and takes no care. The cut after each of them repeats all effects before it.
func TestInterruptRepeatsTheEffectsBeforeTheCut(t *testing.T) {
	var effects [2]int
	var seen [][2]int
	workertest.Interrupt(t, &pulsar.ProducerMessage{}, func(testing.TB) worker.Handler {
		effects = [2]int{}
		return func(ctx context.Context, _ pulsar.Message) error {
			for i := range effects {
				effects[i]++
				workertest.Step(ctx)
			}
			return nil
		}
	}, func(testing.TB) { seen = append(seen, effects) })
	require.Equal(t, [][2]int{{2, 1}, {2, 2}, {1, 1}}, seen)
}
