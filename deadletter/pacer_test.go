package deadletter

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Timers are a millisecond late, each letter takes time, and some letters are held up.
func TestPacerKeepsItsRateDespiteDelays(t *testing.T) {
	for _, rate := range []float64{0.5, 50, 900, 5000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPacer(rate)
				sent, begin := 0, time.Now()
				for time.Since(begin) < 10*time.Second {
					if wait := p.wait(); wait > 0 {
						time.Sleep(wait + time.Millisecond)
						continue
					}
					p.took()
					sent++
					if sent%500 == 0 {
						time.Sleep(80 * time.Millisecond)
					}
					time.Sleep(20 * time.Microsecond)
				}
				require.InEpsilon(t, rate*10, sent, 0.05)
			})
		})
	}
}

func TestPacerDoesNotMakeUpForALongPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPacer(100)
		p.took()
		time.Sleep(time.Hour)
		sent := 0
		for p.wait() <= 0 {
			p.took()
			sent++
		}
		require.LessOrEqual(t, sent, 11)
	})
}
