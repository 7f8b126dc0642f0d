package deadletter_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/wiretest"
)

// far returns the URLs of proxies that delay requests and answers, so that each round trip takes the given time.
func (b *broker) far(roundTrip time.Duration) (url, adminURL string) {
	target := strings.TrimPrefix(b.url, "pulsar://")
	wire := wiretest.New(b.t, target, roundTrip)
	// clients look topics up by HTTP, and web replaces the broker's address in the answers
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(roundTrip)
		req, err := http.NewRequestWithContext(r.Context(), r.Method, b.admin+r.URL.String(), r.Body)
		if err != nil {
			return
		}
		req.Header = r.Header.Clone()
		req.Header.Del("Accept-Encoding")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		w.WriteHeader(resp.StatusCode)
		_, _ = w.Write(bytes.ReplaceAll(text, []byte(target), []byte(wire.Addr)))
	}))
	b.t.Cleanup(web.Close)
	return web.URL, web.URL
}

// Letters are stored one by one or in batches. All are replayed. DEADLETTER_FAR is the number of letters; a run with
// 50,000 has passed.
func TestReplayFromAFarBrokerNeedsLittleMemory(t *testing.T) {
	b := real(t)
	n, err := strconv.Atoi(cmp.Or(os.Getenv("DEADLETTER_FAR"), "2000"))
	require.NoError(t, err)
	url, adminURL := b.far(100 * time.Millisecond)
	tool := buildTool(t)
	for _, batch := range []int{1, 100} {
		t.Run(fmt.Sprintf("batches of %d", batch), func(t *testing.T) {
			tp := b.topics(0)
			for from := 0; from < n; from += 10_000 {
				var l []*pulsar.ProducerMessage
				for i := from; i < min(from+10_000, n); i++ {
					m := tp.letter(i)
					m.Key = fmt.Sprint(i % 100)
					l = append(l, m)
				}
				b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, batch, l...)
			}
			begin := time.Now()
			cmd := exec.Command(tool, "dlq", "replay", "-yes", "-json", tp.dlq)
			cmd.Env = append(os.Environ(), "PULSAR_URL="+url, "PULSAR_ADMIN_URL="+adminURL)
			out := &bytes.Buffer{}
			cmd.Stdout, cmd.Stderr = out, out
			require.NoError(t, cmd.Start())
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()
			used := 0
			for running := true; running; {
				select {
				case err := <-done:
					require.NoError(t, err, out.String())
					running = false
				case <-time.After(20 * time.Millisecond):
					used = max(used, highWater(cmd.Process.Pid))
				}
			}
			took := time.Since(begin)
			t.Logf("%d letters at 100 ms: %v, %.0f a second, %d MB", n, took.Round(time.Second),
				float64(n)/took.Seconds(), used)
			require.Equal(t, n, b.backlog(tp.retry, sub))
			require.Zero(t, b.backlog(tp.dlq, own))
			require.Less(t, used, 250)
		})
	}
}
