package worker_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/worker"
)

// One observer ends the pause at once. The other observer is told last that the pause is over.
func TestLastReportOfAPauseIsCorrect(t *testing.T) {
	virtually(t, exclusive(9), func(t *rig) {
		var w *worker.Worker
		var last atomic.Bool
		resume := worker.WithObserver(worker.Observer{Paused: func(p worker.Paused) {
			if p.Paused {
				w.Resume()
			}
		}})
		note := worker.WithObserver(worker.Observer{Paused: func(p worker.Paused) { last.Store(p.Paused) }})
		w, stop := t.start(succeed, resume, note)
		last.Store(true)
		t.sleep(0)
		w.Pause()
		require.False(t, w.Stats().Paused)
		require.False(t, last.Load())
		require.NoError(t, stop())
	})
}
