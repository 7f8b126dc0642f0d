//go:build unix

package attempts

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/admin"
)

// TestFanOut measures the cost of many consumers of a subscription. Each of them reads all frames of the others. A
// hundred consumers share a client, as in one process, and fifty consumers open at the same time. The figures are sums
// over all consumers, without the broker's CPU.
func TestFanOut(t *testing.T) {
	sessions, _ := strconv.Atoi(os.Getenv("ATTEMPTS_FANOUT"))
	if os.Getenv("PULSAR_URL") == "" || os.Getenv("PULSAR_ADMIN_URL") == "" || sessions == 0 {
		t.Skip("needs a real broker, some minutes, and the number of consumers in ATTEMPTS_FANOUT, such as 1000")
	}
	topic := testTopic(t)
	logs := make([]*Log, sessions)
	before, began := memory(), time.Now()
	var all sync.WaitGroup
	var client pulsar.Client
	for i := range logs {
		if i%50 == 0 {
			all.Wait()
		}
		if i%100 == 0 {
			client = testClient(t)
		}
		l, err := Open(client, Options{Topic: topic})
		require.NoError(t, err)
		t.Cleanup(l.Close)
		logs[i] = l
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			if err := l.Ready(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	t.Logf("%d sessions opened, fifty at once, in %v with %v of CPU; a session takes %d kB", sessions,
		time.Since(began).Round(time.Millisecond), cpu(),
		(memory()-before)/uint64(sessions)>>10)
	const failures, pause = 1000, 5 * time.Millisecond
	used, out := cpu(), bytesOut(t, topic)
	began = time.Now()
	for n := range int64(failures) {
		logs[n%10].Failed(Key{"t", 1, n, 0}, 1, time.Hour, "")
		time.Sleep(time.Until(began.Add(time.Duration(n+1) * pause)))
	}
	written := time.Now()
	for _, l := range logs {
		for l.Stats().Records != failures {
			require.Less(t, time.Since(written), 5*time.Minute)
			time.Sleep(time.Millisecond)
		}
	}
	took := time.Since(written)
	t.Logf("%d failures in %v were known to all %v later; %v of CPU, %d kB sent by the broker, %d bytes for a "+
		"failure and session", failures,
		written.Sub(began).Round(time.Millisecond), took.Round(time.Millisecond), cpu()-used,
		(bytesOut(t, topic)-out)>>10,
		(bytesOut(t, topic)-out)/uint64(failures*sessions))
	for _, l := range logs {
		l.KeepAlive()
	}
	time.Sleep(20 * time.Second) // until each session's lease has grown with the number of sessions
	used, out, began = cpu(), bytesOut(t, topic), time.Now()
	time.Sleep(20 * time.Second)
	t.Logf("renewing the leases of all sessions, for WithCrashLimit, took %v of CPU and %d kB in %v", cpu()-used,
		(bytesOut(t, topic)-out)>>10, time.Since(began).Round(time.Millisecond))
	for _, l := range logs {
		all.Go(l.Close)
	}
	all.Wait()
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return (time.Duration(u.Utime.Nano()) + time.Duration(u.Stime.Nano())).Round(time.Millisecond)
}

func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

func bytesOut(t *testing.T, topic string) uint64 {
	var stats struct {
		Bytes uint64 `json:"bytesOutCounter"`
	}
	require.NoError(t, admin.Call(t.Context(), os.Getenv("PULSAR_ADMIN_URL"), "GET",
		"persistent://public/default/"+topic+"/stats", nil, &stats))
	return stats.Bytes
}
