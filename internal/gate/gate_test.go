package gate_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pulsar-redelivery/redelivery/internal/gate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGate(t *testing.T) {
	for name, c := range map[string]struct{ work, patience, waits time.Duration }{
		"nobody":       {0, time.Second, 0},
		"calls end":    {time.Second, math.MaxInt64, time.Second},
		"calls do not": {time.Hour, time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := gate.New()
				for range 3 {
					require.True(t, g.Enter())
					go func() {
						time.Sleep(c.work)
						g.Leave()
					}()
				}
				synctest.Wait()
				g.Shut()
				require.False(t, g.Enter())
				begin := time.Now()
				g.Wait(c.patience)
				require.Equal(t, c.waits, time.Since(begin))
				require.False(t, g.Enter())
				time.Sleep(c.work)
			})
		})
	}
}

// The last call may leave between a look at the count and the wait for it.
func TestNoWakeUpIsLost(t *testing.T) {
	for range 20_000 {
		g := gate.New()
		require.True(t, g.Enter())
		g.Shut()
		go g.Leave()
		begin := time.Now()
		g.Wait(10 * time.Second)
		require.Less(t, time.Since(begin), 9*time.Second)
	}
}
