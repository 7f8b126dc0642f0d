package attempts

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What many consumers of a subscription cost: each reads all that the others write.
func TestFanOut(t *testing.T) {
	if os.Getenv("PULSAR_URL") == "" || os.Getenv("ATTEMPTS_FANOUT") == "" {
		t.Skip("needs a real broker, a minute, and ATTEMPTS_FANOUT=1")
	}
	const sessions = 300
	client, topic := testClient(t), testTopic(t)
	logs := make([]*Log, sessions)
	began := time.Now()
	var opening sync.WaitGroup
	for i := range logs {
		l, err := Open(client, Options{Topic: topic})
		require.NoError(t, err)
		t.Cleanup(l.Close)
		logs[i] = l
		opening.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			if err := l.Ready(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	opening.Wait()
	t.Logf("%d sessions opened at once in %v", sessions, time.Since(began))
	const failures = 1000
	began = time.Now()
	for n := range int64(failures) {
		logs[n%10].Failed(Key{"t", 1, n, 0}, 1, time.Hour, "")
		time.Sleep(2 * time.Millisecond)
	}
	written := time.Since(began)
	for _, l := range logs {
		await(t, func() bool { return l.Stats().Records == failures })
	}
	t.Logf("%d failures in %v were known to all %v later", failures, written, time.Since(began)-written)
	for _, l := range logs {
		opening.Go(l.Close)
	}
	opening.Wait()
}
